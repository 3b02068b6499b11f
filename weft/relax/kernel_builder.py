"""Kernels compiled on all cores.

Python runs one thread of a process at a time, and most of compiling a kernel is Python. So where many kernels are
missing, processes beside this one take them from the same queue. They compile what needs nothing of this process but
the function and the target; a kernel for which one warns, fails or ends is compiled here, where the caller sees why.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, cast

from weft import compile_key, environment, tir, tune
from weft.ir import DeepPool, IRModule, Node, find, load_json, save_json
from weft.relax.transform import schedule_tir
from weft.runtime.worker import Process, WorkerError
from weft.target import Target, compile_func
from weft.tir.schedule import noting_schedules

_KERNELS_A_PROCESS = 8  # that are worth the 0.7 s in which a process starts
_BINDINGS_A_KERNEL = 3  # about
_SECONDS = 300.0
_PROGRAM = "weft.relax.kernel_builder"


class KernelJob(NamedTuple):
    """A function to be compiled."""

    name: str
    func: tir.PrimFunc
    linkage: str


class CompiledKernel(NamedTuple):
    """Object code, and what the schedule rules decided on the way, as text; empty where none were asked.

    The record stays beside the code in the cache and on the way from another process: making it again would take the
    time of scheduling, which is a good part of compiling.
    """

    code: bytes
    record: str = ""

    def pack(self) -> bytes:
        """Return both as one entry of a cache."""
        record = self.record.encode()
        return len(record).to_bytes(4, "little") + record + self.code

    @classmethod
    def unpack(cls, entry: bytes) -> CompiledKernel:
        """Return what :meth:`pack` put together."""
        end = 4 + int.from_bytes(entry[:4], "little")
        return cls(entry[end:], entry[4:end].decode())


def compile_scheduled(
    func: tir.PrimFunc, name: str, target: Target, linkage: str, records: tune.Tuned
) -> CompiledKernel:
    """Schedule a kernel by rule and compile it; in its library it needs ``target.services`` beside it."""
    with noting_schedules() as noted:
        scheduled = schedule_kernel(func, name, target, records)
    return CompiledKernel(compile_func(scheduled, target, linkage, beside=True), noted[-1].as_json() if noted else "")


def schedule_kernel(func: tir.PrimFunc, name: str, target: Target, records: tune.Tuned) -> tir.PrimFunc:
    """Schedule a kernel under its name in the library."""
    mod = IRModule({name: func.with_attr("global_symbol", name)})
    return cast(tir.PrimFunc, schedule_tir(target=target, tuned=records)(mod)[name])


def compile_kernel_jobs(
    jobs: Sequence[KernelJob],
    here: Callable[[KernelJob], CompiledKernel],
    target: Target,
    records: tune.Tuned,
    done: Callable[[KernelJob, CompiledKernel], None],
    *,
    plain: bool,
) -> None:
    """Compile functions, on threads of this process and in processes beside it.

    Parameters
    ----------
    jobs : sequence of KernelJob
        What to compile.
    here : callable
        Compiles a function in this process.
    target : Target
        What to compile for.
    records : Tuned
        What is decided for kernels.
    done : callable
        Called with each function and what it was compiled to, from any thread.
    plain : bool
        Whether the code depends on nothing but function, target and decisions.
    """
    cores = len(os.sched_getaffinity(0))
    beside = _processes(len(jobs), cores, target) if plain else 0
    queue = deque(sorted(jobs, key=lambda job: -len(find(job.func, Node))))  # the largest first: nobody waits for it

    def work() -> None:
        with _ending(queue):
            while True:
                try:
                    job = queue.popleft()
                except IndexError:
                    return
                done(job, here(job))

    def work_beside() -> None:
        with _ending(queue), _Beside(target, records) as beside:
            while beside.take(queue):
                job, made = beside.give()
                done(job, made if made is not None else here(job))

    with DeepPool(cores) as pool:
        workers = [pool.submit(work_beside) for _ in range(beside)]
        workers += [pool.submit(work) for _ in range(_threads_here(len(jobs), cores, beside))]
        with _ending(queue):
            for w in workers:
                w.result()


@contextmanager
def processes_ahead(mod: IRModule, target: Target) -> Generator[None]:
    """Start the processes beside this one while `mod` is on its way to kernels, of which it may have one a binding.

    Where this is a process of Weft's own they are copies of it. Those that are not needed end with the block.
    """
    bindings = sum(len(b.bindings) for _, f in mod.items() for b in getattr(getattr(f, "body", None), "blocks", ()))
    for _ in range(_processes(bindings // _BINDINGS_A_KERNEL, len(os.sched_getaffinity(0)), target)):
        process = _new_process()
        with suppress(OSError):  # whoever needs it meets the error again
            process.start_copy()
            _ahead.append(process)
    try:
        yield
    finally:
        while _ahead:
            _ahead.pop().stop()


_ahead: list[Process] = []


def _new_process() -> Process:
    return Process(_PROGRAM)


def _threads_here(jobs: int, cores: int, beside: int) -> int:
    return min(jobs, max(1, cores - beside))


@contextmanager
def _ending(queue: deque[KernelJob]) -> Generator[None]:
    """Let nothing be taken any more when something fails."""
    try:
        yield
    except BaseException:
        queue.clear()
        raise


def _processes(jobs: int, cores: int, target: Target) -> int:
    """How many processes to start beside this one; ``WEFT_COMPILE_PROCESSES`` bounds them, this one included."""
    known = target.kind.compile is not None and target.kind.is_own  # to another process
    if compile_key.is_watched() or not compile_key.is_plain() or not known or not sys.executable:
        return 0
    return max(0, min(environment.COMPILE_PROCESSES.read(), cores, 1 + jobs // _KERNELS_A_PROCESS) - 1)


class _Beside:
    """A process that compiles; when it ends or hangs, no other is started in its place.

    It has the next function before it is done with one: this process may be slow to answer, as Python threads are.
    """

    def __init__(self, target: Target, records: tune.Tuned) -> None:
        self.process = _ahead.pop() if _ahead else _new_process()
        self.target, self.records, self.works = target, records, True
        self.taken: deque[KernelJob] = deque()

    def __enter__(self) -> _Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def take(self, queue: deque[KernelJob]) -> bool:
        """Take functions for the process from the queue; False when there is nothing left to wait for."""
        while len(self.taken) < (2 if len(queue) > _KERNELS_A_PROCESS else 1):
            try:
                job = queue.popleft()
            except IndexError:
                break
            self.taken.append(job)
            if self.works:
                self._attempt(lambda job=job: self.process.tell(self._request(job)))
        return bool(self.taken)

    def give(self) -> tuple[KernelJob, CompiledKernel | None]:
        """Wait for the code of the function that was taken first; None where the process has none."""
        reply = self._attempt(lambda: self.process.reply(_SECONDS)) if self.works else None
        return self.taken.popleft(), CompiledKernel(*reply["made"]) if reply is not None else None

    def _request(self, job: KernelJob) -> dict[str, Any]:
        return {
            "do": "compile",
            "name": job.name,
            "func": save_json(job.func),
            "linkage": job.linkage,
            "target": self.target.identity,
            "decisions": dict(self.records.decisions(job.func)),
        }

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except WorkerError:
            self.works = self.process.process is not None
        except OSError:
            self.works = False
        return None


# --- in the process beside --------------------------------------------------------------------------------------------


class _Given(tune.Tuned):
    """Decisions that came with the kernel."""

    def __init__(self, target: Target, decisions: Mapping[str, Any]) -> None:
        super().__init__(None, target)
        self._given = decisions

    def decisions(self, func: tir.PrimFunc) -> Mapping[str, Any]:
        return self._given


class Service:
    """Compiles kernels, when they need nothing but what comes with the request, and nobody is to be warned."""

    def compile(self, name: str, func: str, linkage: str, target: str, decisions: Mapping[str, Any]) -> dict[str, Any]:
        """Schedule and compile a function, as was decided."""
        kind = Target(target)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            made = compile_scheduled(cast(tir.PrimFunc, load_json(func)), name, kind, linkage, _Given(kind, decisions))
            return {"made": tuple(made)}
