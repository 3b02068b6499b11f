"""Measuring in other processes: a candidate that crashes or hangs costs its process and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from weft import ir, tir
from weft.environment import NUM_THREADS
from weft.runtime.worker import Process, WorkerCrashed, WorkerError, WorkerHung
from weft.target import Target
from weft.tune.case import Case

_COMPILE_SECONDS = 30.0
_RUN_SECONDS = 5.0
_START_SECONDS = 60.0
_KERNEL = "candidate"
_PROGRAM = "weft.tune.worker"


class Worker(Protocol):
    """Answers the requests of :mod:`weft.tune.worker`, one after another; started when needed, again after it was lost.

    ``ask`` raises WorkerError, and WorkerCrashed or WorkerHung when the request took the worker along.
    """

    @property
    def is_alive(self) -> bool:
        """Whether it has what it was told before."""
        ...

    def start(self) -> Any:
        """Begin before the first request."""
        ...

    def ask(self, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """Send a request and wait for the reply."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Built(NamedTuple):
    """A compiled candidate: its code and the fingerprint of its schedule, or why there is none.

    ``state`` is ``"built"``, ``"same"`` (the schedule is known), ``"refused"`` (there is no such schedule), or
    ``"failed"``, ``"crashed"`` or ``"hung"`` while it was compiled.
    """

    state: str
    code: bytes | None = None
    mark: str = ""
    why: str = ""


class Measured(NamedTuple):
    """What became of a candidate: its time as a share of the untuned kernel's and in microseconds, or why not."""

    state: str
    ratio: float | None = None
    us: float | None = None
    why: str = ""


class Timed(NamedTuple):
    """How long a kernel takes by itself, in seconds a call and one number a repeat, or why that is not known."""

    state: str
    seconds: tuple[float, ...] = ()
    why: str = ""


