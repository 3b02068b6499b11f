"""Servers in pages of browsers: what a proxy takes over WebSockets. `tests/devices/test_web.py` has the page itself."""

import os
import socket
import struct
import threading
from contextlib import suppress

import pytest

from tests.rpc import functions
from weft import rpc
from weft.rpc import base
from weft.rpc.channel import SocketChannel
from weft.rpc.proxy import Proxy
from weft.rpc.service import Service

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def proxy():
    with socket.create_server(("127.0.0.1", 0)) as free:
        web_port = free.getsockname()[1]
    made = Proxy("127.0.0.1", port=0, web_port=web_port)
    made.web_port = web_port
    yield made
    made.terminate()


def opened(proxy, request=UPGRADE):
    sock = socket.create_connection(("127.0.0.1", proxy.web_port), 10)
    for byte in range(0, len(request), 50):
        sock.sendall(request[byte : byte + 50])
    answer = sock.makefile("rb", buffering=0)
    status = answer.readline()
    lines = [status, *iter(answer.readline, b"\r\n")]
    return sock, b"".join(lines)


def frame(data, kind=2):
    size, mask = len(data), os.urandom(4)
    head = struct.pack(">BB", 128 | kind, 128 | size) if size < 126 else struct.pack(">BBH", 128 | kind, 254, size)
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


def greeting(text):
    return base.number(base.RPC_MAGIC) + base.number(len(text)) + text


def pump(read, write):
    while data := read():
        write(data)


def payload(sock):
    """The payload of the next frame of the proxy's, which masks nothing."""
    try:
        kind, size = base.recvall(sock, 2)
        wide = {126: 2, 127: 8}.get(size, 0)
        assert kind == 0x82
        return base.recvall(sock, int.from_bytes(base.recvall(sock, wide), "big") if wide else size)
    except OSError:
        return b""


def test_a_page_serves_through_a_proxy(proxy):
    """Frames of any length, empty ones and pings are one stream of bytes, both ways."""
    sock, answer = opened(proxy)
    assert b"101 Switching" in answer and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer  # the example of RFC 6455
    hello = greeting(b"server:page")
    sock.sendall(frame(hello[:3]) + frame(b"") + frame(b"ping", 9) + frame(hello[3:], 0))
    page, ours = socket.socketpair()
    channel = SocketChannel(page)

    def serve():
        base.recvall(page, 8 + len("client:page"))
        Service(channel).run()

    sizes = iter([1, 2, 125, 126, 300])
    for work in (
        serve,
        lambda: pump(lambda: payload(sock), ours.sendall),
        lambda: pump(lambda: ours.recv(next(sizes, 65535)), lambda d: sock.sendall(frame(d))),
    ):
        threading.Thread(target=work, daemon=True).start()
    with rpc.connect("127.0.0.1", proxy.port, key="page") as session:
        assert session.get_function("rpc.test.addone")(1) == 2
        functions.travels(session, 100_001)
    sock.close()
    ours.close()


@pytest.mark.parametrize(
    "sent",
    [frame(greeting(b"client:page")), b"\x82\x05hello", frame(b"text", 1), frame(b"", 8), frame(b"\0" * 8)],
    ids=["a client", "no mask", "text", "a close", "no greeting"],
)
def test_what_a_page_may_not_send_ends_its_connection(proxy, sent):
    """A page is no client, as any page could be one, and sends masked frames of bytes."""
    sock, _ = opened(proxy)
    sock.sendall(sent)
    assert payload(sock) == b""
    sock.close()


def test_other_requests_are_refused(proxy):
    sock, answer = opened(proxy, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 426")
    sock.close()
    with socket.create_connection(("127.0.0.1", proxy.web_port), 10) as sock, suppress(ConnectionError):
        sock.sendall(b"x" * 100_000)
        assert not sock.recv(10)
