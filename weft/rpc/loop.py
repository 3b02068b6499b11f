"""An event loop for servers, trackers and proxies: one thread, and a generator for each connection.

The generator yields how many bytes it waits for and gets them; it answers with `Peer.write`. When it returns, the
connection is closed once all is written, unless it was passed on.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from weft.error import RPCError, WeftError
from weft.rpc.base import MAX_KEY_BYTES

HANDSHAKE_SECONDS = 10.0
_MAX_PEERS = 1024
_PIECE = 1 << 18
_HIGH_WATER = 1 << 22
_MAX_TURN = 16  # messages, or pieces passed on, before others have their turn

Talk = Generator[int, bytes, None]
logger = logging.getLogger("RPCServer")


def spoken_number() -> Generator[int, bytes, int]:
    """Read a number."""
    return struct.unpack("<i", (yield 4))[0]


def spoken_name() -> Generator[int, bytes, str]:
    """Read a name behind its length."""
    size = yield from spoken_number()
    if not 0 <= size <= MAX_KEY_BYTES:
        raise RPCError("a key has an impossible length", expected=f"0 to {MAX_KEY_BYTES}", found=str(size))
    return (yield size).decode("utf-8", "replace")


class Loop:
    """Waits for connections, bytes and times, and calls whoever wanted to know."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._running = False
        self.peers: set[Peer] = set()

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function in some seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), function))

    def watch(self, file: Any, function: Callable[[], None]) -> None:
        """Call a function whenever there is something to read."""
        self._selector.register(file, selectors.EVENT_READ, lambda _: function())

    def ignore(self, file: Any) -> None:
        """Do not watch a file any more."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def accept(
        self, listening: socket.socket, talk: Callable[[Peer], Talk], wrap: Callable[[Any], Any] | None = None
    ) -> None:
        """Talk with whoever connects; where their bytes are not what they say, over the socket that `wrap` makes."""
        listening.setblocking(False)

        def connected() -> None:
            try:
                sock, address = listening.accept()
            except OSError:
                return
            if len(self.peers) >= _MAX_PEERS:
                sock.close()
                return
            if wrap is not None:
                sock.setblocking(False)
                sock = wrap(sock)
            Peer(self, sock, address or "this machine", talk)

        self.watch(listening, connected)

    def run(self) -> None:
        """Go on until :meth:`stop`."""
        self._running = True
        while self._running:
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, events in self._selector.select(wait):
                if self._selector.get_map().get(key.fd) is key:  # an earlier event may have closed it
                    key.data(events)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def stop(self) -> None:
        """End :meth:`run`."""
        self._running = False

    def abandon(self) -> None:
        """Close everything without a word to anybody: in a process that was forked from this one."""
        for key in list(self._selector.get_map().values()):
            file: Any = key.fileobj
            with suppress(OSError):
                file.close() if hasattr(file, "close") else None
        for peer in self.peers:
            with suppress(OSError):
                socket.close(peer.sock.detach())
        self._selector.close()

    def register(self, peer: Peer, events: int) -> None:
        """Watch a connection for `events`, for none where that is 0."""
        known = peer.sock.fileno() in self._selector.get_map()
        if not events:
            self.ignore(peer.sock)
        elif known:
            self._selector.modify(peer.sock, events, peer.ready)
        else:
            self._selector.register(peer.sock, events, peer.ready)


class Peer:
    """A connection.

    Parameters
    ----------
    loop : Loop
        Its loop.
    sock : socket
        Connected.
    address : tuple
        Where it comes from.
    talk : callable
        Makes the generator.
    """

    def __init__(self, loop: Loop, sock: socket.socket, address: Any, talk: Callable[[Peer], Talk]) -> None:
        self.loop, self.sock, self.address = loop, sock, address
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in, self._out = bytearray(), bytearray()
        self._handshaking = hasattr(sock, "do_handshake")
        self._closing = self.closed = self._ended = False
        self.other: Peer | None = None
        self.on_close: Callable[[], None] = lambda: None
        loop.peers.add(self)
        self._talk = talk(self)
        self._events = 0
        self._wanted = next(self._talk)
        self._watch()
        self._established = False
        loop.call_later(HANDSHAKE_SECONDS, self._expire)

    def established(self) -> None:
        """Let the other side take its time from now on."""
        self._established = True

    def _expire(self) -> None:
        if not (self._established or self.closed):
            self.close()

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes, now or as soon as the other side takes them."""
        if self.closed:
            return
        self._out += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                sent = self.sock.send(memoryview(self._out)[:_PIECE])
                del self._out[:sent]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.close()
            return
        if self._closing and not self._out:
            self.close()
            return
        self._watch()

    def _watch(self) -> None:
        if self.closed:
            return
        full = len((self.other or self)._out) > _HIGH_WATER
        events = 0 if full or self._ended or self._closing else selectors.EVENT_READ
        if self._out or self._handshaking:
            events |= selectors.EVENT_WRITE
        if events != self._events:
            self._events = events
            self.loop.register(self, events)

    def ready(self, events: int) -> None:
        """Go on, since something can be read or written."""
        if self._handshaking and not self._handshake():
            return
        if events & selectors.EVENT_WRITE:
            self._flush()
            if self.other is not None and not self.other.closed:
                self.other._watch()
        if not self.closed and events & selectors.EVENT_READ:
            try:
                self._read()
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                self.close()

    def _handshake(self) -> bool:
        """Go on with TLS, or with what makes a WebSocket; whether it is done."""
        sock: Any = self.sock
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._events = selectors.EVENT_READ
            self.loop.register(self, self._events)
            return False
        except ssl.SSLWantWriteError:
            return False
        except OSError as e:
            logger.warning("no handshake with %s: %s", self.address, e)
            self.close()
            return False
        self._handshaking = False
        self._watch()
        return True

    def _read(self) -> None:
        """Read what the generator waits for, and no more; forward everything where there is another connection."""
        turns = _MAX_TURN
        while not (self.closed or self._closing) and self._events & selectors.EVENT_READ:
            if self.other is not None:
                data = self.sock.recv(_PIECE)
                if not data:
                    self._end()
                    return
                self.other.write(data)
                self._watch()
            else:
                data = self.sock.recv(self._wanted - len(self._in)) if self._wanted > len(self._in) else b""
                if not data and self._wanted:
                    self.close()
                    return
                self._in += data
                if len(self._in) == self._wanted and not self._advance():
                    return
            turns -= 1
            if turns <= 0 and (self._wanted or self.other):
                return

    def _advance(self) -> bool:
        """Give the generator its bytes; whether it waits for more."""
        data, self._in = bytes(self._in), bytearray()
        try:
            self._wanted = self._talk.send(data)
            return True
        except StopIteration:
            if self.other is None and not self.closed:
                self.finish()
            return self.other is not None
        except Exception as e:
            ours = not isinstance(e, (WeftError, ValueError))
            logger.warning("what %s sends makes no sense: %s", self.address, e, exc_info=ours)
            self.close()
            return False

    def _end(self) -> None:
        """The other side has sent all; tell its counterpart, and close both when that has, too."""
        self._ended = True
        assert self.other is not None
        if self.other._ended:
            self.close()
            return
        self._watch()
        self.other._closing_soon()

    def _closing_soon(self) -> None:
        """Say that no more comes; what the other side still has to say goes nowhere, so its time is short."""
        if self._out:
            self.loop.call_later(0.05, self._closing_soon)
            return
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.loop.call_later(HANDSHAKE_SECONDS, self.close)

    def finish(self) -> None:
        """Close when all is written."""
        self._closing = True
        self._flush()

    def forward(self, other: Peer) -> None:
        """Let everything that comes go to another connection, and what comes there, here."""
        self.other, other.other = other, self
        for peer in (self, other):
            peer.established()
            peer._watch()

    def take(self) -> socket.socket:
        """Take the socket out of the loop, as it is."""
        sock = self.sock
        self.loop.ignore(sock)
        self.loop.peers.discard(self)
        self.closed = True
        sock.settimeout(HANDSHAKE_SECONDS)
        if self._out:
            sock.sendall(bytes(self._out))
        sock.settimeout(None)
        return sock

    def close(self) -> None:
        """Close the connection."""
        if self.closed:
            return
        self.closed = True
        self.loop.ignore(self.sock)
        self.loop.peers.discard(self)
        with suppress(OSError):
            self.sock.close()
        with suppress(ValueError):  # the generator itself closes
            self._talk.close()
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            other.finish()
        self.on_close()
