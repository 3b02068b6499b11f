"""Damaged messages for servers: each is answered or ends its session, and no session crashes or hangs.

``python -m tests.fuzz.server PROGRAM --messages 100000 --seed 7``; the program is a `weft_rpc_server`, of which one
with sanitizers says more (``python -m tools.rpc_server --sanitize``), or ``python``, the server in Python. A message
counts where the server answered it, or ended the session by it. Sessions begin as a client's do: names of functions, a
file, a library, its kernel, tensors; then come messages of that conversation with other values, and at the end some
with fields, lengths or bytes changed.
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import weft
from tests.fuzz.binary import INTERESTING, damage
from weft import te
from weft.rpc import base, codec
from weft.rpc.codec import ModuleHandle, Opaque, RPCCode, WireDevice, WireTensor, encode, packet

CPU = WireDevice(1, 0)
LIMITS = ("--max-message-bytes", str(1 << 20), "--max-memory-bytes", str(1 << 24), "--timeout", "5")
IN_PYTHON = """
import signal, sys
from weft.rpc.server import Limits, Server
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = Server("127.0.0.1", 0, 1, key="fuzz", silent=True, timeout=5, limits=Limits(1 << 20, 1 << 24))
print(f"listening at 127.0.0.1:{server.port}", flush=True)
while True:
    signal.pause()
