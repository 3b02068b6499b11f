"""Profiles of models: how long each kernel took, how near it came to the machine's limits, and what it computes."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from weft import error, ir, runtime, tir
from weft.profile.ceilings import fma_peak, read_bandwidth
from weft.session import Session
from weft.target import Target, TargetLike
from weft.tir.analysis.work import Work, work_of
from weft.tir.schedule import explain_schedule

_SHAPE = re.compile(r"\w+\[([^\]]*)\]")


@dataclass(frozen=True)
class KernelProfile:
    """One kernel at one set of shapes: medians over the runs, in microseconds for all of its calls in a run.

    ``gflops`` and ``gbytes`` are rates per second in 1e9; ``share`` is its part of the run, ``roofline`` how much of
    what the machine can do it reached; NaN where the work is not known. ``nodes`` says what it computes, ``rule`` how
    it was scheduled, and ``refused``, where that does not suit it, why other rules did not take it.
    """

    name: str
    shapes: str
    calls: int
    us: float
    share: float
    gflops: float
    gbytes: float
    roofline: float
    nodes: tuple[str, ...]
    rule: str = ""
    refused: str = ""


@dataclass(frozen=True)
class ModelProfile:
    """The kernels of a model, the longest first; ``total_us`` is the median of a whole run without the profiler."""

    kernels: list[KernelProfile]
    total_us: float
    threads: int
    peak_gflops: float
    peak_gbytes: float
    last: runtime.Report = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the calls of the last run as numbers and strings."""
        rows = [asdict(k) for k in self.kernels]
        head = {k: getattr(self, k) for k in ("total_us", "threads", "peak_gflops", "peak_gbytes")}
        return {**head, "kernels": [{k: _plain(v) for k, v in row.items()} for row in rows]}


_CALLS = ("relax.call_tir", "relax.call_tir_inplace")


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


class Sources(ir.PassInstrument):
    """Notes, while a module is compiled, its kernels and which nodes of the model each call of one comes from."""

    def __init__(self) -> None:
        self.kernels: dict[str, tir.PrimFunc] = {}
        self.sites: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        self._groups: dict[str, tuple[str, ...]] = {}
        self._members: dict[str | tuple[str, str], tuple[str, ...]] = {}

    def run_after_pass(self, mod: ir.IRModule, info: ir.Pass) -> None:
        """Look at the module where groups and kernels appear."""
        if info.name == "FuseOps":
            self._groups = {
                v.name_hint: _origins(b for b in _bindings(f))
                for v, f in mod.items()
                if isinstance(f, ir.Function) and f.attrs.get("Primitive")
            }
            for b in self._main(mod):
                name = getattr(getattr(b.value, "op", None), "name_hint", "")
                nodes = self._groups.get(name) or _origins([b])
                self._members[b.var.name_hint, str(b.span)] = self._members[str(b.span)] = nodes
        elif info.name in ("LegalizeOps", "ConcatInPlace"):
            self.sites.clear()
            self.kernels = {v.name_hint: f for v, f in mod.items() if isinstance(f, tir.PrimFunc)}
            for b in self._main(mod):
                kernel: Any = b.value.args[0] if isinstance(b.value, ir.Call) and b.value.args else None
                if isinstance(b.value, ir.Call) and getattr(b.value.op, "name", "") in (
                    "relax.call_tir",
                    "relax.call_tir_inplace",
                ):
                    span = str(b.span)
                    nodes = self._members.get((b.var.name_hint, span)) or self._members.get(span) or _origins([b])
                    self.sites[kernel.name_hint].append(nodes)

    @staticmethod
    def _main(mod: ir.IRModule) -> list[Any]:
        return _bindings(mod["main"]) if "main" in mod else []


def _bindings(func: Any) -> list[Any]:
    return [b for block in getattr(func.body, "blocks", ()) for b in block.bindings]


def _origins(bindings: Any) -> tuple[str, ...]:
    found = dict.fromkeys(str(b.span) for b in bindings if b.span is not None and isinstance(b.var, ir.ExprVar))
    return tuple(found)


