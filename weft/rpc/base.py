"""What every connection begins with, and the messages of trackers: TVM's numbers, keys and JSON.

A connection to a server or proxy begins with ``RPC_MAGIC`` and a key behind its length; one to a tracker with
``RPC_TRACKER_MAGIC``, and each message after that is JSON behind its length. Numbers are 32 bits, little-endian.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from weft.error import RPCError, reading

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_TRACKER_MESSAGE_BYTES",
    "RPC_CODE_CHALLENGE",
    "RPC_CODE_DUPLICATE",
    "RPC_CODE_MISMATCH",
    "RPC_CODE_SUCCESS",
    "RPC_MAGIC",
    "RPC_SESS_MASK",
    "RPC_TRACKER_MAGIC",
    "TrackerCode",
    "connect_with_retry",
    "get_addr_family",
    "json_message",
    "listen",
    "number",
    "random_key",
    "recvall",
    "recvjson",
    "sendjson",
    "split_random_key",
]

RPC_MAGIC = 0xFF271
RPC_TRACKER_MAGIC = 0x2F271
RPC_CODE_SUCCESS = RPC_MAGIC
RPC_CODE_DUPLICATE = RPC_MAGIC + 1
RPC_CODE_MISMATCH = RPC_MAGIC + 2
RPC_CODE_CHALLENGE = RPC_MAGIC + 3
"""Weft's own: the server has a secret and asks for proof of it (`weft.rpc.trust`)."""
RPC_SESS_MASK = 128
"""Device types of a session's devices are its number, from one, times this, plus the device's own type."""

_BOUND = {
    "localhost": ("::1", "::", "127.0.0.1", "0.0.0.0"),
    "127.0.0.1": ("127.0.0.1", "0.0.0.0"),
    "::1": ("::1", "::"),
}
"""Of hosts that are this machine: where a server may have bound its port."""
_ANSWER_SECONDS = 10.0  # of a tracker
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4))
MAX_KEY_BYTES = 4096
MAX_TRACKER_MESSAGE_BYTES = 1 << 20

logger = logging.getLogger("RPCServer")


class TrackerCode:
    """What a message to a tracker asks, and its answer."""

    FAIL = -1
    SUCCESS = 0
    PING = 1
    STOP = 2
    PUT = 3
    REQUEST = 4
    UPDATE_INFO = 5
    SUMMARY = 6
    GET_PENDING_MATCHKEYS = 7


def number(value: int) -> bytes:
    """A number as it goes over the wire."""
    return struct.pack("<i", value)


def named(code: int, name: str) -> bytes:
    """A number with a name behind it, which is how a connection to a server begins, and is accepted."""
    text = name.encode()
    return number(code) + number(len(text)) + text


def get_addr_family(addr: tuple[str, int]) -> socket.AddressFamily:
    """Return the family of an address, so that ``"localhost"`` may be either; name ``127.0.0.1`` or ``::1`` for one."""
    return socket.getaddrinfo(addr[0], addr[1], 0, 0, socket.IPPROTO_TCP)[0][0]


def recvall(sock: socket.socket, nbytes: int) -> bytes:
    """Receive exactly `nbytes` bytes; a ConnectionResetError where the other side closes before."""
    parts: list[bytes] = []
    while nbytes:
        part = sock.recv(min(nbytes, 1 << 16))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed by the other side")
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)


