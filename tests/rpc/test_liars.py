"""Servers and trackers that lie or say nothing: an error of ours in bounded time, and the other side goes on."""

import gc
import json
import socket
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.clock import eventually
from tests.fuzz import budget
from tests.refusals import refuses
from weft import rpc, runtime
from weft.error import RPCError, RPCSessionTimeoutError, WeftError
from weft.rpc import base, client, codec
from weft.rpc.channel import SocketChannel
from weft.rpc.codec import RPCCode, encode, packet
from weft.rpc.failure import remote_error
from weft.rpc.remote import RemoteEndpoint, RemoteModule

ACCEPTED = base.named(base.RPC_CODE_SUCCESS, "server:")
BEGUN = packet(RPCCode.RETURN, encode([None]))
EXTREMES = (0, 1, -1, 7, 4096, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
DTYPES = ("float32", "bfloat16", "int4", "bool", "float32x4", "uint64", "float8_e4m3fn", "handle")


@contextmanager
def listener(talk):
    """Listen, and let `talk` have each connection in turn; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept():
            with suppress(OSError):
                while True:
                    with listening.accept()[0] as sock:
                        talk(sock)

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def says(sock, *answers):
    """Send an answer to each message, then read on and say nothing."""
    with suppress(OSError):
        for answer in answers:
            sock.recv(1 << 16)
            sock.sendall(answer)
        while sock.recv(1 << 16):
            pass


def tracker_says(sock, *answers):
    says(sock, base.number(base.RPC_TRACKER_MAGIC), *answers)


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    for name in ("_WAIT_SECONDS", "_GRACE_SECONDS"):
        monkeypatch.setattr(client, name, 0.2)
    monkeypatch.setattr(base.TrackerConnection._exchange, "__defaults__", (0.2,))
    monkeypatch.setattr(base, "_ANSWER_SECONDS", 0.2)
    for told in ((), (ACCEPTED[:3],), (ACCEPTED[:6],)):
        with listener(lambda sock, told=told: says(sock, *told)) as port:
            refuses(RPCError, "lost before it began", rpc.connect, "127.0.0.1", port)
    for told in ((ACCEPTED,), (ACCEPTED, BEGUN), (ACCEPTED, BEGUN[:9])):
        with listener(lambda sock, told=told: says(sock, *told)) as port:
            ask = lambda port=port: rpc.connect("127.0.0.1", port, session_timeout=0.2).get_function("f")  # noqa: E731
            refuses(RPCSessionTimeoutError, "did not end it", ask)
    with listener(tracker_says) as port:
        refuses(RPCError, "does not answer", rpc.connect_tracker("127.0.0.1", port).summary)


LIES = (5, [], [0], [0, 1], [0, ["a"]], [0, {"server_info": 3}], [0, [1, "x", None]])


@pytest.mark.parametrize("answer", [*map(json.dumps, LIES), "[" * 9999, "nonsense"])
def test_trackers_that_lie(answer):
    data = answer.encode()
    with listener(lambda sock: tracker_says(sock, base.number(len(data)) + data)) as port:
        for ask in (lambda t: t.text_summary(), lambda t: t.request("k", max_retry=1)):
            tracker = rpc.connect_tracker("127.0.0.1", port)
            refuses(RPCError, "", ask, tracker)
            tracker.close()


def test_a_server_outlives_its_tracker():
    """Which answers the question for keys with a number."""
    seen = []

    def talk(sock):
        seen.append(sock)
        tracker_says(sock, *map(base.json_message, (0, 0, 7)))

    with listener(talk) as port:
        server = rpc.Server("127.0.0.1", port=0, silent=True, tracker_addr=("127.0.0.1", port))
        eventually(lambda: len(seen) > 1)
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
    raised = remote_error(f"{kind}: no more")
    assert isinstance(raised, RPCError) and not isinstance(raised, (StopIteration, StopAsyncIteration))


def drawn(rng):
    """Any value of the wire, before it the index of its type that a result has."""
    number, kind = EXTREMES[rng.integers(len(EXTREMES))], int(rng.integers(12))
    device = codec.WireDevice(int(rng.integers(-3, 200)), int(rng.integers(-2, 3)))
    shape = tuple(abs(number) if not rng.integers(4) else int(d) for d in rng.integers(0, 5, rng.integers(6)))
    shape = tuple(min(d, 2**63 - 1) for d in shape)
    dtype = DTYPES[rng.integers(len(DTYPES))]
    if kind == 0:
        return [70, codec.WireTensor(number % 2**64, device, dtype, shape, int(rng.integers(3))), codec.Opaque(5)]
    handles = ((4, codec.Opaque), (68, codec.FunctionHandle), (73, codec.ModuleHandle), (115, codec.ObjectHandle))
    if kind < 5:
        return [handles[kind - 1][0], handles[kind - 1][1](number % 2**64)]
    plain = (None, number, np.nan, "\0\udce9", b"bytes", device, tvm_ffi.dtype(dtype))
    return [1, plain[kind - 5]]


def answer(rng):
    """One packet or two, each of the grammar, to a question that did not ask for it."""
    code, values = int(rng.integers(24)), drawn(rng)
    follows = BEGUN if code in (RPCCode.CALL_FUNC, RPCCode.FREE_HANDLE) else b""
    head = int(rng.integers(3)).to_bytes(8, "little") if code == RPCCode.CALL_FUNC else b""
    if rng.integers(2):
        code, follows, head = RPCCode.RETURN, b"", b""
    return packet(code, head, encode(values)) + follows


def questions(session):
    """What a program asks a session, and does with the answer."""
    device = session.cpu()
    ask = session.get_function
    return (
        lambda: ask("f")(1, 2.0),
        lambda: ask("f")("x", lambda *a: 3),
        lambda: str(ask("f")("x")),
        lambda: tensors(ask("f")("x")),
        lambda: runtime.tensor(np.arange(6.0), device),
        lambda: runtime.empty((3,), "float32", device).numpy(),
        lambda: weft.relax.VirtualMachine(session.load_module("m.so"), device).invoke("main", 1),
        lambda: session.load_module("m.so").time_evaluator("f", device)(1),
        lambda: session.load_module("m.so").entry_func(1),
        lambda: (session.upload(b"abc", "x"), session.download("x"), session.listdir(), session.system_lib()),
        lambda: (device.exist, device.device_name, device.sync(), device.create_raw_stream()),
        lambda: weft.target.Target.from_device(device),
    )


def tensors(found):
    if isinstance(found, runtime.Tensor):
        found.numpy()
        found.copyto(weft.cpu())


def test_servers_that_answer_anything():
    for seed in budget.seeds(0.5):
        rng = np.random.default_rng(seed)
        ours, theirs = socket.socketpair()
        channel = SocketChannel(ours, 1 << 20)
        channel.end_after(0.5)  # as questions to follow answers may wait for ever
        endpoint = RemoteEndpoint(channel, "a liar")
        threading.Thread(target=says, args=(theirs, BEGUN, *(answer(rng) for _ in range(20))), daemon=True).start()
        endpoint.initialize([])
        asked = questions(rpc.RPCSession(RemoteModule(endpoint)))
        for at in rng.permutation(len(asked)):
            try:
                asked[at]()
            except WeftError as e:
                assert str(e), f"seed {seed}"
            except Exception as e:
                raise AssertionError(f"seed {seed}, question {at}") from e
        theirs.close()
        endpoint.close()
        del asked
        gc.collect()
