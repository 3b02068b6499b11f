"""WebSockets of browsers (RFC 6455) as sockets: a stream of bytes in binary frames, under the event loop.

Nothing waits inside: payload is read as it is asked for, and a frame that is sent is as long as what was there when it
began. Pings, which no browser sends, are dropped.
"""

import base64
import hashlib
import socket
import ssl
from typing import Any

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MAX_REQUEST_BYTES = 8192


class WebSocket:
    """A connection of a browser; :meth:`do_handshake` comes first.

    Parameters
    ----------
    sock : socket
        Connected, and not blocking.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._request, self._head = bytearray(), bytearray()
        self._kind = self._left = 0  # of the frame that is read: its opcode, and bytes that are still to come
        self._mask = b""
        self._out, self._owed = b"", 0  # of the frame that is sent: its head, and bytes that it still lacks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def do_handshake(self) -> None:
        """Go on with the request that makes a connection a WebSocket."""
        while not self._request.endswith(b"\r\n\r\n"):
            try:
                part = self._sock.recv(4096)
            except BlockingIOError:
                raise ssl.SSLWantReadError from None
            self._request += part
            if not part or len(self._request) > _MAX_REQUEST_BYTES:
                raise ConnectionError("the request of a browser does not end")
        lines = [line.partition(b":") for line in bytes(self._request).split(b"\r\n")[1:]]
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        key = headers.get(b"sec-websocket-key")
        if not self._request.startswith(b"GET ") or headers.get(b"upgrade", b"").lower() != b"websocket" or not key:
            self._sock.send(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionError("this is no request for a WebSocket")
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        self._sock.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def recv(self, size: int) -> bytes:
        """Receive payload; nothing at the end."""
        while self._left or self._next_frame():
            data = self._sock.recv(min(size, self._left)) if self._left else b""
            if not data and self._left:
                break
            self._left -= len(data)
            mask = (self._mask * (len(data) // 4 + 1))[: len(data)]
            self._mask = self._mask[len(data) % 4 :] + self._mask[: len(data) % 4]
            if data and self._kind < 8:
                return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")
        return b""

    def _next_frame(self) -> bool:
        """Read the head of the next frame; False at the end."""
        need = 2
        while len(self._head) < need:
            part = self._sock.recv(need - len(self._head))
            if not part:
                return False
            self._head += part
            if len(self._head) >= 2:
                need = 6 + {126: 2, 127: 8}.get(self._head[1] & 127, 0)
        head, self._head = self._head, bytearray()
        self._kind, self._mask = head[0] & 15, bytes(head[-4:])
        if not head[1] & 128 or self._kind not in (0, 2, 8, 9, 10):
            raise ConnectionError("a browser sends masked frames of bytes")
        self._left = int.from_bytes(head[2:-4], "big") if head[1] & 127 > 125 else head[1] & 127
        return self._kind != 8

    def send(self, data: Any) -> int:
        """Send bytes as payload; how many of them went."""
        if not self._owed:
            size = len(data)
            wide = 0 if size < 126 else 2 if size < 1 << 16 else 8
            short = bytes((0x82, {0: size, 2: 126, 8: 127}[wide]))
            self._out, self._owed = short + (size.to_bytes(wide, "big") if wide else b""), size
        if self._out:
            self._out = self._out[self._sock.send(self._out) :]
            if self._out:
                raise BlockingIOError
        sent = self._sock.send(data[: self._owed])
        self._owed -= sent
        return sent