def watch_other_side(sock: socket.socket) -> None:
    """Let a connection by TCP be lost where the other side does not answer any more, after about 70 s."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def json_message(data: object) -> bytes:
    """A value as a message to a tracker or from one."""
    text = json.dumps(data).encode()
    return number(len(text)) + text


def sendjson(sock: socket.socket, data: object) -> None:
    """Send a value as JSON."""
    sock.sendall(json_message(data))


def recvjson(sock: socket.socket) -> Any:
    """Receive a value as JSON; an RPCError where what comes is too long, or no JSON."""
    (size,) = struct.unpack("<i", recvall(sock, 4))
    if not 0 < size <= MAX_TRACKER_MESSAGE_BYTES:
        raise RPCError(
            "a message of a tracker has an impossible length",
            found=f"{size} bytes",
            expected=f"1 to {MAX_TRACKER_MESSAGE_BYTES}",
        )
    try:
        return json.loads(recvall(sock, size))
    except (ValueError, RecursionError) as e:
        raise RPCError("a message of a tracker is no JSON", found=str(e)) from e


class TrackerConnection:
    """A connection to a tracker, over a socket that is connected; an RPCError where it is none of a tracker."""

    request_seconds: float | None = None
    """How long a request for a server may take; None for any time."""

    def __init__(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.sock, self._where = sock, f"{address[0]}:{address[1]}"
        watch_other_side(sock)
        magic = number(RPC_TRACKER_MAGIC)
        if self._exchange(magic, lambda: recvall(sock, 4), _ANSWER_SECONDS) != magic:
            sock.close()
            raise RPCError("this is no tracker", where=self._where)

    def _exchange(self, data: bytes, receive: Callable[[], Any], seconds: float | None) -> Any:
        try:
            self.sock.settimeout(seconds)
            self.sock.sendall(data)
            return receive()
        except RPCError:  # behind an answer that cannot be read nothing has a place
            self.sock.close()
            raise
        except OSError as e:
            self.sock.close()
            raise RPCError("the tracker does not answer", where=self._where, found=str(e)) from e

    def ask(self, *message: object) -> Any:
        """Send a message, a code and what goes with it, and return the answer."""
        seconds = self.request_seconds if message[0] == TrackerCode.REQUEST else _ANSWER_SECONDS
        return self._exchange(json_message(message), lambda: recvjson(self.sock), seconds)

    def pending(self) -> set[str]:
        """Ask which of the keys that were offered nobody was given yet."""
        answer = self.ask(TrackerCode.GET_PENDING_MATCHKEYS)
        with reading("the tracker answers with no list of keys", RPCError, where=self._where, found=answer):
            return {str(key) for key in answer}

    def tell(self, *message: object) -> None:
        """Send a message whose answer is that it was understood."""
        if self.ask(*message) != TrackerCode.SUCCESS:
            raise RPCError("the tracker refuses", where=self._where, found=str(message))

    def close(self) -> None:
        """Close it."""
        self.sock.close()


def random_key(prefix: str, delimiter: str = ":", cmap: Collection[str] | None = None) -> str:
    """Return `prefix` with a random number behind it that no key of `cmap` has."""
    while True:
        key = f"{prefix}{delimiter}{random.random()}"
        if not cmap or key not in cmap:
            return key


def split_random_key(key: str, delimiter: str = ":") -> list[str]:
    """Return the two parts of what :func:`random_key` made."""
    return key.rsplit(delimiter, 1)


def connect_with_retry(addr: tuple[str, int], timeout: float = 60, retry_period: float = 5) -> socket.socket:
    """Connect to an address where nobody may listen yet; an RPCError where nobody did in `timeout` seconds, or can.

    Between two tries are `retry_period` seconds.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection(addr)
        except (OSError, OverflowError) as e:
            if not isinstance(e, ConnectionRefusedError) or time.monotonic() > end:
                raise RPCError(f"cannot connect to {addr[0]}:{addr[1]}", found=str(e)) from e
        logger.warning("cannot connect to %s:%d, the next try is in %g s", *addr, retry_period)
        time.sleep(retry_period)


def listen(host: str, port: int, port_end: int, *, reuse: bool = True, backlog: int = 64) -> tuple[socket.socket, int]:
    """Listen at the first free port of ``[port, port_end)``, any where it is 0; an RPCError where none is free."""
    sock = socket.socket(get_addr_family((host, port)), socket.SOCK_STREAM)
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for candidate in range(port, max(port_end, port + 1)):
        try:
            sock.bind((host, candidate))
            sock.listen(backlog)
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                continue
            sock.close()
            raise
        return sock, sock.getsockname()[1]
    sock.close()
    raise RPCError(f"no port of {host} is free", expected=f"one of {port} to {port_end - 1}")


def _name_here(host: str, port: int) -> bytes:
    """The name by which programs of this machine find who has bound an address; it is as far known as loopback is."""
    return f"\0weft-rpc-{host}:{port}".encode()


def listen_here(bound: socket.socket) -> socket.socket | None:
    """Listen for clients of this machine, too, which then need not go through TCP; None where the system cannot.

    Parameters
    ----------
    bound : socket
        What listens at the address that :func:`connect_here` is told.
    """
    if sys.platform != "linux":  # names that are no files
        return None
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(_name_here(*bound.getsockname()[:2]))
        sock.listen()
        return socket.socket(fileno=sock.detach())
    return None


def connect_here(host: str, port: int) -> socket.socket | None:
    """Connect to a server of this machine without TCP, which takes a fifth less time for a short answer.

    None where `host` is not this machine, nobody listens so, or who does belongs to another user than this process or
    root: any user may take any name.
    """
    for address in _BOUND.get(host, ()) if sys.platform == "linux" else ():
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(_name_here(address, port))
            _, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user in (0, os.geteuid()):
                return socket.socket(fileno=sock.detach())
    return None