"""
NAMES = ("upload", "download", "listdir", "remove", "workpath", "load_module", "ImportModule", "ModuleGetFunction")
FUNCTIONS = (
    *(f"tvm.rpc.server.{name}" for name in NAMES),
    *"weft.rpc.module_kind runtime.RPCTimeEvaluator weft.machine_facts weft.executable_functions ffi.Array".split(),
    *"weft.vm_create ffi.ArrayGetItem ffi.Shape ffi.SystemLib vm.builtin.reshape vm.builtin.make_shape".split(),
)
FIRST = 4096
"""The handle of the first thing that a session holds; they count up."""
HUNG_SECONDS = 30.0
BATCH = 400
"""Messages of a session that can be read; then come some that cannot, which end it."""


class Conversation(NamedTuple):
    """How every session begins, and messages to be damaged."""

    begin: list[bytes]
    messages: list[bytes]


def call(handle: int, *values: object) -> bytes:
    return packet(RPCCode.CALL_FUNC, struct.pack("<Q", handle), encode(values))


def conversation(library: bytes) -> Conversation:
    """What a client sends that loads a library and calls its kernel, and does a little of everything else."""
    version = codec.PROTOCOL_VERSION
    function = {name: FIRST + i for i, name in enumerate(FUNCTIONS)}
    upload, load, find = (function[f"tvm.rpc.server.{n}"] for n in ("upload", "load_module", "ModuleGetFunction"))
    module, kernel, data = (FIRST + len(FUNCTIONS) + i for i in range(3))
    tensors = [WireTensor(data + i, CPU, "float32", (16, 4)) for i in range(2)]
    place = codec.encode_tensor(tensors[0]) + (256).to_bytes(8, "little")
    begin = [
        packet(RPCCode.INIT_SERVER, len(version).to_bytes(8, "little"), version, encode([])),
        *(packet(RPCCode.GET_GLOBAL_FUNC, encode([name])) for name in FUNCTIONS),
        call(upload, "lib.so", library),
        call(load, "lib.so"),
        call(find, ModuleHandle(module), "main", 0),
        *(packet(RPCCode.DEV_ALLOC_DATA_WITH_SCOPE, encode([t._replace(data=0), None])) for t in tensors),
    ]
    timed = (ModuleHandle(module), "main", 1, 0, 1, 1, 0, 1, 0, 1, 0, "")
    messages = [
        *begin[1:3],
        begin[-1],
        packet(RPCCode.DEV_ALLOC_DATA, encode([CPU, 256, 64, None])),
        packet(RPCCode.COPY_TO_REMOTE, place, np.arange(64, dtype="float32").tobytes()),
        packet(RPCCode.COPY_FROM_REMOTE, place),
        packet(RPCCode.COPY_AMONG_REMOTE, encode([*tensors, Opaque(0)])),
        packet(RPCCode.DEV_GET_ATTR, encode([CPU, 0])),
        packet(RPCCode.DEV_STREAM_SYNC, encode([CPU, Opaque(0)])),
        packet(RPCCode.DEV_CREATE_STREAM, encode([CPU])),
        packet(RPCCode.FREE_HANDLE, encode([Opaque(FIRST)])),
        packet(RPCCode.DEV_FREE_DATA, encode([CPU, Opaque(data + 1)])),
        *[call(kernel, *tensors)] * 4,
        call(find, ModuleHandle(module), "main", 0),
        call(function["tvm.rpc.server.ImportModule"], ModuleHandle(module), ModuleHandle(module)),
        call(function["runtime.RPCTimeEvaluator"], *timed),
        call(upload, "deep/file", b"content"),
        call(upload, "half.so", library[: len(library) // 2]),
        call(load, "half.so"),
        *(call(function[name], "lib.so") for name in FUNCTIONS[1:5]),
        *(call(handle, 1, 2.5, "text", b"bytes", None, CPU, tensors[0]) for handle in function.values()),
        *(call(handle, ModuleHandle(module)) for handle in function.values()),
        call(function["ffi.Shape"], 1, 2, 3),
    ]
    return Conversation(begin, messages)


def drawn(rng: Random) -> Any:
    """A value that is one, and that nobody may have meant."""
    number = rng.choice((rng.choice(INTERESTING), rng.randrange(FIRST, FIRST + 64)))
    device = WireDevice(rng.choice((1, 1, 1, 2, 4, 129)), rng.choice((0, 0, 0, 1, -1)))
    shape = tuple(rng.choices((0, 1, 2, 4, 16, 17, 1 << 20, 1 << 40, 1 << 62), k=rng.randrange(5)))
    dtype = rng.choice(("float32", "float64", "int8", "uint8", "bool", "float16", "int64", "float32x4", "handle"))
    tensor = WireTensor(abs(number), device, dtype, shape, rng.choice((0, 0, 4, 1 << 40, 1 << 63)))
    name = rng.choice(("main", "lib.so", "half.so", "", "..", "a/../../b", "deep", "x" * 3000, "\0", "global"))
    plain = number, rng.choice((0.0, 1e300, float("nan"))), rng.random() < 0.5, None, name, name.encode()
    return rng.choice((*plain, device, tensor, Opaque(abs(number)), ModuleHandle(abs(number))))


def altered(conversation: Conversation, rng: Random) -> bytes:
    """A message that can be read, with values that others stand for, are lost or come twice; some as they are."""
    chosen = rng.choice(conversation.messages)
    (code,) = struct.unpack_from("<i", chosen, 8)
    if code in (RPCCode.COPY_TO_REMOTE, RPCCode.COPY_FROM_REMOTE) or not rng.randrange(12):
        return chosen
    head = 20 if code == RPCCode.CALL_FUNC else 12
    values = list(codec.decode(memoryview(chosen), head))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(values) + 1)
        if rng.randrange(4):
            values[at : at + 1] = [drawn(rng)]
        else:
            values[at : at + rng.randrange(2)] = values[at : at + 1] * rng.randrange(3)
    handle = chosen[12:head] if rng.randrange(8) else struct.pack("<Q", rng.randrange(FIRST, FIRST + 64))
    return packet(code, handle if head == 20 else b"", encode(values))


def damaged(conversation: Conversation, rng: Random) -> bytes:
    """A message with fields, bytes or its length changed."""
    chosen, kind = rng.choice(conversation.messages), rng.randrange(8)
    if kind == 0:
        return damage(chosen, np.random.default_rng(rng.getrandbits(64)))
    body = bytearray(chosen[8:])
    if kind < 3:
        body = bytearray(damage(bytes(body), np.random.default_rng(rng.getrandbits(64))))
    else:
        for _ in range(rng.randrange(1, 3)):
            size = rng.choice((1, 4, 8))
            at = 4 * rng.randrange(max(1, (min(len(body), 400) - size) // 4 + 1))
            value = rng.choice((rng.randrange(FIRST, FIRST + 48), rng.choice(INTERESTING)))
            body[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return len(body).to_bytes(8, "little") + bytes(body)


def small_library() -> bytes:
    """A kernel whose arguments are checked by the code that was generated for it."""
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lib.so"
        func = te.create_prim_func([x, te.compute((n, 4), lambda i, j: te.exp(x[i, j]), name="y")])
        weft.build(func).export_library(path)
        return path.read_bytes()


def greeted(port: int) -> socket.socket:
    """A connection that the server has accepted."""
    sock = socket.create_connection(("127.0.0.1", port), HUNG_SECONDS)
    sock.sendall(base.named(base.RPC_MAGIC, "client:fuzz"))
    assert base.recvall(sock, 4) == base.number(base.RPC_MAGIC)
    base.recvall(sock, struct.unpack("<i", base.recvall(sock, 4))[0])
    return sock


def answers(sock: socket.socket) -> int:
    """Read what a server sends until it closes; the number of whole packets, all of which make sense."""
    data, known = bytearray(), {RPCCode.RETURN, RPCCode.EXCEPTION, RPCCode.COPY_ACK}
    with suppress(ConnectionResetError):
        while part := sock.recv(1 << 16):
            data += part
    at = count = 0
    while at + 12 <= len(data):
        size, code = struct.unpack_from("<Qi", data, at)
        assert code in known and 4 <= size < 1 << 24, f"the server sent a packet of {size} bytes and code {code}"
        at += 8 + size
        count += at <= len(data)
    return count


def exchanged(port: int, parts: list[bytes]) -> int:
    """Send a session's messages; how many were answered, and the one that ended it."""
    with greeted(port) as sock:
        with suppress(OSError):  # it ends at the first packet that makes no sense
            sock.sendall(b"".join(parts))
            sock.shutdown(socket.SHUT_WR)
        return min(answers(sock) + 1, len(parts))


