"""Servers: who is let in, how much a session may take, and what is left of it when its client is gone."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import numpy as np
import pytest

from tests import clock
from tests.clock import eventually
from tests.refusals import refuses
from tests.rpc import functions
from weft import rpc
from weft.error import InvalidArgument, RPCError, RPCSessionTimeoutError
from weft.rpc import base
from weft.rpc.service import Limits
from weft.runtime import empty, tensor


def connected(server, key="", **options):
    return rpc.connect("127.0.0.1", server.port, key=key, **options)


def made(**options):
    return rpc.Server("127.0.0.1", port=0, silent=True, server_init_callback=functions.register, **options)


def raw(port, *parts):
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.sendall(b"".join(parts))
    return sock


def greeting(key):
    return base.named(base.RPC_MAGIC, f"client:{key}")


def test_a_wrong_key_is_refused(server):
    refuses(RPCError, "does not take this key", connected, server, "another")
    with raw(server.port, greeting("another"), b"\xff" * 100) as sock:
        assert sock.recv(100) == base.number(base.RPC_CODE_MISMATCH)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        base.number(base.RPC_MAGIC) + base.number(-1),
        base.number(base.RPC_MAGIC) + base.number(4097) + b"x" * 4097,
    ],
)
def test_what_is_no_greeting_is_not_answered(server, sent):
    with raw(server.port, sent) as sock:
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert connected(server, "tests").get_function("testing.echo")(1) == 1


def test_who_does_not_greet_in_time_is_let_go():
    server = rpc.Server("127.0.0.1", port=0, silent=True, server_init_callback=functions.impatient)
    with raw(server.port, greeting("")[:9]) as sock:
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        *((struct.pack("<Q", size) + b"1234", b"packet of") for size in (3, 1 << 40, (1 << 64) - 1)),
        (struct.pack("<Qii", 8, 9, 0), b"begins with its constructor"),
    ],
)
def test_impossible_packets_and_early_calls_end_the_session(server, sent, said):
    with raw(server.port, greeting("tests")) as sock:
        base.recvall(sock, 8 + len("server:tests"))
        sock.sendall(sent)
        (n,) = struct.unpack("<Q", base.recvall(sock, 8))
        assert said in base.recvall(sock, n)
        assert sock.recv(1) == b""


def test_functions_of_the_client_are_kept_and_freed(server):
    with connected(server, "tests") as session:
        session.get_function("tests.rpc.keep")(lambda x: x + 1)
        assert session.get_function("tests.rpc.call_kept")(1) == 2
        session.get_function("tests.rpc.forget")()
        assert session.get_function("tests.rpc.twice")(lambda x: x, 3) == 3
        assert len(session._sess.endpoint._callbacks) <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="names of sockets that are no files")
def test_a_server_of_this_machine_is_reached_without_tcp(server):
    for host, family in (("127.0.0.1", socket.AF_UNIX), ("localhost", socket.AF_UNIX), ("127.1", socket.AF_INET)):
        with rpc.connect(host, server.port, key="tests") as session:
            assert session._sess.endpoint.link.socket.family == family
            assert session.get_function("rpc.test.addone")(1) == 2
    refuses(RPCError, "key", connected, server, "other")


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="root alone becomes another user")
def test_who_takes_the_name_of_a_server_is_not_trusted():
    """Any user may take a name; where it is not this one, the port says who is meant."""
    code = (
        "import os, socket, sys; from weft.rpc import base; os.setuid(65534); "
        "s = socket.create_server(('127.0.0.1', 0)); here = base.listen_here(s); "
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipe) as other:
        port = int(other.stdout.readline())
        assert base.connect_here("127.0.0.1", port) is None
        other.stdin.close()
    with socket.create_server(("127.0.0.1", 0)) as own, base.listen_here(own) as here:
        with base.connect_here("127.0.0.1", own.getsockname()[1]) as sock:
            assert sock.getpeername() == here.getsockname()


def test_a_session_times_out(server):
    with pytest.raises(RPCSessionTimeoutError, match="expired"):
        connected(server, "tests", session_timeout=0.3).get_function(time.sleep(0.6) or "rpc.test.addone")
    for at, key, seconds in ((server, "tests", 0.3), (made(timeout=0.3), "", 60)):  # the server's is the most
        refuses(TimeoutError, "", connected(at, key, session_timeout=seconds).get_function("tests.rpc.sleep"), 5)


def test_a_session_that_dies_is_an_error(server):
    session = connected(server, "tests")
    refuses(RPCError, r"closed the connection|was lost", session.get_function("tests.rpc.end"))
    assert connected(server, "tests").get_function("rpc.test.addone")(1) == 2


def test_a_client_that_vanishes_leaves_nothing(server):
    session = connected(server, "tests")
    pid = session.get_function("tests.rpc.pid")()
    session.upload(b"x", "file")
    folder = os.readlink(f"/proc/{pid}/cwd")
    session._sess.endpoint.link.socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder))


def test_a_server_ends_with_its_sessions():
    server = made()
    pid = connected(server).get_function("tests.rpc.pid")()
    server.terminate()
    eventually(lambda: not clock.runs(pid))
    refuses(RPCError, "", connected, server)


def test_a_server_ends_with_the_program_that_made_it():
    code = (
        "import os; from weft import rpc; server = rpc.Server('127.0.0.1', port=0, silent=True); "
        "print(server.proc.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = clock.run([sys.executable, "-c", code])
    eventually(lambda: not clock.runs(int(done.stdout)))


def test_a_session_may_not_take_more_than_it_may():
    server = made(limits=Limits(max_message_bytes=1 << 20, max_memory_bytes=1 << 16))
    session = connected(server)
    kept = empty((1 << 15,), "uint8", session.cpu())
    refuses(MemoryError, "may not allocate", empty, (1 << 16,), "uint8", session.cpu())
    del kept
    empty((1 << 16,), "uint8", session.cpu())

    def time_after_flushing(size):
        return session._sess.time_evaluator("testing.echo", session.cpu(), 1, cache_flush_bytes=size)(1)

    assert time_after_flushing(1 << 16).mean > 0
    refuses(MemoryError, "may not allocate", time_after_flushing, (1 << 16) + 1)
    empty((1 << 16,), "uint8", session.cpu())
    refuses(RPCError, "packet of", session.upload, b"x" * (1 << 21), "large")


def test_many_sessions_at_once_and_no_more():
    server = made(max_sessions=32)
    sessions = [connected(server) for _ in range(32)]
    assert [s.get_function("rpc.test.addone")(i) for i, s in enumerate(sessions)] == list(range(1, 33))
    waiting = socket.create_connection(("127.0.0.1", server.port))
    waiting.sendall(greeting(""))
    waiting.settimeout(0.3)
    refuses(TimeoutError, "", waiting.recv, 4)
    sessions.pop().close()
    waiting.settimeout(60)
    assert base.recvall(waiting, 4) == base.number(base.RPC_CODE_SUCCESS)
    waiting.close()


def test_memory_stays_flat_over_sessions(server):
    def memory():
        pid = server.proc.pid
        return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096, len(os.listdir(f"/proc/{pid}/fd"))

    def use():
        with connected(server, "tests") as session:
            functions.travels(session, 1000)

    for _ in range(10):
        use()
    eventually(lambda: memory()[1] < 16)
    before, files = memory()
    for _ in range(100):
        use()
    for _ in range(3):
        sessions = [connected(server, "tests") for _ in range(32)]
        assert [s.get_function("rpc.test.addone")(i) for i, s in enumerate(sessions)] == list(range(1, 33))
        del sessions
    eventually(lambda: memory()[1] <= files)
    assert memory()[0] - before < 1 << 20


def test_memory_stays_flat_over_calls(server, resident):
    with connected(server, "tests") as session:

        def use():
            make = session.get_function("rpc.test.remote_return_nd")
            session.get_function("testing.echo")(tensor(np.ones(10_000, "float32"), session.cpu()))
            make("get_arr")()

        for _ in range(50):
            use()
        before = resident(session)
        for _ in range(300):
            use()
        assert resident(session) - before < 1 << 20


def test_through_another_server(server):
    first = made(key="first")
    session = connected(
        first, "first", session_constructor_args=["rpc.Connect", "127.0.0.1", server.port, "tests", False]
    )
    functions.travels(session, 100_000)
    assert session.get_function("tests.rpc.twice")(lambda x: 2 * x, 1) == 4
    refuses(ValueError, "abc", session.get_function("rpc.test.except"), "abc")
    refuses(RPCError, "no session constructor", connected, first, "first", session_constructor_args=["rpc.NoSuchThing"])


def test_sessions_that_start_afresh():
    server = made(no_fork=True)
    with connected(server) as session:
        assert session.get_function("rpc.test.addone")(1) == 2


def test_a_secret():
    server = made(secret="of both", key="k")
    assert connected(server, "k", secret=b"of both").get_function("rpc.test.addone")(1) == 2
    refuses(RPCError, "does not accept", connected, server, "k", secret="wrong")
    refuses(RPCError, "asks for a secret", connected, server, "k")


def test_a_client_with_a_secret_does_not_talk_to_servers_without(server):
    refuses(RPCError, "asks for no secret", connected, server, "tests", secret="mine")


def test_a_server_that_ends_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = made()
    session = connected(server)
    session.upload(b"x" * 100, "file")
    assert any(p.name == "file" for p in tmp_path.rglob("*"))
    server.terminate()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split()
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    if shutil.which(command[0]) is None:
        pytest.skip("certificates are made by the openssl command, which is not installed")
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_tls(certificate):
    server = made(tls_certificate=certificate / "cert.pem", tls_key=certificate / "key.pem", secret="s")
    with connected(server, tls=certificate / "cert.pem", secret="s") as session:
        functions.travels(session, 300_000)
        assert session.get_function("rpc.test.addone")(1) == 2
    refuses(RPCError, "", connected, server, tls=True, secret="s")
    refuses(InvalidArgument, "afresh", made, tls_certificate=certificate / "cert.pem", no_fork=True)


def test_what_a_server_cannot_do_is_raised_here(tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    refuses(RPCError, "is free", rpc.Server, "127.0.0.1", port=port, port_end=port + 1, silent=True)
    with pytest.raises(RPCError, match="no library"):
        rpc.Server("127.0.0.1", port=0, silent=True, load_library=str(tmp_path / "absent.so"))
    refuses(RPCError, "cannot connect", rpc.connect, "127.0.0.1", 1)


def test_a_session_that_crashes_is_told(capfd):
    server = made()
    refuses(RPCError, "closed", connected(server).get_function("tests.rpc.crash"))
    said = []
    eventually(lambda: said.append(capfd.readouterr().err) or "a session crashed, by signal 11" in "".join(said))
    assert connected(server).get_function("rpc.test.addone")(1) == 2
