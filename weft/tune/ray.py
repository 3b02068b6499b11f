"""Compiling and measuring in a Ray cluster: workers are actors, each a process of its own on some node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import error, runtime
from weft.runtime.worker import WorkerCrashed, WorkerError, WorkerHung
from weft.tune.worker import Service

_MOST = 64


class RayWorker:
    """An actor that answers the requests of ``weft.tune.worker`` (:class:`weft.tune.measure.Worker`).

    Where it is lost, with its node or by a kernel, another begins wherever the cluster has room.

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

    @property
    def is_alive(self) -> bool:
        """Whether it has what it was told before."""
        return self.actor is not None

    def start(self) -> Any:
        """Begin an actor where there is none."""
        if self.actor is None:
            self.actor = self.ray.remote(num_cpus=self.threads, max_restarts=0)(_Actor).remote(self.threads)
        return self.actor

    def stop(self) -> None:
        """End the actor."""
        actor, self.actor = self.actor, None
        if actor is not None:
            self.ray.kill(actor)

    def ask(self, request: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """Send a request and wait for the reply.

        Raises
        ------
        WorkerError
            When it failed; WorkerCrashed or WorkerHung when that took the actor along.
        """
        try:
            reply = self.ray.get(self.start().answer.remote(dict(request)), timeout=seconds)
        except self.ray.exceptions.GetTimeoutError as e:
            self.stop()
            raise WorkerHung(f"no answer in {seconds:.0f} s") from e
        except self.ray.exceptions.RayActorError as e:
            self.actor = None
            raise WorkerCrashed("the worker ended, or its node") from e
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply


class _Actor(Service):
    """What runs on a node."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        runtime.set_num_threads(threads)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request says; an error is a reply."""
        try:
            return getattr(self, request.pop("do"))(**request)
        except Exception as e:
            return {"error": f"{type(e).__name__}: {e}"}


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
