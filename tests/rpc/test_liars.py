"""Servers and trackers that lie or say nothing: an error of ours in bounded time, and the other side goes on."""

import json
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.clock import eventually
from tests.refusals import refuses
from weft import rpc
from weft.error import RPCError, RPCSessionTimeoutError
from weft.rpc import base, client
from weft.rpc.codec import RPCCode, encode, packet
from weft.rpc.failure import remote_error

ACCEPTED = base.named(base.RPC_CODE_SUCCESS, "server:")
BEGUN = packet(RPCCode.RETURN, encode([None]))
TRACKER = base.number(base.RPC_TRACKER_MAGIC)
LIES = (5, [], [0], [0, 1], [0, ["a"]], [0, {"server_info": 3}], [0, [1, "x", None]])


@contextmanager
def listener(*answers):
    """Give these answers to the messages of each connection in turn, then read on; yields the port, and who came."""
    came = []

    def accept():
        with suppress(OSError):
            while True:
                with listening.accept()[0] as sock, suppress(ConnectionError):
                    came.append(sock)
                    for answer in answers:
                        sock.recv(1 << 16)
                        sock.sendall(answer)
                    while sock.recv(1 << 16):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], came
        listening.shutdown(socket.SHUT_RDWR)


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    for name in ("_WAIT_SECONDS", "_GRACE_SECONDS"):
        monkeypatch.setattr(client, name, 0.2)
    monkeypatch.setattr(base, "_ANSWER_SECONDS", 0.2)
    for told in ((), (ACCEPTED[:3],), (ACCEPTED[:6],)):
        with listener(*told) as (port, _):
            refuses(RPCError, "lost before it began", rpc.connect, "127.0.0.1", port)
    for told in ((ACCEPTED,), (ACCEPTED, BEGUN), (ACCEPTED, BEGUN[:9])):
        with listener(*told) as (port, _), pytest.raises(RPCSessionTimeoutError, match="did not end it"):
            rpc.connect("127.0.0.1", port, session_timeout=0.2).get_function("f")
    with listener(TRACKER) as (port, _):
        refuses(RPCError, "does not answer", rpc.connect_tracker("127.0.0.1", port).summary)


@pytest.mark.parametrize("answer", [*map(json.dumps, LIES), "[" * 9999, "nonsense"])
def test_trackers_that_lie(answer):
    with listener(TRACKER, base.number(len(answer)) + answer.encode()) as (port, _):
        for ask in (lambda t: t.text_summary(), lambda t: t.request("k", max_retry=1)):
            tracker = rpc.connect_tracker("127.0.0.1", port)
            refuses(RPCError, "", ask, tracker)
            tracker.close()


def test_a_server_outlives_its_tracker():
    """Which answers the question for keys with a number."""
    with listener(TRACKER, *map(base.json_message, (0, 0, 7))) as (port, came):
        server = rpc.Server("127.0.0.1", port=0, silent=True, tracker_addr=("127.0.0.1", port))
        eventually(lambda: len(came) > 1)
        assert server.proc.is_alive()
        server.terminate()


def test_a_server_without_room_for_a_session_goes_on(tmp_path):
    server = rpc.Server("127.0.0.1", port=0, silent=True)
    hidden = tmp_path / "hidden"
    Path(server._folder.name).rename(hidden)
    for _ in range(rpc.server.MAX_SESSIONS + 1):
        refuses(RPCError, "", rpc.connect, "127.0.0.1", server.port)
    hidden.rename(server._folder.name)
    assert rpc.connect("127.0.0.1", server.port).get_function("rpc.test.addone")(1) == 2
    server.terminate()


@pytest.mark.parametrize("kind", ["StopIteration", "StopAsyncIteration", "KeyboardInterrupt", "SystemExit"])
def test_an_error_of_another_machine_ends_nothing_here(kind):
    assert type(remote_error(f"{kind}: no more")) is RPCError
