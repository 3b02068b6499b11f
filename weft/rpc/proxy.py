"""Proxies: servers behind a firewall connect to one, and so do their clients; it passes on what each sends.

A server offers itself as ``server:<key>``, a client asks as ``client:<key>``; who comes first waits. Where the proxy
reports to a tracker, each server has a key of its own there, and a client comes with one of these. Pages of browsers
come over WebSockets, and only as servers: any page may connect, and a client may run code.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from weft.error import InvalidArgument, RPCError
from weft.rpc import base
from weft.rpc.loop import Loop, Peer, Talk, spoken_name, spoken_number
from weft.rpc.process import Served, ServingProcess, configure_logging, standard_input
from weft.rpc.websocket import WebSocket

__all__ = ["Proxy", "serve"]

_TRACKER_SECONDS = 2.0
_UNUSED_SECONDS = 5.0  # as long may a client that was given a server's key take to come
_TRACKER_TIMEOUT = 10.0

logger = logging.getLogger("RPCServer")


class _Waiting:
    """A server or client that waits for its counterpart."""

    def __init__(self, peer: Peer, text: str) -> None:
        self.peer, self.text = peer, text
        self.given_at: float | None = None


class _Proxying:
    """A proxy, in its process."""

    def __init__(
        self,
        listening: socket.socket,
        port: int,
        timeout_client: float,
        timeout_server: float,
        tracker_addr: tuple[str, int] | None,
        web: socket.socket | None = None,
    ) -> None:
        self.loop, self.port = Loop(), port
        self._timeouts = {"client": timeout_client, "server": timeout_server}
        self._waiting: dict[str, dict[str, _Waiting]] = {"client": {}, "server": {}}
        self._tracker_addr = tracker_addr
        self._tracker: base.TrackerConnection | None = None
        self._known: set[str] = set()
        self.loop.accept(listening, self._talk)
        if web is not None:
            self.loop.accept(web, self._talk, WebSocket)
        if tracker_addr is not None:
            self.loop.call_later(0, self._tick)

    def _talk(self, peer: Peer) -> Talk:
        if (yield from spoken_number()) != base.RPC_MAGIC:
            return
        text = yield from spoken_name()
        side, _, rest = text.partition(":")
        key = (rest.split() or [""])[0]
        if side not in self._waiting or (side != "server" and isinstance(peer.sock, WebSocket)):
            return
        peer.established()
        refusal = self._match(side, key, _Waiting(peer, text))
        if refusal is not None:
            peer.write(base.number(refusal))
            return
        if peer.other is None:
            yield 1  # who sends something before the other is there is sent away

    def _match(self, side: str, key: str, came: _Waiting) -> int | None:
        """Bring a server and a client together, or let one wait; the code of a refusal, or None."""
        other = self._waiting["client" if side == "server" else "server"]
        if self._tracker_addr is not None and side == "server":
            key = base.random_key(key, cmap=self._waiting["server"])
            self._keep(side, key, came)
            self._report([key])
            return None
        if key in other:
            self._pair(other.pop(key), came)
            return None
        if self._tracker_addr is not None:
            return base.RPC_CODE_MISMATCH
        if key in self._waiting[side]:
            return base.RPC_CODE_DUPLICATE
        self._keep(side, key, came)
        self.loop.call_later(self._timeouts[side], partial(self._give_up, side, came))
        return None

    def _keep(self, side: str, key: str, came: _Waiting) -> None:
        self._waiting[side][key] = came
        came.peer.on_close = partial(self._forget, side, came)

    def _forget(self, side: str, gone: _Waiting) -> None:
        self._waiting[side] = {k: w for k, w in self._waiting[side].items() if w is not gone}

    def _give_up(self, side: str, came: _Waiting) -> None:
        if came in self._waiting[side].values():
            self._forget(side, came)
            came.peer.write(base.number(base.RPC_CODE_MISMATCH))
            came.peer.finish()

    def _pair(self, first: _Waiting, second: _Waiting) -> None:
        for waiting, counterpart in ((first, second), (second, first)):
            waiting.peer.on_close = lambda: None
            waiting.peer.write(base.named(base.RPC_CODE_SUCCESS, counterpart.text))
        if not (first.peer.closed or second.peer.closed):
            first.peer.forward(second.peer)

    # ---- the tracker -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Connect where there is no connection; else give servers new keys whose keys were given and not used."""
        try:
            if self._tracker is None:
                self._connect()
            else:
                self._renew(self._tracker.pending())
        except (OSError, RPCError) as e:
            self._lost(e)
        self.loop.call_later(_TRACKER_SECONDS, self._tick)

    def _lost(self, error: Exception) -> None:
        logger.warning("no connection to the tracker: %s", error)
        if self._tracker is not None:
            self._tracker.close()
        self._tracker = None
        self._known.clear()

    def _connect(self) -> None:
        assert self._tracker_addr is not None
        sock = socket.create_connection(self._tracker_addr, _TRACKER_TIMEOUT)
        self._tracker = base.TrackerConnection(sock, self._tracker_addr)
        self._put(self._waiting["server"])

    def _renew(self, pending: set[str]) -> None:
        now, stale = time.monotonic(), list[str]()
        for key, waiting in self._waiting["server"].items():
            if key in pending:
                waiting.given_at = None
            elif waiting.given_at is None:
                waiting.given_at = now
            elif now - waiting.given_at > _UNUSED_SECONDS:
                waiting.given_at = None
                stale.append(key)
        servers = self._waiting["server"]
        renewed = [base.random_key(base.split_random_key(k)[0], cmap=servers) for k in stale]
        for old, new in zip(stale, renewed, strict=True):
            servers[new] = servers.pop(old)
        self._put(renewed)

    def _report(self, keys: Iterable[str]) -> None:
        if self._tracker is not None:
            try:
                self._put(keys)
            except (OSError, RPCError) as e:
                self._lost(e)

    def _put(self, keys: Iterable[str]) -> None:
        """Offer servers under their keys at the tracker."""
        assert self._tracker is not None
        before = len(self._known)
        for key in list(keys):
            kind = base.split_random_key(key)[0]
            self._tracker.tell(base.TrackerCode.PUT, kind, (self.port, key), None)
            self._known.add(kind)
        if len(self._known) > before:
            info = {"key": f"server:proxy[{','.join(sorted(self._known))}]", "addr": [None, self.port]}
            self._tracker.ask(base.TrackerCode.UPDATE_INFO, info)


