"""Channels: whole packets over a connected socket, a TLS connection or a pair of pipes.

A packet that fits the buffer is one read; of a larger one the head comes first, so that the elements of a tensor are
read to where the tensor lies.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from weft.error import RPCError, RPCSessionTimeoutError
from weft.rpc.base import watch_other_side
from weft.rpc.codec import malformed

MAX_MESSAGE_BYTES = 8 << 30
_BUFFER_BYTES = 1 << 16
_MAX_HELD_BYTES = 1 << 15
_HEAD_BYTES = 4096  # what precedes the elements in a copy is shorter
_LENGTH = struct.Struct("<Q")


class Packet(NamedTuple):
    """A packet without its length: its first bytes, valid until the next is read, and how many are still to be read."""

    head: memoryview
    rest: int


class Channel(ABC):
    """Sends and receives packets.

    Parameters
    ----------
    max_bytes : int
        Bytes of the longest packet that is read.
    """

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = self._end = 0

    @property
    def idle(self) -> int:
        """The descriptor with which native code may do the next exchange; -1 where it may not."""
        return -1

    def feed(self, data: bytes) -> None:
        """Take what native code has read."""
        self._buffer[: len(data)] = data
        self._start, self._end = 0, len(data)

    @abstractmethod
    def _read(self, view: memoryview) -> int:
        """Read at least one byte into `view`; zero at the end."""

    @abstractmethod
    def send(self, *parts: Any) -> None:
        """Send bytes."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def exchange(self, *parts: Any) -> Packet | None:
        """Send bytes and read the next packet."""
        self.send(*parts)
        return self.packet()

    def packet(self) -> Packet | None:
        """Read the next packet, of a large one the head; None where the other side closed instead.

        Raises
        ------
        RPCError
            When it is longer than it may be, or cut short.
        """
        while True:
            if self._start == self._end:
                self._start = self._end = 0
            if not self._fill(8):
                return None
            (size,) = _LENGTH.unpack_from(self._buffer, self._start)
            self._start += 8
            if size:  # an empty packet says nothing, and keeps a connection alive
                break
        if size > self.max_bytes or size < 4:
            raise malformed(f"a packet of {size} bytes, where 4 to {self.max_bytes} are read")
        head = size if size <= _BUFFER_BYTES else _HEAD_BYTES
        if not self._fill(head):
            raise RPCError("the connection was closed in the middle of a message")
        at = self._start
        self._start += head
        return Packet(self._buffer[at : at + head], size - head)

    def whole(self, packet: Packet) -> memoryview:
        """All of a packet, the rest of it read now."""
        if not packet.rest:
            return packet.head
        head = len(packet.head)
        out = np.empty(head + packet.rest, np.uint8).data
        out[:head] = packet.head
        self.read_rest(out[head:])
        return out

    def read_rest(self, view: memoryview) -> None:
        """Read what is left of a packet, or a part of it, into `view`."""
        size = len(view)
        done = min(self._end - self._start, size)
        view[:done] = self._buffer[self._start : self._start + done]
        self._start += done
        while done < size:
            count = self._read(view[done:])
            if not count:
                raise RPCError("the connection was closed in the middle of a message")
            done += count

    def skip(self, size: int) -> None:
        """Read `size` bytes and drop them."""
        while size:
            part = self._buffer[: min(size, _BUFFER_BYTES)] if self._start == self._end else None
            if part is None:
                step = min(size, self._end - self._start)
                self._start += step
            else:
                step = self._read(part)
                if not step:
                    raise RPCError("the connection was closed in the middle of a message")
            size -= step

    def _fill(self, size: int) -> bool:
        """Have `size` bytes in the buffer; False at the end of the connection before the first."""
        if self._end - self._start >= size:
            return True
        if self._start + size > _BUFFER_BYTES:
            have = self._end - self._start
            self._buffer[:have] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, have
        while self._end - self._start < size:
            count = self._read(self._buffer[self._end :])
            if not count:
                if self._end > self._start:
                    raise RPCError("the connection was closed in the middle of a message")
                return False
            self._end += count
        return True


class SocketChannel(Channel):
    """Packets over a connected TCP socket."""

    def __init__(self, sock: socket.socket, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_bytes)
        self.socket = sock
        sock.settimeout(None)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_other_side(sock)
        self._recv_into = sock.recv_into
        self._timer: threading.Timer | None = None
        self._overdue = False
        self._descriptor = -1 if isinstance(sock, ssl.SSLSocket) else sock.fileno()
        self._held = bytearray()  # answers that go out together, as more is asked already

    def _read(self, view: memoryview) -> int:
        self.send()
        count = self._recv_into(view)
        if not count and self._overdue:
            raise RPCSessionTimeoutError("the session is over, but the server did not end it")
        return count

    def send(self, *parts: Any) -> None:
        """Send bytes; large ones as they lie."""
        if self._held:
            held, self._held = self._held, bytearray()
            self.socket.sendall(held)
        for part in parts:
            self.socket.sendall(part)

    @property
    def idle(self) -> int:
        """The descriptor of a plain socket, with nothing half read or unsent."""
        return self._descriptor if self._start == self._end and not self._held else -1

    def close(self) -> None:
        """Close the connection, also for processes that share it."""
        self._descriptor = -1
        if self._timer is not None:
            self._timer.cancel()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def end_after(self, seconds: float) -> None:
        """Let nobody wait for the other side any longer than that, whatever it sends meanwhile."""

        def expire() -> None:
            self._overdue = True
            with suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # its TLS is of the thread that waits

        self._timer = threading.Timer(seconds, expire)
        self._timer.daemon = True
        self._timer.start()

    def exchange(self, *parts: Any) -> Packet | None:
        """Send bytes and read the next packet; an answer waits where more is asked already."""
        more = self._start != self._end or self._held
        if more and len(parts) == 1 and len(self._held) + len(parts[0]) <= _MAX_HELD_BYTES:
            self._held += parts[0]
            return self.packet()
        return super().exchange(*parts)


class PipeChannel(Channel):
    """Packets over a pair of pipes, to a process that serves them."""

    def __init__(self, reads: int, writes: int, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_bytes)
        self._reads, self._writes = reads, writes

    def _read(self, view: memoryview) -> int:
        return os.readv(self._reads, [view])

    def send(self, *parts: Any) -> None:
        """Send bytes."""
        for part in parts:
            view = memoryview(part).cast("B")
            while len(view):
                view = view[os.write(self._writes, view) :]

    def close(self) -> None:
        """Close both pipes."""
        for end in (self._reads, self._writes):
            with suppress(OSError):
                os.close(end)
        self._reads = self._writes = -1