def profile_model(
    model: object,
    feeds: Mapping[str, Any] | Callable[[Session], Mapping[str, Any]],
    repeat: int = 10,
    target: TargetLike | None = None,
    ceilings: tuple[float, float] | None = None,
    tuned: object = None,
    precision: str = "float32",
) -> ModelProfile:
    """Compile and run a model, and tell where the time goes.

    Parameters
    ----------
    model : path, bytes or onnx.ModelProto
        What :class:`weft.Session` takes, but no compiled library: its kernels are looked at.
    feeds : mapping of str to array, or callable
        The inputs, or what makes them of the session.
    repeat : int
        Runs under the profiler; times are medians over them.
    ceilings : (float, float), optional
        GFLOP/s and GB/s that the machine can do; measured by default, which takes a second.
    tuned : Database or path, optional
        What ``weft tune`` found, to compile with.
    precision : str
        As in :class:`weft.Session`.
    """
    if repeat < 1:
        raise error.InvalidArgument("a profile needs runs", expected="repeat of at least 1", found=str(repeat))
    sources = Sources()
    with ir.PassContext(instruments=[sources]):
        session = Session(model, target, tuned=tuned, precision=precision)
    feeds = feeds(session) if callable(feeds) else feeds
    session.run(feeds)
    peak = ceilings or (fma_peak(runtime.num_threads()), read_bandwidth())
    values = [np.asarray(feeds[info.name], order="C") for info in session.inputs]
    machine = runtime.VirtualMachine(session.executable, "cpu")
    total = _median_us(lambda: session.run(feeds), repeat)
    reports = [machine.profile("main", *values) for _ in range(repeat + 1)][1:]
    rules = _rules(sources, Target(target or "llvm"))
    return ModelProfile(
        _kernels(reports, sources, total, peak, rules), total, runtime.num_threads(), *peak, reports[-1]
    )


def _median_us(call: Callable[[], Any], repeat: int) -> float:
    taken = []
    for _ in range(repeat + 1):
        start = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - start) / 1e3)
    return float(np.median(taken[1:]))


def _rules(sources: Sources, target: Target) -> dict[str, tuple[str, str]]:
    """Map the kernels to their schedule rules and, where those do not suit, to why others refused."""
    reports = [(name, explain_schedule(func, target).kernels[0]) for name, func in sources.kernels.items()]
    return {name: (", ".join(r.record.rules()), r.reasons() if r.slow else "") for name, r in reports}


def _kernels(
    reports: Sequence[runtime.Report],
    sources: Sources,
    total: float,
    peak: tuple[float, float],
    rules: Mapping[str, tuple[str, str]],
) -> list[KernelProfile]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for report in reports:
        in_run: dict[tuple[str, str], float] = defaultdict(float)
        for call in report.calls:
            in_run[call.name, call.shapes] += call.duration_us
        for key, us in in_run.items():
            times[key].append(us)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    nodes: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    sites = {name: deque(found) for name, found in sources.sites.items()}
    for call in reports[-1].calls:  # the calls of a kernel come in the order of its places in the program
        counts[call.name, call.shapes] += 1
        if sites.get(call.name):
            nodes[call.name, call.shapes].update(dict.fromkeys(sites[call.name][0]))
            sites[call.name].rotate(-1)
    rows = []
    for key, found in times.items():
        us = float(np.median(found))
        work = _work(sources.kernels.get(key[0]), key[1], counts[key])
        row = _row(key, counts[key], us, us / total if total else 0.0, work, peak, tuple(nodes[key]))
        rule, refused = rules.get(key[0], ("", ""))
        rows.append(replace(row, rule=rule, refused=refused))
    return sorted(rows, key=lambda k: -k.us)


def _work(func: tir.PrimFunc | None, shapes: str, calls: int) -> Work | None:
    if func is None:
        return None
    sizes = [[int(d) for d in found.split(",") if d.strip()] for found in _SHAPE.findall(shapes)]
    one = work_of(func, sizes)
    return None if one is None else Work(one.operations * calls, one.bytes * calls)


def _row(
    key: tuple[str, str],
    calls: int,
    us: float,
    share: float,
    work: Work | None,
    peak: tuple[float, float],
    nodes: tuple[str, ...],
) -> KernelProfile:
    if work is None or us <= 0:
        return KernelProfile(*key, calls, us, share, np.nan, np.nan, np.nan, nodes)
    gflops, gbytes = work.operations / us / 1e3, work.bytes / us / 1e3
    return KernelProfile(*key, calls, us, share, gflops, gbytes, max(gflops / peak[0], gbytes / peak[1]), nodes)
