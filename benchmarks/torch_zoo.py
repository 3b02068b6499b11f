"""Architectures of PyTorch in Weft: by ``torch.export``, static and dynamic, and by ``torch.compile``.

Weights are random, and each model is small. Its results are compared with PyTorch's in float64, for two sizes of inputs
where dimensions are open; ``--speed`` times ``torch.compile`` with Weft, with inductor, and eager, in turns.
"""

import copy
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import weft
from benchmarks import report
from benchmarks.race import race, ratio
from benchmarks.torch_networks import configured, written
from weft import relax
from weft.frontend.torch import from_exported_program

TOLERANCE = 1e-4
"""Of the largest difference from PyTorch in float64, over the largest value."""
SIZES = ((2, 32), (3, 45))
"""Batch and length: a model is traced for the first and called with both."""
WAYS = ("static", "dynamic", "compiled")
UNOPTIMISED = weft.target.Target("llvm -opt-level=0")
"""For numbers, which do not depend on it: compiles in half the time."""


@dataclass(frozen=True)
class Architecture:
    """A model with random weights and its inputs."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[Any, ...]]


def architectures() -> Iterator[Architecture]:
    """All, those of the package ``transformers`` first."""
    for name, family, made, kind, result, config in configured.CONFIGURED:
        names = tuple(configured.inputs(kind, 1, 8))

        def build(made: str = made, config: Any = config, names: Any = names, result: Any = result) -> nn.Module:
            return configured.Configured(made, config, names, result)

        yield Architecture(name, family, build, lambda b, n, kind=kind: tuple(configured.inputs(kind, b, n).values()))
    for name, family, module, given in written.WRITTEN:
        yield Architecture(name, family, module, given)


def reference(model: nn.Module, given: tuple[Any, ...]) -> Any:
    """What PyTorch computes in float64; in float32 where the model itself fixes that."""
    wide = tuple(x.double() if x.dtype == torch.float32 else x for x in given)
    with suppress(RuntimeError), torch.no_grad():
        return copy.deepcopy(model).double()(*wide)
    return model(*given)


def difference(found: Any, expected: Any) -> float:
    """The largest difference over the largest value; infinite where shapes differ."""
    if tuple(found.shape) != tuple(expected.shape):
        return math.inf
    found, expected = found.double(), expected.double()
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30)) if found.numel() else 0.0


def function(model: nn.Module, given: tuple[Any, ...], way: str) -> Callable[..., Any]:
    """The model in Weft, one of `WAYS`."""
    if way == "compiled":
        return torch.compile(model, backend="weft", options={"target": UNOPTIMISED})
    opened = torch.export.Dim.AUTO  # of images the batch: PyTorch reasons for minutes about the size of windows
    dims = tuple({i: opened for i in range(1 if x.ndim == 4 else x.ndim)} for x in given)
    dims = (dims,) if isinstance(model, configured.Configured) else dims  # its parameter is variadic
    program = torch.export.export(model, given, dynamic_shapes=dims if way == "dynamic" else None)
    machine = relax.VirtualMachine(weft.compile(from_exported_program(program), UNOPTIMISED), weft.cpu())["main"]
    return lambda *args: torch.from_dlpack(machine(*(weft.runtime.from_dlpack(x) for x in args))[0])


def checked(entry: Architecture, way: str) -> tuple[str, float]:
    """``right``, or why not; and the seconds that tracing and compiling took."""
    model = entry.build().eval()
    inputs = [entry.inputs(*size) for size in (SIZES if way != "static" else SIZES[:1])]
    start, worst = time.perf_counter(), 0.0
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        run = function(model, inputs[0], way)
        run(*inputs[0])
        seconds = time.perf_counter() - start
        for given in inputs:
            try:
                torch.manual_seed(0)  # what samples does so alike
                found = run(*given)
            except (weft.WeftError, TypeError, ValueError) as error:
                if way != "dynamic" or given is inputs[0]:
                    raise
                return f"right; torch.export fixed a size ({' '.join(str(error).split())[:60]})", seconds
            torch.manual_seed(0)
            worst = max(worst, difference(found, reference(model, given)))
    left = sorted({str(w.message).partition(": ")[2] for w in caught if "PyTorch runs" in str(w.message)})
    if not worst <= TOLERANCE:
        return f"differs by {worst:.1e}", seconds
    return "right" + (f"; eager: {'; '.join(left)}" if left else ""), seconds


def raced(entry: Architecture) -> dict[str, Any]:
    """Medians of calls in milliseconds, and how many times faster Weft is than inductor."""
    model = entry.build().eval()
    given = entry.inputs(*SIZES[0])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = {"weft": torch.compile(model, backend="weft"), "inductor": torch.compile(model), "eager": model}
        lanes = race({name: lambda call=call: call(*given) for name, call in calls.items()}, 5, 0.1)
    times = {f"{name} ms": lane.median_ms for name, lane in lanes.items()}
    return {**times, "inductor / weft": ratio(lanes, "inductor", "weft")}


def examined(entry: Architecture, ways: tuple[str, ...], speed: bool) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"name": entry.name, "family": entry.family}
    for way in ways:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            row[way], row[f"{way} s"] = checked(entry, way)
        except Exception as error:  # the row says which, and the table goes on
            row[way], row[f"{way} s"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", 0.0
            if len(ways) == 1:
                traceback.print_exc()
    if speed:
        torch._dynamo.reset()
        row |= raced(entry)
    return row


def main() -> int:
    """Run the chosen ones; the status says whether all are right."""
    parser = report.arguments(__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--speed", action="store_true", help="time beside inductor and eager")
    options = parser.parse_args()
    rows = []
    for entry in architectures():
        if not options.only or entry.name in options.only:
            rows.append(examined(entry, tuple(options.ways), options.speed))
            print(*(f"{v:.3g}" if isinstance(v, float) else v for v in rows[-1].values()), sep=" | ", flush=True)
    report.save(options.json, "torch_zoo", rows)
    if options.speed and rows:
        ratios = [row["inductor / weft"] for row in rows]
        print(
            f"inductor / weft: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, "
            f"least {min(ratios):.2f}, of {len(ratios)}"
        )
    return int(not all(row[way].startswith("right") for row in rows for way in options.ways))


if __name__ == "__main__":
    raise SystemExit(main())
