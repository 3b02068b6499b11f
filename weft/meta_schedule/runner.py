"""Runners: code in files is timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft.error import InvalidArgument
from weft.meta_schedule.arg_info import ArgInfo, Seconds, case_of
from weft.runtime import num_threads
from weft.target import Target
from weft.tune import Built, Measurer

__all__ = [
    "EvaluatorConfig", "LocalRunner", "PyRunner", "PyRunnerFuture", "Runner", "RunnerFuture", "RunnerInput",
    "RunnerResult", "create",
]  # fmt: skip


class EvaluatorConfig(NamedTuple):
    """How often a kernel runs: `number` together, `repeat` times, for `min_repeat_ms` milliseconds at least."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


class RunnerInput:
    """A file with code, the kind of device, and the arguments."""

    def __init__(self, artifact_path: str, device_type: str, args_info: Sequence[ArgInfo]) -> None:
        self.artifact_path, self.device_type, self.args_info = artifact_path, device_type, list(args_info)


class RunnerResult:
    """Seconds a run, or what went wrong."""

    def __init__(self, run_secs: Sequence[Any] | None, error_msg: str | None) -> None:
        self.run_secs = Seconds.of(run_secs)
        self.error_msg = error_msg


class RunnerFuture:
    """A result that may still come.

    Parameters
    ----------
    f_done, f_result : callable
    """

    def __init__(self, f_done: Any = None, f_result: Any = None) -> None:
        self.f_done, self.f_result = f_done, f_result

    def done(self) -> bool:
        """Whether it is there."""
        return bool(self.f_done())

    def result(self) -> RunnerResult:
        """Return it."""
        return self.f_result()


class PyRunnerFuture(RunnerFuture):
    """A future written in Python."""


class Runner:
    """Times code."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Time code, one future for each file."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Runner:
        """Make a runner."""
        return create(kind, *args, **kwargs)


class PyRunner(Runner):
    """A runner written in Python."""


class LocalRunner(PyRunner):
    """Runs on this machine, in a process beside this one.

    Parameters
    ----------
    timeout_sec : float
        Seconds for one.
    evaluator_config : EvaluatorConfig, optional
    cooldown_sec, alloc_repeat, max_workers : number
        Accepted; one kernel runs at a time.
    """

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        max_workers: int | None = None,
    ) -> None:
        self.timeout_sec, self.evaluator_config = timeout_sec, evaluator_config or EvaluatorConfig()
        self._measurer: Measurer | None = None

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Time code."""
        results = [self._time(i) for i in runner_inputs]
        return [RunnerFuture(lambda: True, lambda r=r: r) for r in results]

    def _time(self, given: RunnerInput) -> RunnerResult:
        if self._measurer is None:
            self._measurer = Measurer(Target(given.device_type), num_threads(), 1)
        built = Built("built", Path(given.artifact_path).read_bytes())
        number, repeat, min_repeat_ms, _ = self.evaluator_config
        timed = self._measurer.time(
            built, case_of(given.args_info), limit_s=self.timeout_sec, number=number, repeat=repeat,
            min_repeat_ms=min_repeat_ms,
        )  # fmt: skip
        if timed.state != "measured":
            return RunnerResult(None, f"LocalRunner: {timed.why or timed.state}")
        return RunnerResult(timed.seconds, None)

    def __del__(self) -> None:
        if getattr(self, "_measurer", None) is not None:
            self._measurer.__exit__()  # type: ignore[union-attr]


def create(kind: str = "local", *args: Any, **kwargs: Any) -> Runner:
    """Make a runner; ``"local"`` is the only kind."""
    if kind != "local":
        raise InvalidArgument(f"unknown runner '{kind}'", expected="'local'")
    return LocalRunner(*args, **kwargs)
