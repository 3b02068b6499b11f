"""Tuning whole models: which kernels there are and what they are called with, and whether records help the whole."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft import error, ir, runtime, tir, tune
from weft.relax.core_ops import is_op
from weft.relax.pipeline import get_pipeline
from weft.relax.transform import BindParams
from weft.relax.tune_choices import tune_choices
from weft.relax.vm_build import build
from weft.target import Target, TargetLike

_Clock = Callable[[Sequence[Any]], float]
"""Runs a model once; returns seconds."""

_LITTLE = 0.003
"""Kernels with less than this share of a model's time are not tuned."""

_KEPT = 0.99
"""A tuned kernel has to take less than this share of the untuned one's time inside the model."""

_RUNS = 7

_LONG_SECONDS = 5.0
"""Comparisons of models that take long end after so many seconds, with three runs at least."""


class TunedKernel(NamedTuple):
    """A kernel and its time in a run of the model, in microseconds: untuned, and with its record."""

    name: str
    before_us: float
    now_us: float


@dataclass
class TuningResult:
    """What tuning a model came to.

    Attributes
    ----------
    database : Database
        With what was found.
    before_us, now_us : float
        A run of the whole model untuned and tuned, measured in turns; NaN where tuning was interrupted before.
    kernels : list of TunedKernel
        Those that have records, as measured inside the model.
    choices : list of str
        Choices about operators that are not the default, such as the algorithm of a convolution.
    left_out : list of str
        Kernels and choices that were faster by themselves, but not inside the model.
    measured, dropped : int
        Candidates, and how many of them crashed, hung, or computed something else.
    interrupted : bool
        Whether somebody stopped it; what was found until then is kept.
    """

    database: tune.Database
    before_us: float = float("nan")
    now_us: float = float("nan")
    kernels: list[TunedKernel] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    measured: int = 0
    dropped: int = 0
    interrupted: bool = False


def tune_relax(
    mod: ir.IRModule,
    params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None,
    database: tune.Database | str | Any = None,
    max_trials_global: int | None = None,
    *,
    inputs: Sequence[Sequence[Any]],
    budget: float = 60.0,
    report: Callable[[tune.Progress], None] | None = None,
    measurer: tune.Measurer | None = None,
) -> TuningResult:
    """Tune the kernels of a model by measuring them.

    Parameters
    ----------
    mod : IRModule
        Relax functions; ``main`` is run.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name; they become constants.
    target : Target, str or dict, optional
        By default this machine's CPU, or what `measurer` measures for. This machine has to run it, without one.
    database : Database or path, optional
        What is known, and where to put what is found; by default a new one in memory.
    max_trials_global : int, optional
        Candidates to measure at most.
    inputs : sequence of sequences of array
        The arguments of ``main`` to measure with, a sequence for each representative size.
    budget : float
        How long in all, in seconds, about; never more than the model needs.
    report : callable, optional
        Called with a :class:`weft.tune.Progress` after each candidate.
    measurer : Measurer, optional
        Compiles and measures, and is ended with the call; by default processes of this machine. Where a device of a
        tracker measures, whole models are compared there, too; kernels' shares of their time are this machine's.

    Raises
    ------
    BudgetError
        When the time is over before one candidate was measured.
    DatabaseError
        When the file is no database of this version, or cannot be written.
    """
    start = time.monotonic()
    if not inputs:
        raise error.InvalidArgument("tuning needs inputs", expected="the arguments of main, at one size or more")
    target = target if isinstance(target, Target) else Target(target or (measurer.target if measurer else "llvm"))
    if target.kind.compile is None:
        raise error.InvalidArgument(
            "kernels of this target cannot be tuned", expected="a kind with compile=", found=str(target.kind)
        )
    if not isinstance(database, tune.Database):
        database = tune.JSONDatabase(database) if database is not None else tune.Database()
    if isinstance(database, tune.JSONDatabase):
        database.save()  # where it cannot be written, tell it now
    if params:
        mod = BindParams("main", params)(mod)
    values = [[np.ascontiguousarray(v) for v in arguments] for arguments in inputs]
    result = TuningResult(database)

    def noted(progress: tune.Progress) -> None:
        result.measured, result.dropped = progress.measured, progress.dropped
        if report is not None:
            report(progress)

    device = measurer.runner if measurer is not None and isinstance(measurer.runner, tune.TrackerDevice) else None
    plain = _Model(mod, target, tune.Database(), device)
    try:
        model, choices = _choose(plain, mod, measurer, database, 0.25 * budget, values, result)
        tasks = model.tasks(values)
        prepared = time.monotonic() - start
        reserve = min(0.2 * budget, prepared)  # for the comparison at the end
        tune.tune_tasks(
            tasks,
            target,
            database,
            budget - prepared - reserve,
            max_trials=max_trials_global,
            measurer=measurer,
            report=noted,
        )
        _check(result, plain, model, choices, tasks, values)
    except tune.BudgetError as e:
        prepared = time.monotonic() - start
        e.found = f"{budget:.1f} s, of which compiling and running the model took {prepared:.1f} s"
        e.help = f"give at least {1.3 * prepared + 5:.0f} s"
        raise
    except KeyboardInterrupt:
        result.interrupted = True
    finally:
        if measurer is not None:
            measurer.__exit__()
        if isinstance(database, tune.JSONDatabase):
            database.save()
    return result


