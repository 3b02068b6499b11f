"""``weft tune model.onnx --budget 60s``: measure what the schedule rules leave open, and keep the best in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import weft
from weft import environment, error, runtime, session
from weft.cli.arguments import demand_folders, parse_shapes
from weft.cli.run import random_inputs
from weft.cli.screen import print_table
from weft.target import Target

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_LINE_SECONDS = 10.0


def tune(
    model: Path,
    *,
    budget: str = "60s",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    shape: Annotated[tuple[str, ...], Parameter(name=["--shape", "--shapes"], negative="")] = (),
    threads: int = 0,
    trials: int | None = None,
    target: str = "llvm",
    rpc: str | None = None,
    key: str = "",
    ray: str | None = None,
) -> None:
    """Tune an ONNX model for this machine, or for one that a tracker has.

    Parameters
    ----------
    model : Path
        The ONNX file.
    budget : str
        How long, about: 60s, 5m, 1h. It ends earlier where nothing is left to measure. Ctrl-C keeps what was found.
    output : Path
        The database to go on with, or to write; the model's name with .tune.json by default.
    shape : tuple of str
        Representative shapes of inputs: x=1,3,320,320. An input that is given several times is tuned at several
        sizes. By default 1 for a symbolic first dimension and 64 for others.
    threads : int
        Threads that kernels use, when they are measured and later; by default all that the process may use.
    trials : int
        Candidates to measure at most.
    target : str
        What to compile for; this machine has to run it. With --rpc it is what the device says of itself.
    rpc : str
        HOST:PORT of a tracker, one of whose devices measures.
    key : str
        The kind of device, as its server was given it.
    ray : str
        The address of a Ray cluster that compiles, and measures where no tracker does; its nodes have to be alike.
    """
    seconds = _seconds(budget)
    output = output if output is not None else model.with_suffix(".tune.json")
    demand_folders(output)
    if threads < 0:
        raise error.InvalidArgument("--threads counts threads", expected="at least 1", found=str(threads))
    if threads:
        os.environ[environment.NUM_THREADS.name] = str(threads)
        runtime.set_num_threads(threads)
    mod = weft.frontend.onnx.from_onnx(model)
    sizes, described = _sizes(shape), _inputs(mod)
    unknown = [name for name in sizes[0] if name not in {info.name for info in described}]
    if unknown:
        raise error.InvalidArgument(
            "--shape names no input of the model",
            expected=", ".join(info.name for info in described),
            found=", ".join(unknown),
        )
    inputs = [list(random_inputs(described, shapes).values()) for shapes in sizes]
    database = weft.tune.JSONDatabase(output)
    measurer = _elsewhere(target, rpc, key, ray)
    with _shown(model.name, seconds) as report:
        result = weft.relax.tune_relax(
            mod,
            target=target if measurer is None else measurer.target,
            database=database,
            max_trials_global=trials,
            inputs=inputs,
            budget=seconds,
            report=report,
            measurer=measurer,
        )
    _print(result, output)
    if result.interrupted:
        raise KeyboardInterrupt


def _elsewhere(target: str, rpc: str | None, key: str, ray: str | None) -> Any:
    """What compiles and measures where ``--rpc`` and ``--ray`` say; None for this machine."""
    if rpc is None and ray is None:
        return None
    device = None if rpc is None else weft.tune.TrackerDevice(rpc, key)
    machine = Target(target) if device is None else device.target()
    threads = runtime.num_threads() if device is None else machine.machine.cores
    workers, runner = weft.tune.ray_workers(ray, threads, device is None) if ray is not None else ((), None)
    print(f"tuning for {machine}", file=sys.stderr, flush=True)
    return weft.tune.Measurer(machine, threads, workers=workers, runner=device or runner)


def _seconds(budget: str) -> float:
    text = budget.strip().lower()
    number = text.rstrip("smhin")
    try:
        seconds = float(number) * _UNITS[text[len(number) :].strip()]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise error.InvalidArgument("malformed --budget", expected="a time such as 60s, 5m or 1h", found=budget)
    return seconds


def _inputs(mod: Any) -> list[session.TensorInfo]:
    described = json.loads(mod["main"].attrs["weft.io"])["inputs"]
    return [session.TensorInfo(i["name"], i["dtype"], tuple(i["shape"])) for i in described]


def _sizes(options: Iterable[str]) -> list[dict[str, list[int | str]]]:
    """Group ``--shape`` options: the first of each input, the second of each, and so on."""
    groups: list[list[str]] = [[]]
    seen: dict[str, int] = {}
    for option in options:
        name = option.partition("=")[0]
        seen[name] = seen.get(name, -1) + 1
        if seen[name] == len(groups):
            groups.append([])
        groups[seen[name]].append(option)
    return [parse_shapes(group) for group in groups]


@contextmanager
def _shown(what: str, seconds: float) -> Generator[Callable[[Any], None]]:
    """Show how far tuning is, on standard error: a bar on a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"tuning {what}, {seconds:.0f} s", file=sys.stderr, flush=True)
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[gain]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"tuning {what}", total=seconds, gain="")

        def report(step: Any) -> None:
            gain = f"kernels {step.gain:.3f} times as fast, {step.measured} measured, {step.name}"
            bar.update(task, completed=step.seconds, gain=gain)

        yield report


class _Lines:
    """A line for the first candidate, for every gain, and one from time to time."""

    def __init__(self) -> None:
        self.gain, self.seconds = 1.0, float("-inf")

    def __call__(self, step: Any) -> None:
        if step.gain > self.gain + 0.001 or step.seconds - self.seconds > _LINE_SECONDS:
            self.gain, self.seconds = step.gain, step.seconds
            print(
                f"  {step.seconds:.0f} s: {step.measured} measured, kernels {step.gain:.3f} times as fast, {step.name}",
                file=sys.stderr,
                flush=True,
            )


def _print(result: Any, output: Path) -> None:
    dropped = f", {result.dropped} of them dropped" if result.dropped else ""
    print(f"measured {result.measured} candidates{dropped}")
    if result.kernels:
        rows = [
            (k.name, f"{k.before_us:,.1f}", f"{k.now_us:,.1f}", f"{k.before_us / k.now_us:.2f}") for k in result.kernels
        ]
        print_table("kernels in the model", ("kernel", "us untuned", "us tuned", "gain"), rows)
    for choice in result.choices:
        print(f"chosen: {choice}")
    for name in result.left_out:
        print(f"left out: {name}, faster by itself and not in the model")
    if result.interrupted:
        print("interrupted: what was found until then is kept, and was not compared in the model")
    else:
        gain = result.before_us / result.now_us
        print(f"model: {result.before_us:,.0f} us untuned, {result.now_us:,.0f} us tuned, {gain:.3f} times as fast")
    print(f"wrote {output}; use it with --tuned {output}")
