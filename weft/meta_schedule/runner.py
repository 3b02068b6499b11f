"""Runners: code in files is timed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft import tune
from weft.meta_schedule.arg_info import ArgInfo, Seconds, case_of
from weft.meta_schedule.part import Named, made
from weft.tune.front_end import Timer


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


class Runner(Named):
    """Times code."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Time code, one future for each file."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "local", *args: Any, **kwargs: Any) -> Runner:
        """Make a runner, ``"local"`` or ``"rpc"``."""
        return made("runner", _KINDS, kind, *args, **kwargs)


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
        self._timer = Timer()

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Time code."""
        results = self._timer.map(self._time, runner_inputs)
        return [RunnerFuture(lambda: True, lambda r=r: r) for r in results]

    def _time(self, given: RunnerInput) -> RunnerResult:
        built = tune.Built("built", Path(given.artifact_path).read_bytes())
        number, repeat, min_repeat_ms, _ = self.evaluator_config
        timed = self._timer.time(
            given.device_type,
            built,
            case_of(given.args_info),
            limit_s=self.timeout_sec,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
        )
        if timed.state != "measured":
            return RunnerResult(None, f"{type(self).__name__}: {timed.why or timed.state}")
        return RunnerResult(timed.seconds, None)


class RPCConfig(NamedTuple):
    """Where devices are: a tracker, and their key; what is left out is read from TVM_TRACKER_HOST, _PORT and _KEY.

    A session ends when `session_timeout_sec` is over, and another begins.
    """

    tracker_host: str | None = None
    tracker_port: int | str | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 300


class RPCRunner(LocalRunner):
    """Runs on devices that a tracker has free; one that is lost is replaced by the next.

    Parameters
    ----------
    rpc_config : RPCConfig, optional
    evaluator_config : EvaluatorConfig, optional
    cooldown_sec, alloc_repeat : number
        Accepted, as by :class:`LocalRunner`.
    max_workers : int, optional
        Devices at once, one by default.
    """

    def __init__(
        self,
        rpc_config: RPCConfig | None = None,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        *,
        max_workers: int | None = None,
    ) -> None:
        self.rpc_config = where = rpc_config or RPCConfig()
        super().__init__(30.0, evaluator_config, cooldown_sec, alloc_repeat, max_workers)
        key = where.tracker_key or os.environ.get("TVM_TRACKER_KEY", "")
        port = None if where.tracker_port is None else int(where.tracker_port)
        self._timer = Timer.of_tracker(key, where.tracker_host, port, where.session_priority, max_workers)


_KINDS: dict[str, type[Runner]] = {"local": LocalRunner, "rpc": RPCRunner}


create = Runner.create