def extract_tasks(
    mod: ir.IRModule,
    inputs: Sequence[Sequence[Any]],
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[tune.Task]:
    """Compile and run a model, and make a task of each kernel that takes a part of its time, the longest first."""
    target = target if isinstance(target, Target) else Target(target or "llvm")
    if params:
        mod = BindParams("main", params)(mod)
    values = [[np.ascontiguousarray(v) for v in arguments] for arguments in inputs]
    return _Model(mod, target, tune.Database()).tasks(values)


class _Model:
    """A model as the pipeline leaves it with a database's choices about operators; kernels are untuned.

    It runs on this machine, or on a device of a tracker.
    """

    def __init__(
        self, mod: ir.IRModule, target: Target, database: tune.Database, device: tune.TrackerDevice | None = None
    ) -> None:
        self.target, self.device = target, device
        self.constants = _Constants()
        with ir.PassContext(instruments=[self.constants]), database:
            self.lowered = get_pipeline("default", target)(mod)
        self.asked = dict(database.asked)
        self.machine = self.compiled(tune.Database(), Target("llvm") if device is not None else target)

    def compiled(self, database: tune.Database, target: Target | None = None) -> runtime.VirtualMachine:
        """Compile the model with a database's records of kernels, for this machine."""
        return runtime.VirtualMachine(self._built(database, target or self.target), "cpu", jit=False)

    def _built(self, database: tune.Database, target: Target) -> runtime.VMExecutable:
        return build(self.lowered, target, relax_pipeline=None, tuned=database)

    def clock(self, machine: runtime.VirtualMachine, database: tune.Database) -> _Clock:
        """What times runs of the model with a database's records: of `machine`, or on the device."""
        if self.device is not None:
            return self.device.program(self._built(database, self.target).export_library)
        return _here(machine)

    @property
    def is_large(self) -> bool:
        """Whether caches do not keep the constants from one run to the next."""
        return self.constants.bytes > self.target.machine.cold_model_bytes

    def tasks(self, values: Sequence[Sequence[Any]]) -> list[tune.Task]:
        """Run the model and make a task of each kernel that takes a part of its time, the longest first."""
        functions = {
            str(f.attrs.get("global_symbol") or v.name_hint): f
            for v, f in self.lowered.items()
            if isinstance(f, tir.PrimFunc) and not f.attrs.get("tir.is_scheduled")
        }
        calls = _Calls(functions, self.constants.positions if self.is_large else {})
        times: dict[str, float] = defaultdict(float)
        for arguments in values:
            self.machine["main"](*arguments)
            self.machine.set_instrument(calls)
            self.machine["main"](*arguments)
            self.machine.set_instrument(None)
            for name, us in _kernel_times([self.machine], arguments)[0].items():
                times[name] += us
        total = sum(times.values())
        tasks = [
            tune.Task(functions[name], cases, times[name], name)
            for name, cases in calls.cases().items()
            if times[name] >= _LITTLE * total
        ]
        return sorted(_distinct(tasks), key=lambda t: -t.us)


def _choose(
    plain: _Model,
    mod: ir.IRModule,
    measurer: tune.Measurer | None,
    database: tune.Database,
    seconds: float,
    values: Sequence[Sequence[Any]],
    result: TuningResult,
) -> tuple[_Model, list[tune.TuningRecord]]:
    """Tune choices about operators, and compile the model with them where that helps it."""
    records = tune_choices(plain.asked, plain.target, database, seconds, cold=plain.is_large, measurer=measurer)
    helped = [r for r in records if r.best is not None]
    if not helped:
        return plain, []
    model = _Model(mod, plain.target, tune.Database(helped), plain.device)
    before, now = _totals(
        plain.clock(plain.machine, tune.Database()), model.clock(model.machine, tune.Database()), values
    )
    if now < _KEPT * before:
        return model, helped
    for record in helped:
        _take_back(record)
        result.left_out.append(record.name)
    return plain, []


def _distinct(tasks: Sequence[tune.Task]) -> list[tune.Task]:
    """Join tasks that are one kernel under several names."""
    found: dict[str, tune.Task] = {}
    for task in tasks:
        known = found.setdefault(task.workload, task)
        if known is not task:
            known.us += task.us
            known.cases += task.cases
    return list(found.values())


class _Constants(ir.PassInstrument):
    """Notes which arguments of kernels are constants, and how large all of them are."""

    def __init__(self) -> None:
        self.positions: dict[str, set[int]] = defaultdict(set)
        self.bytes = 0

    def run_after_pass(self, mod: ir.IRModule, info: ir.Pass) -> None:
        """Look at the calls where kernels appear."""
        if info.name not in ("LegalizeOps", "ConcatInPlace"):
            return
        self.bytes = 0
        seen: set[ir.Expr] = set()
        blocks = [
            block for _, f in mod.items() if isinstance(f, ir.Function) for block in getattr(f.body, "blocks", ())
        ]
        for call in (b.value for block in blocks for b in block.bindings):
            if not is_op(call, "call_tir") and not is_op(call, "call_tir_inplace"):
                continue
            kernel: Any = call.args[0]
            for i, a in enumerate(getattr(call.args[1], "fields", (call.args[1],))):
                if isinstance(a, ir.Constant):
                    self.positions[kernel.name_hint].add(i)
                    self.bytes += 0 if a in seen else a.data.numpy().nbytes
                    seen.add(a)


class _Calls:
    """An instrument that notes what kernels are called with."""

    def __init__(self, functions: Mapping[str, tir.PrimFunc], cold: Mapping[str, set[int]]) -> None:
        self.functions, self.cold = functions, cold
        self.found: dict[str, dict[tune.Case, int]] = defaultdict(lambda: defaultdict(int))
        self.unknown: set[str] = set()

    def __call__(self, _func: object, name: str, before_run: bool, _ret: object, *args: Any) -> int:
        """Note one call."""
        if before_run and name in self.functions:
            case = tune.Case.of(self.functions[name], args, self.cold.get(name, ()))
            if case is None:
                self.unknown.add(name)
            else:
                self.found[name][case] += 1
        return 0

    def cases(self) -> dict[str, list[tune.Case]]:
        """List the calls of each kernel whose arguments can be made."""
        return {
            name: [c._replace(calls=n) for c, n in cases.items()]
            for name, cases in self.found.items()
            if name not in self.unknown
        }


def _kernel_times(machines: Sequence[runtime.VirtualMachine], arguments: Sequence[Any]) -> list[dict[str, float]]:
    """Run machines in turns and return, for each, the median time of each kernel in a run, in microseconds."""
    taken: list[dict[str, list[float]]] = [defaultdict(list) for _ in machines]
    for _ in _rounds(_RUNS):
        for machine, times in zip(machines, taken, strict=True):
            in_run: dict[str, float] = defaultdict(float)
            for call in machine.profile("main", *arguments).calls:
                in_run[call.name] += call.duration_us
            for name, us in in_run.items():
                times[name].append(us)
    return [{name: statistics.median(found) for name, found in times.items()} for times in taken]


def _check(
    result: TuningResult,
    plain: _Model,
    model: _Model,
    choices: Sequence[tune.TuningRecord],
    tasks: Sequence[tune.Task],
    values: Sequence[Sequence[Any]],
) -> None:
    """Compare the tuned model with the untuned one, and take back records that do not help it."""
    helped = {t.name: t.record for t in tasks if t.record is not None and t.record.best is not None}
    tuned = model.compiled(result.database) if model.device is None else model.machine
    if model.device is None:
        before, now = _both(model.machine, tuned, values)
    else:  # nothing looks into a run of another machine
        before = {name: r.default_us for name, r in helped.items()}
        now = {name: r.default_us * (r.best.ratio or 1.0) for name, r in helped.items() if r.best is not None}
    useless = [name for name in helped if now[name] > _KEPT * before[name]]
    _leave_out(result, [(name, helped.pop(name)) for name in useless])
    if useless and model.device is None:
        tuned = model.compiled(result.database)
    clocks = plain.clock(plain.machine, tune.Database()), model.clock(tuned, result.database)
    result.before_us, result.now_us = _totals(*clocks, values)
    if result.now_us >= result.before_us or not (helped or choices):
        _leave_out(result, [*helped.items(), *((r.name, r) for r in choices)])
        helped, choices, result.now_us = {}, [], result.before_us
    result.kernels = [TunedKernel(name, before[name], now[name]) for name in helped]
    result.choices = [f"{r.name}: {r.best.decisions[tune.CHOICE]}" for r in choices if r.best is not None]


def _leave_out(result: TuningResult, records: Sequence[tuple[str, tune.TuningRecord]]) -> None:
    for name, record in records:
        _take_back(record)
        result.left_out.append(name)


def _both(
    plain: runtime.VirtualMachine, tuned: runtime.VirtualMachine, values: Sequence[Sequence[Any]]
) -> tuple[dict[str, float], dict[str, float]]:
    """The time of each kernel in a run of each machine, over all sizes."""
    sums: tuple[dict[str, float], dict[str, float]] = (defaultdict(float), defaultdict(float))
    for arguments in values:
        for machine in (plain, tuned):
            machine["main"](*arguments)
        for total, times in zip(sums, _kernel_times([plain, tuned], arguments), strict=True):
            for name, us in times.items():
                total[name] += us
    return sums


def _here(machine: runtime.VirtualMachine) -> _Clock:
    def seconds(arguments: Sequence[Any]) -> float:
        start = time.perf_counter_ns()
        machine["main"](*arguments)
        return (time.perf_counter_ns() - start) / 1e9

    return seconds


def _totals(plain: _Clock, tuned: _Clock, values: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """The median time of a run of each model, over all sizes, in microseconds."""
    sums = [0.0, 0.0]
    for arguments in values:
        taken: list[list[float]] = [[], []]
        for i in _rounds(2 + 3 * _RUNS):
            for which in (0, 1) if i % 2 else (1, 0):
                seconds = (plain, tuned)[which](arguments)
                if i >= 2:
                    taken[which].append(seconds * 1e6)
        for which in (0, 1):
            sums[which] += statistics.median(taken[which])
    return sums[0], sums[1]


def _rounds(most: int) -> Iterator[int]:
    """Count to `most`, or as far as there is time."""
    start = time.monotonic()
    for i in range(most):
        if i > 4 and time.monotonic() - start > _LONG_SECONDS:
            return
        yield i


def _take_back(record: tune.TuningRecord) -> None:
    """Note that no candidate of a kernel helps the model."""
    for trial in [t for t in record.trials if t.state == "confirmed"]:
        record.add(trial._replace(state="no gain"))
