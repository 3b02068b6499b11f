"""Packets that nobody meant: a server's session answers or ends; a client raises an error of ours, in bounded time."""

import gc
import socket
import threading
from contextlib import suppress
from random import Random

import numpy as np
import pytest

import weft
from tests.fuzz import budget, server
from tests.fuzz.binary import damage
from weft import rpc, runtime
from weft.rpc import codec
from weft.rpc.channel import SocketChannel
from weft.rpc.codec import Opaque, RPCCode, encode, packet
from weft.rpc.remote import RemoteEndpoint, RemoteModule
from weft.rpc.service import Limits, Service

LIMITS = Limits(max_message_bytes=1 << 20, max_memory_bytes=1 << 24)
NOTHING = packet(RPCCode.RETURN, encode([None]))


@pytest.fixture(scope="module")
def talk():
    return server.conversation(server.small_library())


def served(data: bytes) -> None:
    """Serve a session that is sent `data`, and then nothing more."""
    ours, theirs = socket.socketpair()

    def run():
        Service(SocketChannel(theirs), limits=LIMITS).run()
        theirs.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ours.settimeout(20)
    with suppress(BrokenPipeError, ConnectionResetError):  # it ends at the first packet that makes no sense
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
    server.answers(ours)
    thread.join(10)
    assert not thread.is_alive(), "the session hangs"
    ours.close()


def test_servers(talk):
    for seed in budget.seeds(0.5):
        rng = Random(seed)
        messages = [*(server.altered(talk, rng) for _ in range(20)), *(server.damaged(talk, rng) for _ in range(3))]
        try:
            served(b"".join([*talk.begin, *messages]))
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def answer(rng: Random) -> bytes:
    """A packet of the grammar, or one or two behind it, that is no answer to what was asked; some are damaged."""
    code, value = rng.choice((RPCCode.RETURN, rng.randrange(24))), server.drawn(rng)
    kind = rng.choice((1, 4, 68, 70, 73, 115, -1))
    extent = [Opaque(rng.getrandbits(64))] if isinstance(value, codec.WireTensor) else []
    follows = NOTHING if code in (RPCCode.CALL_FUNC, RPCCode.FREE_HANDLE) else b""
    head = rng.getrandbits(64).to_bytes(8, "little") if code == RPCCode.CALL_FUNC else b""
    data = packet(code, head, encode([kind, value, *extent])) + follows
    return data if rng.randrange(4) else damage(data, np.random.default_rng(rng.getrandbits(32)))


def questions(session):
    """What a program asks a session, and does with the answer."""
    device, ask = session.cpu(), session.get_function

    def fetched(found):
        return found.numpy() if isinstance(found, runtime.Tensor) else str(found)

    return [
        lambda: ask("f")(1, 2.0),
        lambda: ask("f")("x", lambda *a: 3),
        lambda: fetched(ask("f")("x")),
        lambda: runtime.tensor(np.arange(6.0), device),
        lambda: runtime.empty((3,), "float32", device).numpy(),
        lambda: weft.relax.VirtualMachine(session.load_module("m.so"), device).invoke("main", 1),
        lambda: session.load_module("m.so").time_evaluator("f", device)(1),
        lambda: session.load_module("m.so").entry_func(1),
        lambda: (session.upload(b"abc", "x"), session.download("x"), session.listdir(), session.system_lib()),
        lambda: (device.exist, device.device_name, device.sync(), device.create_raw_stream()),
        lambda: weft.target.Target.from_device(device),
    ]


def test_clients():
    for seed in budget.seeds(0.5):
        rng, (ours, theirs) = Random(seed), socket.socketpair()
        theirs.sendall(NOTHING + b"".join(answer(rng) for _ in range(40)))
        theirs.shutdown(socket.SHUT_WR)
        endpoint = RemoteEndpoint(SocketChannel(ours, 1 << 20), "a server that lies")
        endpoint.initialize([])
        asked = questions(rpc.RPCSession(RemoteModule(endpoint)))
        for at in rng.sample(range(len(asked)), len(asked)):
            try:
                asked[at]()
            except weft.WeftError as e:
                assert str(e), f"seed {seed}"
            except Exception as e:
                raise AssertionError(f"seed {seed}, question {at}") from e
        theirs.close()
        endpoint.close()
        del asked
        gc.collect()
