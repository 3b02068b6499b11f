"""Measuring states: builders make code, runners time it, callbacks hear of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import ir, runtime, target, te
from weft.auto_scheduler.compute_dag import ComputeDAG
from weft.auto_scheduler.loop_state import State
from weft.auto_scheduler.task_inputs import input_values
from weft.error import WeftError
from weft.tune import Built, Case, Measurer
from weft.tune.front_end import MeasureErrorNo, Timer

__all__ = [
    "BuildResult",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureCallback",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "ProgramBuilder",
    "ProgramMeasurer",
    "ProgramRunner",
    "PythonBasedMeasureCallback",
    "RPCRunner",
    "recover_measure_input",
]


_ERRORS = {"hung": MeasureErrorNo.RUN_TIMEOUT, "wrong": MeasureErrorNo.WRONG_ANSWER}


class MeasureInput:
    """A state of a task."""

    def __init__(self, task: Any, state: Any) -> None:
        self.task, self.state = task, state

    def serialize(self) -> list[Any]:
        """Return what makes the input again."""
        return [self.task, self.state.transform_steps]

    @staticmethod
    def deserialize(data: list[Any]) -> MeasureInput:
        """Make the input again."""
        return MeasureInput(data[0], State(data[0].compute_dag, data[1]))


class BuildResult(NamedTuple):
    """The code of a state and its arguments, or the error."""

    filename: Any
    args: Any
    error_no: int
    error_msg: str
    time_cost: float


class MeasureResult:
    """Seconds a run, or the error, and how long measuring took."""

    def __init__(
        self, costs: Sequence[Any], error_no: int, error_msg: str | None, all_cost: float, timestamp: float
    ) -> None:
        self.costs = [c if isinstance(c, ir.FloatImm) else ir.FloatImm("float64", float(c)) for c in costs]
        self.error_no, self.error_msg = int(error_no), error_msg or ""
        self.all_cost, self.timestamp = all_cost, timestamp

    @property
    def mean(self) -> float:
        """The mean of the times, in seconds; a very long one where there was an error."""
        return float(np.mean([c.value for c in self.costs])) if self.error_no == 0 and self.costs else 1e10

    def __str__(self) -> str:
        costs = ", ".join(str(c.value) for c in self.costs)
        told = f"error_type:{MeasureErrorNo(self.error_no).name}, error_msg:{self.error_msg}, " if self.error_no else ""
        times = f"all_cost:{self.all_cost}, Tstamp:{self.timestamp}"
        return f"MeasureResult({told}cost:[{costs}], error_no:{self.error_no}, {times})"

    __repr__ = __str__


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """Give the input of a record its computation, and with `rebuild_state` its loops."""
    task = inp.task
    new = weft.auto_scheduler.SearchTask(
        compute_dag=ComputeDAG(task.workload_key),
        workload_key=task.workload_key,
        target=task.target,
        hardware_params=task.hardware_params,
        layout_rewrite_option=task.layout_rewrite_option,
        task_inputs=list(task.task_input_names),
    )
    steps = inp.state.transform_steps
    return MeasureInput(new, State(new.compute_dag, steps) if rebuild_state else inp.state)


class ProgramBuilder:
    """Makes code of states."""

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """Return what :meth:`ProgramRunner.run` takes."""
        raise NotImplementedError


class ProgramRunner:
    """Times the code of states."""

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        """Measure what the builder made."""
        raise NotImplementedError


class LocalBuilder(ProgramBuilder):
    """Builds on this machine, in processes beside this one.

    Parameters
    ----------
    timeout : float
        Seconds for one.
    n_parallel : int
        Processes at most.
    build_func : str
        Accepted; code for this machine needs no linking.
    """

    def __init__(self, timeout: float = 15, n_parallel: int = 2, build_func: Any = "default") -> None:
        self.timeout, self.n_parallel, self.build_func = timeout, n_parallel, build_func
        self._measurer: Measurer | None = None

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """Lower the schedule of each state and compile it."""
        start = time.time()
        functions: list[Any] = []
        errors: list[str | None] = []
        for inp in measure_inputs:
            try:
                sch, tensors = inp.task.compute_dag.apply_steps_from_state(inp.state)
                functions.append(te.schedule_to_prim_func(sch, tensors, "main"))
                errors.append(None)
            except WeftError as e:
                errors.append(str(e))
        if functions and self._measurer is None:
            self._measurer = Measurer(
                target.Target(measure_inputs[0].task.target), runtime.num_threads(), min(2, self.n_parallel)
            )
        built = iter(self._measurer.compile(functions) if self._measurer is not None else ())
        made, seconds = iter(functions), time.time() - start
        instantiation = MeasureErrorNo.INSTANTIATION_ERROR
        return [
            _built(next(made), next(built), seconds)
            if e is None
            else BuildResult(None, None, instantiation, e, seconds)
            for e in errors
        ]

    def __del__(self) -> None:
        if getattr(self, "_measurer", None) is not None:
            self._measurer.__exit__()  # type: ignore[union-attr]


def _built(func: Any, built: Built, seconds: float) -> BuildResult:
    if built.code is None:
        error = MeasureErrorNo.BUILD_TIMEOUT if built.state == "hung" else MeasureErrorNo.COMPILE_HOST
        return BuildResult(None, None, error, built.why or built.state, seconds)
    return BuildResult(built, Case.static(func), MeasureErrorNo.NO_ERROR, "", seconds)


class LocalRunner(ProgramRunner):
    """Runs on this machine, in a process beside this one.

    Parameters
    ----------
    timeout : float
        Seconds for one state.
    number, repeat, min_repeat_ms : int
        Runs that are timed together, how often, and for how many milliseconds at least.
    cooldown_interval : float
        Seconds between two states.
    enable_cpu_cache_flush : bool
        Accepted; arguments are random values, as cold as the measured function leaves them.
    device : int
    """

    def __init__(
        self,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        self.timeout, self.number, self.repeat, self.min_repeat_ms = timeout, number, repeat, min_repeat_ms
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, enable_cpu_cache_flush
        self._timer = Timer()

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        """Time each state that was built."""
        return self._timer.map(self._time, measure_inputs, build_results)

    def _time(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        if built.error_no:
            return MeasureResult([], built.error_no, built.error_msg, built.time_cost, time.time())
        start = time.time()
        timed = self._timer.time(
            inp.task.target,
            built.filename,
            built.args,
            limit_s=self.timeout,
            number=self.number,
            repeat=self.repeat,
            min_repeat_ms=self.min_repeat_ms,
            inputs=input_values(inp.task, built.args),
        )
        time.sleep(self.cooldown_interval)
        end = time.time()
        error = _ERRORS.get(timed.state, MeasureErrorNo.RUNTIME_DEVICE) if timed.state != "measured" else 0
        return MeasureResult(timed.seconds, error, timed.why, built.time_cost + end - start, end)


class RPCRunner(LocalRunner):
    """Runs on devices that a tracker has free; one that is lost is replaced by the next.

    Parameters are those of :class:`weft.autotvm.RPCRunner`, without `timeout`, and those of :class:`LocalRunner`.
    """

    def __init__(
        self,
        key: str,
        host: str | None = None,
        port: int | None = None,
        priority: int = 1,
        n_parallel: int = 1,
        *options: Any,
        **named: Any,
    ) -> None:
        super().__init__(*options, **named)
        self.key, self.host, self.port, self.priority, self.n_parallel = key, host, port, priority, n_parallel
        self._timer = Timer.of_tracker(key, host, port, priority, n_parallel)


class LocalRPCMeasureContext:
    """Measuring in a process of its own on this machine: its ``runner`` is a :class:`LocalRunner`.

    Parameters are those of :class:`LocalRunner`; `priority`, `n_parallel` and `device` are accepted.
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)