class Measurer:
    """Compiles and measures candidates of one kernel after another.

    Parameters
    ----------
    target : Target
        What to compile for; this machine has to run it.
    threads : int
        Threads of kernels.
    builders : int
        Processes that compile; the first of them measures.
    workers : sequence of Worker, optional
        What compiles, instead of processes of this machine.
    runner : Worker, optional
        What measures, instead of the first that compiles: a :class:`weft.tune.TrackerDevice` is another machine.
    cold_bytes : int
        Weights are read from copies that are as large together, so that caches do not hold them; by default as the
        machine's caches need it.
    """

    def __init__(
        self,
        target: Target,
        threads: int,
        builders: int = 2,
        cold_bytes: int | None = None,
        *,
        workers: Sequence[Worker] = (),
        runner: Worker | None = None,
    ) -> None:
        self.target, self.cold_bytes = target.identity, cold_bytes or target.machine.memory_bound_bytes
        environment = {NUM_THREADS.name: str(threads)}
        self.workers = list(workers) or [Process(_PROGRAM, environment) for _ in range(max(1, builders))]
        self.runner = runner if runner is not None else self.workers[0]
        self._prepared: dict[str, Any] | None = None
        self._ready = False
        self._defaults: dict[str, bytes] = {}
        self.default_us = 0.0

    def __enter__(self) -> Measurer:
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in (*self.workers, self.runner):
            worker.stop()

    def build(
        self, func: tir.PrimFunc, candidates: Sequence[Mapping[str, Any]], known: Collection[str] = ()
    ) -> list[Built]:
        """Schedule a function as each candidate decides and compile it, by all workers at once.

        Parameters
        ----------
        func : PrimFunc
            Not scheduled.
        candidates : sequence of decisions
        known : collection of str
            Fingerprints of scheduled functions that are not worth compiling.
        """
        text = ir.save_json(func.with_attr("global_symbol", _KERNEL))
        request = {"do": "compile", "func": text, "target": self.target, "known": list(known)}
        return self._compile([{**request, "decisions": dict(d)} for d in candidates])

    def compile(self, functions: Sequence[tir.PrimFunc]) -> list[Built]:
        """Compile scheduled functions, by all workers at once."""
        texts = [ir.save_json(func.with_attr("global_symbol", _KERNEL)) for func in functions]
        return self._compile([{"do": "compile", "func": text, "target": self.target} for text in texts])

    def _compile(self, requests: Sequence[Mapping[str, Any]]) -> list[Built]:
        results: dict[int, Built] = {}
        waiting = deque(enumerate(requests))

        def work(worker: Worker) -> None:
            while waiting:
                try:
                    i, request = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                results[i] = _built(worker, request)

        with ThreadPoolExecutor(len(self.workers)) as pool:
            try:
                for working in [pool.submit(work, w) for w in self.workers]:
                    working.result()
            except BaseException:
                waiting.clear()  # the threads end with what they are at
                raise
        self._ready = self._ready and self.runner.is_alive
        return [results[i] for i in range(len(requests))]

    def prepare(self, default: tir.PrimFunc, cases: Sequence[Case]) -> float:
        """Take up a kernel: `default` is the scheduled function that candidates have to beat; returns microseconds.

        Raises
        ------
        WorkerError
            When it cannot be compiled or run.
        """
        mark = ir.fingerprint(default)
        if mark not in self._defaults:
            (built,) = self.compile([default])
            if built.code is None:
                raise WorkerError(built.why)
            self._defaults[mark] = built.code
        code = self._defaults[mark]
        self._prepared = {
            "do": "prepare",
            "code": code,
            "name": _KERNEL,
            "cases": list(cases),
            "cold_bytes": self.cold_bytes,
        }
        self._ready = False
        self._make_ready()
        return self.default_us

    def _make_ready(self) -> None:
        if not self._ready and self._prepared is not None:
            self.default_us = self.runner.ask(self._prepared, _RUN_SECONDS + _START_SECONDS)["us"]
            self._ready = True

    def measure(self, built: Built, rounds: int = 7) -> Measured:
        """Compare a compiled candidate with the kernel that was prepared."""
        if built.code is None:
            return Measured(built.state, why=built.why)
        try:
            self._make_ready()
            seconds = _RUN_SECONDS + 4 * rounds * (self.default_us / 1e6 + 0.002)
            request = {"do": "measure", "code": built.code, "name": _KERNEL, "rounds": rounds}
            reply = self.runner.ask(request, seconds)
        except WorkerError as e:
            self._ready = self._ready and self.runner.is_alive
            return Measured(_STATES.get(type(e), "failed"), why=e.what)
        if "wrong" in reply:
            return Measured("wrong", why=reply["wrong"])
        return Measured("measured", reply["ratio"], reply["us"])

    def time(self, built: Built, case: Case, *, limit_s: float = 10.0, **how: Any) -> Timed:
        """Time a compiled kernel by itself.

        Parameters
        ----------
        built : Built
        case : Case
            Its arguments.
        limit_s : float
            How long it may take, in seconds.
        **how : Any
            ``number`` of calls a repeat, ``repeat``, ``min_repeat_ms``; ``inputs``, arrays in place of random values,
            and ``expected``, what the last of them hold afterwards.
        """
        if built.code is None:
            return Timed(built.state, why=built.why)
        self._ready = False
        request = {"do": "time", "code": built.code, "name": _KERNEL, "case": case, **how}
        try:
            reply = self.runner.ask(request, limit_s + _START_SECONDS * (not self.runner.is_alive))
        except WorkerError as e:
            return Timed(_STATES.get(type(e), "failed"), why=e.what)
        return Timed("wrong", why=reply["wrong"]) if "wrong" in reply else Timed("measured", tuple(reply["seconds"]))


def _built(worker: Worker, request: Mapping[str, Any]) -> Built:
    try:
        reply = worker.ask(request, _COMPILE_SECONDS + _START_SECONDS)
    except WorkerError as e:
        return Built(_STATES.get(type(e), "failed"), why=e.what)
    return Built(reply["state"], reply.get("code"), reply["mark"], reply.get("why", ""))


_STATES: dict[type[WorkerError], str] = {WorkerCrashed: "crashed", WorkerHung: "hung"}
