"""Building and running: templates are called here, code is made and run in other processes, or on other machines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import rpc, target, te
from weft.autotvm.measure.executor import Executor
from weft.autotvm.measure.measure import Builder, MeasureErrorNo, MeasureInput, MeasureResult, Runner
from weft.autotvm.task.knobs import InstantiationError
from weft.error import InvalidArgument, WeftError
from weft.runtime import num_threads
from weft.tune import Built, Case, Measurer
from weft.tune.front_end import Timer, tracker_address

_ERRORS = {
    "wrong": MeasureErrorNo.WRONG_ANSWER,
    "hung": MeasureErrorNo.RUN_TIMEOUT,
    "crashed": MeasureErrorNo.RUNTIME_DEVICE,
    "failed": MeasureErrorNo.RUNTIME_DEVICE,
}


class BuildResult(NamedTuple):
    """The code of a configuration and the call it is for, or the error."""

    filename: Any
    arg_info: Any
    error: tuple[Exception, MeasureErrorNo] | None
    time_cost: float


class LocalBuilder(Builder):
    """Builds on this machine, in processes beside this one.

    Parameters
    ----------
    timeout : float
        Seconds for one configuration.
    n_parallel : int, optional
        How many processes there are at most.
    build_kwargs, build_func, do_fork, runtime : Any
        Accepted for programs that say how other machines' code is linked; code for this one is not.
    """

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: dict[str, Any] | None = None,
        build_func: Any = "default",
        do_fork: bool = False,
        runtime: Any = None,
    ) -> None:
        super().__init__(timeout, n_parallel)
        if isinstance(build_func, str) and build_func != "default":
            raise InvalidArgument("unknown build_func", expected="'default' or a function", found=repr(build_func))
        self.user_build_kwargs, self.build_func = build_kwargs or {}, build_func
        self._measurer: Measurer | None = None

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Call the template for each configuration, and compile what it returns."""
        start = time.time()
        results: list[BuildResult | None] = []
        functions: list[Any] = []
        for inp in measure_inputs:
            try:
                with inp.target:
                    sch, tensors = inp.task.instantiate(inp.config)
                if not inp.config.valid():
                    raise InstantiationError("; ".join(inp.config.errors))
                functions.append(te.schedule_to_prim_func(sch, tensors, "main"))
                results.append(None)
            except WeftError as e:
                results.append(BuildResult(None, None, (e, MeasureErrorNo.INSTANTIATION_ERROR), time.time() - start))
        if functions and self._measurer is None:
            self._measurer = Measurer(target.Target(measure_inputs[0].target), num_threads(), min(2, self.n_parallel))
        built = iter(self._measurer.compile(functions) if self._measurer is not None else ())
        made = iter(functions)
        return [r or _result(next(made), next(built), time.time() - start) for r in results]

    def __del__(self) -> None:
        if self._measurer is not None:
            self._measurer.__exit__()


def _result(func: Any, built: Built, seconds: float) -> BuildResult:
    if built.code is None:
        error = MeasureErrorNo.BUILD_TIMEOUT if built.state == "hung" else MeasureErrorNo.COMPILE_HOST
        return BuildResult(None, None, (WeftError(built.why or built.state), error), seconds)
    return BuildResult(built, Case.static(func), None, seconds)


class LocalRunner(Runner):
    """Runs on this machine, in a process beside this one.

    Parameters
    ----------
    timeout : float
        Seconds for one configuration.
    number, repeat : int
        Runs that are timed together, and how often.
    min_repeat_ms : int
        How long those take together at least, in milliseconds; there are more of them where they take less.
    cooldown_interval : float
        Seconds to wait between two configurations.
    enable_cpu_cache_flush : bool
        Accepted; arguments are of random values, and as cold as the measured function makes them.
    module_loader : callable, optional
        Accepted for programs that load code on other machines.
    """

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: Any = None,
    ) -> None:
        super().__init__(timeout, 1)
        self.number, self.repeat, self.min_repeat_ms = number, repeat, min_repeat_ms
        self.cooldown_interval, self.enable_cpu_cache_flush = cooldown_interval, enable_cpu_cache_flush
        self.executor: Executor | None = None
        self._ref_input: list[Any] | None = None
        self._timer = Timer()

    @property
    def ref_input(self) -> list[Any] | None:
        """The arguments of every run, in place of random values."""
        return self._ref_input

    @ref_input.setter
    def ref_input(self, val: list[Any] | None) -> None:
        self._ref_input = val

    def get_build_kwargs(self) -> dict[str, Any]:
        """Return nothing: code for this machine needs no more."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Time each configuration that was built."""

        def timed(inp: MeasureInput, built: Any) -> Any:
            if self.executor is None:
                return self._time(inp, built, self.ref_input)
            return self.executor.submit(self._time, inp, built, ref_input=self.ref_input).result(self.timeout)

        return self._timer.map(timed, measure_inputs, build_results)

    def _time(self, inp: MeasureInput, built: BuildResult, ref_input: list[Any] | None) -> MeasureResult:
        start = time.time()
        if built.error is not None:
            return MeasureResult(("", built.error[0]), built.error[1], built.time_cost, start)
        how = {"number": self.number, "repeat": self.repeat, "min_repeat_ms": self.min_repeat_ms}
        inputs = [np.asarray(v) for v in ref_input] if ref_input is not None else None
        timed = self._timer.time(inp.target, built.filename, built.arg_info, limit_s=self.timeout, inputs=inputs, **how)
        time.sleep(self.cooldown_interval)
        end = time.time()
        if timed.state != "measured":
            error = _ERRORS.get(timed.state, MeasureErrorNo.UNKNOWN_ERROR)
            return MeasureResult(("", WeftError(timed.why or timed.state)), error, end - start + built.time_cost, end)
        return MeasureResult(timed.seconds, MeasureErrorNo.NO_ERROR, end - start + built.time_cost, end)


class RPCRunner(LocalRunner):
    """Runs on devices that a tracker has free; one that is lost is replaced by the next.

    Parameters
    ----------
    key : str
        The kind of device.
    host, port : str and int, optional
        Of the tracker; by default TVM_TRACKER_HOST and TVM_TRACKER_PORT say it.
    priority : int
        Who asks with a higher one comes first.
    timeout : float
        Seconds for one configuration.
    n_parallel : int, optional
        Devices at once, one by default.
    **options : Any
        Of :class:`LocalRunner`.
    """

    def __init__(
        self,
        key: str,
        host: str | None = None,
        port: int | None = None,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        *options: Any,
        **named: Any,
    ) -> None:
        super().__init__(timeout, *options, **named)
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self._timer = Timer.of_tracker(key, host, port, priority, n_parallel)


def request_remote(
    device_key: str, host: str | None = None, port: int | None = None, priority: int = 1, timeout: float = 60
) -> Any:
    """Begin a session with a device of a tracker, for `timeout` seconds at most."""
    where, _, number = tracker_address(host, port).rpartition(":")
    return rpc.connect_tracker(where, int(number)).request(device_key, priority, session_timeout=timeout)


def measure_option(builder: Builder | str, runner: Runner | str) -> dict[str, Any]:
    """Say how tuners measure.

    Parameters
    ----------
    builder : Builder or "local"
    runner : Runner or "local"
    """
    builder = LocalBuilder() if builder == "local" else builder
    runner = LocalRunner() if runner == "local" else runner
    if not isinstance(builder, Builder) or not isinstance(runner, Runner):
        raise InvalidArgument("measuring needs a builder and a runner", found=f"{builder!r}, {runner!r}")
    return {"builder": builder, "runner": runner}
