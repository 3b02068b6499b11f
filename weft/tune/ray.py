"""Compiling and measuring in a Ray cluster: workers are actors on its nodes, each with a process that does the work.

A kernel that crashes or hangs takes that process along and not the actor: the node itself sees it, at once and by its
own clock, where the cluster takes seconds to tell a lost actor from a slow one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import environment, error
from weft.runtime.worker import Process, WorkerCrashed, WorkerError, WorkerHung

_MOST = 64
_CLUSTER_SECONDS = 60.0
"""What the cluster may take beside the work: to begin an actor, to find a lost one, to carry messages."""


class RayWorker:
    """An actor that answers the requests of ``weft.tune.worker`` (:class:`weft.tune.measure.Worker`).

    Where it is lost with its node, another begins wherever the cluster has room.

    Parameters
    ----------
    threads : int
        Threads of kernels, and cores of the node that nobody else is given.

    Raises
    ------
    MissingDependency
        When there is no package ``ray``.
    """

    def __init__(self, threads: int = 1) -> None:
        self.ray, self.threads, self.actor = error.require("ray", extra="ray"), threads, None
        self._told = False

    @property
    def is_alive(self) -> bool:
        """Whether it has what it was told before."""
        return self._told

    def start(self) -> Any:
        """Begin an actor where there is none."""
        if self.actor is None:
            self.actor = self.ray.remote(num_cpus=self.threads, max_restarts=0)(_Actor).remote(self.threads)
        return self.actor

    def stop(self) -> None:
        """End the actor."""
        actor, self.actor, self._told = self.actor, None, False
        if actor is not None:
            self.ray.kill(actor)

    def ask(self, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """Send a request and wait for the reply, which the node waits for `seconds` long.

        Raises
        ------
        WorkerError
            When it failed; WorkerCrashed or WorkerHung when that took the process along, or the node.
        """
        patience = None if seconds is None else seconds + _CLUSTER_SECONDS
        try:
            reply, raised = self.ray.get(self.start().answer.remote(dict(request), seconds), timeout=patience)
        except self.ray.exceptions.GetTimeoutError as e:
            self.stop()
            raise WorkerHung(f"no answer of the cluster in {patience:.0f} s") from e
        except self.ray.exceptions.RayActorError as e:
            self.actor, self._told = None, False
            raise WorkerCrashed("the worker ended, or its node") from e
        self._told = raised not in (WorkerCrashed, WorkerHung)
        if raised is not None:
            raise raised(reply)
        return reply


class _Actor:
    """What runs on a node."""

    def __init__(self, threads: int) -> None:
        self.process = Process("weft.tune.worker", {environment.NUM_THREADS.name: str(threads)})

    def answer(self, request: dict[str, Any], seconds: float | None) -> tuple[Any, type[WorkerError] | None]:
        """Let the process do what a request says; what became of that is part of the reply."""
        try:
            return self.process.ask(request, seconds), None
        except WorkerError as e:
            return e.what, type(e)


def ray_workers(address: str, threads: int, measures: bool = True) -> tuple[list[RayWorker], RayWorker | None]:
    """Connect to a cluster; what compiles there, one a core, and what measures, with `threads` cores of one node.

    Parameters
    ----------
    address : str
        Of the cluster, as ``ray.init`` takes it: ``"HOST:6379"``, ``"auto"``.
    threads : int
        Threads of kernels.
    measures : bool
        Whether something of the cluster measures.
    """
    ray = error.require("ray", extra="ray")
    ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    cores, runner = int(ray.cluster_resources().get("CPU", 1)), None
    if measures:
        cores, runner = cores - threads, RayWorker(threads)
        runner.start()  # before others take cores of every node
    return [RayWorker() for _ in range(max(1, min(_MOST, cores)))], runner