def serve(
    host: str,
    port: int,
    port_end: int,
    timeout_client: float,
    timeout_server: float,
    tracker_addr: tuple[str, int] | None,
    report: Callable[[int], None],
) -> None:
    """Be a proxy in this process, until its parent ends."""
    _serve(host, port, port_end, timeout_client, timeout_server, tracker_addr, 0, report)


def _serve(
    host: str,
    port: int,
    port_end: int,
    timeout_client: float,
    timeout_server: float,
    tracker_addr: tuple[str, int] | None,
    web_port: int,
    report: Callable[[int], None],
) -> None:
    configure_logging("RPCServer", False)
    listening, port = base.listen(host, port, port_end)
    logger.info("RPCProxy: client port bind to %s:%d", host, port)
    web = base.listen(host, web_port, web_port + 1)[0] if web_port else None
    proxying = _Proxying(listening, port, timeout_client, timeout_server, tracker_addr, web)
    proxying.loop.watch(standard_input, lambda: os._exit(0))
    report(port)
    proxying.loop.run()


class Proxy(Served):
    """A proxy, in a process of its own that ends with this object, or with this process.

    Parameters
    ----------
    host, port, port_end : str and int
        It listens at the first free port of ``[port, port_end)``.
    web_port : int
        Where servers in pages of browsers may come, over WebSockets; 0 for nowhere.
    timeout_client, timeout_server : float
        Seconds that either may wait for the other.
    tracker_addr : tuple of str and int, optional
        The tracker that shall know of its servers.
    """

    def __init__(
        self,
        host: str,
        port: int = 9091,
        port_end: int = 9199,
        web_port: int = 0,
        timeout_client: float = 600,
        timeout_server: float = 600,
        tracker_addr: tuple[str, int] | None = None,
        index_page: str | None = None,
        resource_files: Any = None,
    ) -> None:
        if index_page or resource_files:
            raise InvalidArgument("this proxy serves no pages", help="any server of files does, with those of web/")
        self.host = host
        told = [host, port, port_end, timeout_client, timeout_server, tracker_addr, web_port]
        self.proc = ServingProcess("weft.rpc.proxy:_serve", told)
        self.port: int = self.proc.reported()
