"""Damaged packets: a server's session answers or ends, and frees what it held; a client raises an error of ours."""

import gc
import socket
import threading
from contextlib import suppress

import numpy as np

import weft
from tests.fuzz import budget
from tests.fuzz.binary import damage
from weft import rpc
from weft.rpc import codec
from weft.rpc.channel import SocketChannel
from weft.rpc.codec import Opaque, RPCCode, WireDevice, WireTensor, encode, packet
from weft.rpc.remote import RemoteEndpoint, RemoteModule
from weft.rpc.service import Limits, Service

CPU = WireDevice(1, 0)
TENSOR = WireTensor(4097, CPU, "float32", (2, 3))
LIMITS = Limits(max_message_bytes=1 << 20, max_memory_bytes=1 << 20)


def conversation() -> list[bytes]:
    """Packets of a client that does a little of everything; handles count from 4096."""
    version = codec.PROTOCOL_VERSION
    place = codec.encode_tensor(TENSOR) + (24).to_bytes(8, "little")
    call = (4096).to_bytes(8, "little")
    return [
        packet(RPCCode.INIT_SERVER, len(version).to_bytes(8, "little"), version, encode([])),
        packet(RPCCode.GET_GLOBAL_FUNC, encode(["testing.echo"])),
        packet(RPCCode.DEV_ALLOC_DATA_WITH_SCOPE, encode([TENSOR._replace(data=0), None])),
        packet(RPCCode.COPY_TO_REMOTE, place, np.arange(6, dtype="float32").tobytes()),
        packet(RPCCode.CALL_FUNC, call, encode([TENSOR])),
        packet(RPCCode.CALL_FUNC, call, encode(["text", 1, 2.5, None, True, b"bytes", CPU])),
        packet(RPCCode.COPY_FROM_REMOTE, place),
        packet(RPCCode.COPY_AMONG_REMOTE, encode([TENSOR, TENSOR, Opaque(0)])),
        packet(RPCCode.DEV_GET_ATTR, encode([CPU, 0])),
        packet(RPCCode.DEV_STREAM_SYNC, encode([CPU, Opaque(0)])),
        packet(RPCCode.FREE_HANDLE, encode([Opaque(4096)])),
        packet(RPCCode.DEV_FREE_DATA, encode([CPU, Opaque(4097)])),
    ]


def damaged(parts: list[bytes], seed: int) -> bytes:
    """The conversation with one packet damaged, its length right or not, packets lost or repeated."""
    rng = np.random.default_rng(seed)
    parts = list(parts)
    at = int(rng.integers(len(parts)))
    if rng.integers(3):
        body = damage(parts[at][8:], np.random.default_rng(seed))
        parts[at] = len(body).to_bytes(8, "little") + body
    else:
        parts[at] = damage(parts[at], np.random.default_rng(seed))
    if not rng.integers(4):
        del parts[int(rng.integers(len(parts)))]
    return b"".join(parts)


def served(data: bytes) -> Service:
    """A session that was sent `data`, and then nothing more."""
    ours, theirs = socket.socketpair()
    service = Service(SocketChannel(theirs), limits=LIMITS)

    def run():
        service.run()
        theirs.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    with suppress(BrokenPipeError, ConnectionResetError):  # it ends at the first packet that makes no sense
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
    ours.settimeout(10)
    with suppress(ConnectionResetError):
        while ours.recv(1 << 16):
            pass
    thread.join(10)
    assert not thread.is_alive(), "the session hangs"
    ours.close()
    return service


def test_the_conversation_is_answered():
    service = served(b"".join(conversation()))
    assert not service.objects


def test_servers():
    parts = conversation()
    for seed in budget.seeds(0.5):
        try:
            service = served(damaged(parts, seed))
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e
        assert not service.objects, f"seed {seed}"


def test_clients():
    good = b"".join(
        [
            packet(RPCCode.RETURN, encode([None])),
            packet(RPCCode.RETURN, encode([Opaque(4096)])),
            packet(RPCCode.RETURN, encode([70, TENSOR, Opaque(4098)])),
            packet(RPCCode.COPY_ACK, np.arange(6, dtype="float32").tobytes()),
            packet(RPCCode.RETURN, encode([2, 5])),
            packet(RPCCode.EXCEPTION, encode(["ValueError: no"])),
        ]
    )
    for seed in budget.seeds(0.5):
        ours, theirs = socket.socketpair()
        theirs.sendall(damage(good, np.random.default_rng(seed)))
        theirs.shutdown(socket.SHUT_WR)
        endpoint = RemoteEndpoint(SocketChannel(ours, 1 << 20), "a damaged server")
        try:
            endpoint.initialize([])
            session = rpc.RPCSession(RemoteModule(endpoint))
            function = session.get_function("f")
            found = function(1)
            if isinstance(found, weft.runtime.Tensor):
                found.numpy()
            function(2)
            function(3)
        except weft.WeftError as e:
            assert str(e), f"seed {seed}"
        finally:
            theirs.close()
            endpoint.close()
            gc.collect()
