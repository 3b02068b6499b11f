"""Trackers: who serves what, and who waits for it; TVM's protocol of JSON messages.

=========================  ========================================================  ===================================
what a client sends        with                                                      the answer
=========================  ========================================================  ===================================
``PING``                                                                             ``SUCCESS``
``PUT``                    key, (port, key of the next session), address or null     ``SUCCESS``
``REQUEST``                key, user, priority                                       ``[SUCCESS, [address, port, key]]``
``UPDATE_INFO``            ``{"key": "server:" + key, "addr": [address, port]}``     ``SUCCESS``
``SUMMARY``                                                                          ``[SUCCESS, {...}]``
``GET_PENDING_MATCHKEYS``                                                            the keys that nobody was given yet
``STOP``                   the tracker's own key                                     ``SUCCESS``
=========================  ========================================================  ===================================
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft.error import RPCError
from weft.rpc import base
from weft.rpc.base import TrackerCode
from weft.rpc.loop import Loop, Peer, Talk
from weft.rpc.process import Served, ServingProcess, configure_logging, standard_input

__all__ = ["PriorityScheduler", "Scheduler", "Tracker", "serve"]

_MAX_WAITING = 4096
_MAX_OFFERS = 1024  # of one connection

logger = logging.getLogger("RPCTracker")


class Scheduler:
    """Brings resources and those who ask for them together."""

    def put(self, value: Any) -> None:
        """Take a resource."""
        raise NotImplementedError

    def request(self, user: str, priority: int, callback: Callable[[Any], bool]) -> None:
        """Ask for one: `callback` gets it, and says whether it could be used."""
        raise NotImplementedError

    def remove(self, value: Any) -> None:
        """Forget a resource."""

    def summary(self) -> dict[str, int]:
        """Return how many resources are free and how many requests wait."""
        raise NotImplementedError


class PriorityScheduler(Scheduler):
    """Serves the highest priority first, and of the same priority who came first.

    Parameters
    ----------
    key : str
        The kind of resources.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._order = itertools.count()
        self._values: list[Any] = []
        self._requests: list[tuple[int, int, Callable[[Any], bool]]] = []

    def _schedule(self) -> None:
        while self._requests and self._values:
            value = self._values.pop(0)
            callback = heapq.heappop(self._requests)[-1]
            if callback(value[1:]):
                value[0].pending_matchkeys.discard(value[-1])
            else:
                self._values.append(value)

    def put(self, value: Any) -> None:
        """Take a resource."""
        self._values.append(value)
        self._schedule()

    def request(self, user: str, priority: int, callback: Callable[[Any], bool]) -> None:
        """Ask for one."""
        if len(self._requests) >= _MAX_WAITING:
            raise RPCError("too many requests wait", expected=f"at most {_MAX_WAITING}")
        heapq.heappush(self._requests, (-priority, next(self._order), callback))
        self._schedule()

    def remove(self, value: Any) -> None:
        """Forget a resource."""
        if value in self._values:
            self._values.remove(value)
            self._schedule()

    def forget(self, callback: Callable[[Any], bool]) -> None:
        """Forget the requests of one callback."""
        self._requests = [r for r in self._requests if r[-1] is not callback]
        heapq.heapify(self._requests)

    def summary(self) -> dict[str, int]:
        """Return how many resources are free and how many requests wait."""
        return {"free": len(self._values), "pending": len(self._requests)}