@contextmanager
def running(program: Path, *options: str) -> Generator[tuple[int, Path]]:
    """A server: its port, and the file with what it complains of."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as said:
        command = [str(program), "--host", "127.0.0.1", "--port", "0", "--key", "fuzz", *LIMITS, *options]
        if program.name == "python":
            command = [sys.executable, "-c", IN_PYTHON]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process:
            try:
                assert process.stdout is not None
                yield int(process.stdout.readline().rsplit(":", 1)[1]), Path(said.name)
            finally:
                process.terminate()
                assert process.wait(30) == 0, "the server itself ended"


def fuzz(program: Path, messages: int, seed: int, seconds: float = float("inf"), jobs: int = 2) -> tuple[int, int]:
    """Send that many messages, or for so long, in `jobs` sessions at once; how many were sent, in how many sessions.

    Raises AssertionError when a session crashed, hung or sent nonsense, with the seed of the session that did.
    """
    talk, until, sent, sessions = conversation(small_library()), time.monotonic() + seconds, 0, 0
    with running(program) as (port, said):
        with greeted(port) as sock:
            sock.sendall(b"".join(talk.begin))
            sock.shutdown(socket.SHUT_WR)
            assert answers(sock) == len(talk.begin), "the conversation itself is not answered"

        def session(number: int) -> int:
            rng = Random(f"{seed} {number}")
            parts = [*talk.begin, *(altered(talk, rng) for _ in range(BATCH)), *(damaged(talk, rng) for _ in range(3))]
            try:
                return max(0, exchanged(port, parts) - len(talk.begin))
            except (AssertionError, OSError) as e:
                raise AssertionError(f"seed {seed}, session {number}: {type(e).__name__}: {e}") from e

        with ThreadPoolExecutor(jobs) as pool:
            while sent < messages and time.monotonic() < until:
                some = range(sessions, sessions + min(4 * jobs, -(-(messages - sent) // BATCH)))
                sent += sum(pool.map(session, some))
                sessions = some.stop
                complaints = said.read_text()
                assert not complaints, f"seed {seed}, sessions {some.start} to {some.stop - 1}: {complaints[:4000]}"
        time.sleep(0.5)  # what ended the last session is told within a fifth of a second
        assert not said.read_text(), f"seed {seed}, one of the last sessions: {said.read_text()[:4000]}"
    return sent, sessions


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="sessions at once")
    options = parser.parse_args()
    start = time.monotonic()
    sent, sessions = fuzz(options.program, options.messages, options.seed, options.seconds, options.jobs)
    print(f"{sent} messages in {sessions} sessions, {time.monotonic() - start:.0f} s: none crashed or hung")
    return 0


if __name__ == "__main__":
    sys.exit(main())