class MeasureCallback:
    """Hears of every batch of measurements."""

    def __call__(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take a batch."""
        raise NotImplementedError


class PythonBasedMeasureCallback(MeasureCallback):
    """Has a method ``callback(policy, inputs, results)``."""

    def __call__(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take a batch."""
        self.callback(policy, inputs, results)

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take a batch."""
        raise NotImplementedError


class ProgramMeasurer:
    """Builds, runs and tells callbacks; remembers the best.

    Parameters
    ----------
    builder : ProgramBuilder
    runner : ProgramRunner
    callbacks : sequence of MeasureCallback
    verbose : int
        0 is silent.
    max_continuous_error : int
        After so many failures in a row the user is told.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        runner: ProgramRunner,
        callbacks: Sequence[Callable[..., Any]],
        verbose: int,
        max_continuous_error: int = -1,
    ) -> None:
        self.builder, self.runner, self.callbacks, self.verbose = builder, runner, list(callbacks), verbose
        self.ct = self.error_ct = 0
        self.best_ct: dict[str, int] = {}
        self.best_cost: dict[str, float] = {}

    def measure(self, task: Any, policy: Any, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Measure a batch."""
        built = self.builder.build(inputs, self.verbose)
        results = self.runner.run(inputs, built, self.verbose)
        key = task.workload_key
        for res in results:
            self.ct += 1
            self.error_ct += res.error_no != 0
            if res.mean < self.best_cost.get(key, 1e10):
                self.best_cost[key], self.best_ct[key] = res.mean, self.ct
            if self.verbose:
                told = f"{res.mean * 1e3:.3f} ms" if res.error_no == 0 else MeasureErrorNo(res.error_no).name
                best = self.best_cost.get(key, 1e10) * 1e3
                print(f"No: {self.ct}\t{told}\tbest: {best:.3f} ms")
        for callback in self.callbacks:
            callback(policy, inputs, results)
        return results
