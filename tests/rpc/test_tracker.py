"""Trackers and proxies: servers are found, given out one at a time, and forgotten."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from tests.clock import eventually, run
from tests.refusals import refuses
from tests.rpc import functions
from weft import error, rpc
from weft.rpc import base, loop
from weft.rpc.base import TrackerCode
from weft.rpc.proxy import Proxy
from weft.rpc.tracker import PriorityScheduler, Tracker


@pytest.fixture(scope="module")
def tracker():
    tracker = Tracker("127.0.0.1", port=0, silent=True)
    yield tracker
    tracker.terminate()


@pytest.fixture
def client(tracker):
    client = rpc.connect_tracker("127.0.0.1", tracker.port)
    yield client
    client.close()


def test_who_talks_without_end_leaves_the_others_their_turn():
    """And nobody is read whose answers lie unread."""
    turns, events = [], loop.Loop()

    def talk(peer):
        while (yield 1):
            turns.append(peer)
            peer.write(bytes(1 << 16))

    pairs = [socket.socketpair() for _ in range(2)]
    ends = [loop.Peer(events, ours, "here", talk) for ours, _ in pairs]
    for _, theirs in pairs:
        theirs.sendall(bytes(1000))
    events.call_later(0.5, events.stop)
    events.run()
    assert set(turns[:32]) == set(ends) and turns.count(ends[0]) < 1000
    for end in ends:
        end.close()


def test_keys_are_short(tracker):
    with functions.tracker_link(tracker.port) as sock:
        base.sendjson(sock, [TrackerCode.REQUEST, "k" * 5000, "", 0])
        assert not sock.recv(1)


def offered(tracker, key, **options):
    return rpc.Server("127.0.0.1", port=0, key=key, tracker_addr=("127.0.0.1", tracker.port), silent=True, **options)


def waits_for(client, key, free, pending=0):
    eventually(lambda: client.summary()["queue_info"].get(key) == {"free": free, "pending": pending})


@pytest.mark.parametrize("key", ["device", "127.0.0.1:5555"])
def test_servers_come_and_go(tracker, client, key):
    one, two = offered(tracker, key), offered(tracker, key, custom_addr="elsewhere")
    waits_for(client, key, 2)
    places = [tuple(i["addr"]) for i in client.summary()["server_info"] if i["key"] == f"server:{key}"]
    assert sorted(places) == sorted([("127.0.0.1", one.port), ("elsewhere", two.port)])
    assert f"server:{key}" in client.text_summary()
    one.terminate()
    waits_for(client, key, 1)
    two.terminate()
    waits_for(client, key, 0)


def test_one_session_at_a_time(tracker, client):
    server = offered(tracker, "single")
    waits_for(client, "single", 1)
    session = client.request("single")
    assert session.get_function("rpc.test.addone")(1) == 2
    waits_for(client, "single", 0)
    got = []
    other = rpc.connect_tracker("127.0.0.1", tracker.port)
    waiting = threading.Thread(target=lambda: got.append(other.request("single").get_function("rpc.test.addone")(2)))
    waiting.start()
    waits_for(client, "single", 0, 1)
    session.close()
    eventually(lambda: not waiting.is_alive())
    assert got == [3]
    waits_for(client, "single", 1)
    server.terminate()


def test_functions_run_with_whoever_is_free(tracker, client):
    server = offered(tracker, "runner")
    assert client.request_and_run("runner", lambda s: s.get_function("rpc.test.addone")(1)) == 2
    with pytest.raises(error.RPCError, match="timed out"):
        client.request_and_run(
            "runner", lambda s: time.sleep(0.4) or s.get_function("rpc.test.addone")(1), session_timeout=0.2
        )
    server.terminate()
    server, sessions = offered(tracker, "lost", server_init_callback=functions.register), []

    def lose_one_then_ask(session):
        sessions.append(session)
        return session.get_function("tests.rpc.end" if len(sessions) == 1 else "tests.rpc.pid")()

    assert client.request_and_run("lost", lose_one_then_ask) > 0 and len(sessions) == 2
    server.terminate()


def test_who_asks_with_priority_comes_first():
    scheduler, order = PriorityScheduler("k"), []

    class Offers:
        pending_matchkeys = set()

    for name, priority in (("a", 1), ("b", 2), ("c", 2)):
        scheduler.request("", priority, lambda value, name=name: order.append(name) is None)
    for i in range(3):
        scheduler.put((Offers, "host", i, f"key{i}"))
    assert order == ["b", "c", "a"]
    assert scheduler.summary() == {"free": 0, "pending": 0}


def test_a_client_that_leaves_waits_no_more(tracker, client):
    with functions.tracker_link(tracker.port) as sock:
        base.sendjson(sock, [TrackerCode.REQUEST, "nobody", "", 1])
        waits_for(client, "nobody", 0, 1)
    waits_for(client, "nobody", 0, 0)


@pytest.mark.parametrize(
    "message",
    [
        base.number((1 << 20) + 1),
        base.number(-5),
        base.number(3) + b"[1,",
        base.json_message([99]),
        base.json_message({}),
        base.json_message([3, "k"]),
        base.json_message([5, {"addr": 1}]),
    ],
)
def test_nonsense_ends_the_connection_alone(tracker, client, message):
    with functions.tracker_link(tracker.port) as sock:
        sock.sendall(message)
        assert sock.recv(100) == b""
    assert "queue_info" in client.summary()


@pytest.fixture(params=[False, True], ids=["alone", "tracked"])
def proxied(request, tracker):
    """A server behind a proxy, and how a client comes to it."""
    address = ("127.0.0.1", tracker.port) if request.param else None
    proxy = Proxy("127.0.0.1", port=0, tracker_addr=address)
    server = rpc.Server("127.0.0.1", proxy.port, is_proxy=True, key="hidden", silent=True)
    if request.param:
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        yield lambda **options: client.request("hidden", **options)
    else:
        yield lambda **options: rpc.connect("127.0.0.1", proxy.port, key="hidden", **options)
    server.terminate()
    proxy.terminate()


def test_servers_behind_a_proxy(proxied):
    for _ in range(2):
        with proxied() as session:
            functions.travels(session, 1_000_000)
            assert session.get_function("rpc.test.addone")(1) == 2
    with pytest.raises(error.RPCSessionTimeoutError):
        proxied(session_timeout=0.3).get_function(time.sleep(0.6) or "rpc.test.addone")


def test_nobody_behind_a_proxy():
    proxy = Proxy("127.0.0.1", port=0, timeout_client=0.2)
    refuses(error.RPCError, "does not take this key", rpc.connect, "127.0.0.1", proxy.port, key="nobody")
    refuses(error.RPCError, "cannot connect", rpc.connect_tracker, "no.such.host.invalid", proxy.port)
    proxy.terminate()


def test_programs():
    """A tracker, a proxy that tells it of its servers, and a server behind that, each a command."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        tracked, passed = (s.getsockname()[1] for s in (one, two))
    commands = [
        (tracked, ["rpc-tracker"]),
        (passed, ["rpc-proxy", "--tracker", f"127.0.0.1:{tracked}"]),
        (passed, ["rpc-server", "--through-proxy", "--key", "hidden"]),
    ]
    with ExitStack() as programs:
        for port, words in commands:
            command = [sys.executable, "-m", "weft", *words, "--host", "127.0.0.1", "--port", str(port)]
            program = programs.enter_context(subprocess.Popen([*command, "--port-end", str(port + 1)]))
            programs.callback(program.kill)
            base.connect_with_retry(("127.0.0.1", port), 600, 0.1).close()
        with rpc.connect_tracker("127.0.0.1", tracked).request("hidden") as session:
            assert session.get_function("rpc.test.addone")(1) == 2
        shown = run([sys.executable, "-m", "weft", "query-tracker", "--host", "127.0.0.1", "--port", str(tracked)])
        assert f"Tracker address 127.0.0.1:{tracked}" in shown.stdout, shown.stderr
    done = run([sys.executable, "-m", "weft.exec.rpc_server", "--tracker", "nowhere"])
    assert done.returncode == 1
    assert "host:port" in done.stderr