class _Connection:
    """A server, proxy or client of the tracker."""

    def __init__(self, tracker: _Tracking, peer: Peer) -> None:
        self._tracker, self._peer = tracker, peer
        self.info: dict[str, Any] = {}
        self.pending_matchkeys: set[str] = set()
        self._offers: list[tuple[PriorityScheduler, tuple[Any, ...]]] = []
        self._waiting: list[tuple[PriorityScheduler, Callable[[Any], bool]]] = []
        peer.on_close = self.closed

    def talk(self) -> Talk:
        """Answer messages."""
        if (yield 4) != base.number(base.RPC_TRACKER_MAGIC):
            return
        self._peer.established()
        self._peer.write(base.number(base.RPC_TRACKER_MAGIC))
        while True:
            (size,) = struct.unpack("<i", (yield 4))
            if not 0 < size <= base.MAX_TRACKER_MESSAGE_BYTES:
                logger.warning("a message of %d bytes from %s", size, self._peer.address)
                return
            code, *args = json.loads((yield size))
            self._answers[code](self, *args)

    def _reply(self, value: Any) -> None:
        self._peer.write(base.json_message(value))

    def _ping(self) -> None:
        self._reply(TrackerCode.SUCCESS)

    def _put(self, key: str, place: list[Any], address: str | None = None, *_: Any) -> None:
        port, match_key = place
        if len(self._offers) >= _MAX_OFFERS:
            raise RPCError("one connection offers too much")
        value = (self, address or self._peer.address[0], port, match_key)
        self._offers = [(s, v) for s, v in self._offers if v in s._values]
        scheduler = self._tracker.scheduler(key)
        self._offers.append((scheduler, value))
        self.pending_matchkeys.add(match_key)
        scheduler.put(value)
        self._reply(TrackerCode.SUCCESS)

    def _request(self, key: str, user: str, priority: int, *_: Any) -> None:
        scheduler = self._tracker.scheduler(key)

        def give(value: Any) -> bool:
            if self._peer.closed:
                return False
            self._reply([TrackerCode.SUCCESS, list(value)])
            self._waiting = [w for w in self._waiting if w[1] is not give]
            return not self._peer.closed

        self._waiting.append((scheduler, give))
        scheduler.request(user, int(priority), give)

    def _update(self, info: dict[str, Any]) -> None:
        address = list(info["addr"])
        if address[0] is None:
            address[0] = self._peer.address[0]
        self.info.update({"key": str(info["key"]), "addr": address})
        self._reply(TrackerCode.SUCCESS)

    def _summary(self) -> None:
        self._reply([TrackerCode.SUCCESS, self._tracker.summary()])

    def _pending(self) -> None:
        self._reply(list(self.pending_matchkeys))

    def _stop(self, key: str) -> None:
        if key != self._tracker.stop_key:
            self._reply(TrackerCode.FAIL)
            return
        self._reply(TrackerCode.SUCCESS)
        self._tracker.loop.stop()

    _answers: dict[int, Callable[..., None]] = {
        TrackerCode.PING: _ping,
        TrackerCode.PUT: _put,
        TrackerCode.REQUEST: _request,
        TrackerCode.UPDATE_INFO: _update,
        TrackerCode.SUMMARY: _summary,
        TrackerCode.GET_PENDING_MATCHKEYS: _pending,
        TrackerCode.STOP: _stop,
    }

    def closed(self) -> None:
        """Forget what the connection offered and asked for."""
        self._tracker.connections.discard(self)
        for scheduler, give in self._waiting:
            scheduler.forget(give)
        for scheduler, value in self._offers:
            scheduler.remove(value)


class _Tracking:
    """A tracker, in its process."""

    def __init__(self, listening: socket.socket, stop_key: str) -> None:
        self.loop, self.stop_key = Loop(), stop_key
        self.connections: set[_Connection] = set()
        self._schedulers: dict[str, PriorityScheduler] = {}
        self.loop.accept(listening, self._talk)

    def _talk(self, peer: Peer) -> Talk:
        connection = _Connection(self, peer)
        self.connections.add(connection)
        return connection.talk()

    def scheduler(self, key: str) -> PriorityScheduler:
        """The queue of a key."""
        if len(str(key)) > base.MAX_KEY_BYTES:
            raise RPCError("a key is too long", expected=f"at most {base.MAX_KEY_BYTES} characters")
        if len(self._schedulers) > _MAX_WAITING:
            self._schedulers = {k: s for k, s in self._schedulers.items() if any(s.summary().values())}
        return self._schedulers.setdefault(str(key), PriorityScheduler(str(key)))

    def summary(self) -> dict[str, Any]:
        """What there is, and who serves it."""
        infos = [c.info for c in self.connections if c.info.get("key", "").startswith("server")]
        return {"queue_info": {k: s.summary() for k, s in self._schedulers.items()}, "server_info": infos}


def serve(host: str, port: int, port_end: int, silent: bool, reuse_addr: bool, report: Callable[[Any], None]) -> None:
    """Track in this process, until it is told to stop or its parent ends."""
    configure_logging("RPCTracker", silent)
    configure_logging("RPCServer", silent)
    listening, port = base.listen(host, port, port_end, reuse=reuse_addr)
    logger.info("bind to %s:%d", host, port)
    tracking = _Tracking(listening, base.random_key("tracker"))
    tracking.loop.watch(standard_input, lambda: os._exit(0))
    report((port, tracking.stop_key))
    tracking.loop.run()
    os._exit(0)


class Tracker(Served):
    """A tracker, in a process of its own that ends with this object, or with this process.

    Parameters
    ----------
    host, port, port_end : str and int
        It listens at the first free port of ``[port, port_end)``.
    silent : bool
        Whether it reports errors alone.
    reuse_addr : bool
        Whether a port may be used whose last connections are not quite over.
    timeout : float, optional
        TVM's signature has it; connections have limits of their own.
    """

    def __init__(
        self,
        host: str = "0.0.0.0",
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.host = host
        self.proc = ServingProcess("weft.rpc.tracker:serve", [host, port, port_end, silent, reuse_addr])
        self.port, self.stop_key = self.proc.reported()

    def _stop(self) -> None:
        with suppress(OSError, RPCError), socket.create_connection(("127.0.0.1", self.port), 1) as sock:
            sock.sendall(base.number(base.RPC_TRACKER_MAGIC))
            base.recvall(sock, 4)
            base.sendjson(sock, [TrackerCode.STOP, self.stop_key])
            base.recvjson(sock)

    def terminate(self) -> None:
        """End the tracker."""
        if self.proc is not None:
            if self.proc.is_alive():
                self._stop()
            self.proc.join(0.1)
        super().terminate()
