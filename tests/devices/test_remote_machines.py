"""Programs compiled here that run on other processors: through `weft_rpc_server`, under qemu where it is another's.

`make rpc-server` builds the servers (with the ziglang package), `make devices` installs the emulators.
"""

import shutil
import socket
import struct
import subprocess
import time
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import weft
from tests import clock
from tests.clock import eventually
from tests.devices import missing
from tests.fuzz.server import fuzz, running
from tests.refusals import refuses
from tests.relax.test_control_flow import HEAD, SUM
from tests.rpc.functions import travels
from weft import relax, rpc, script, te
from weft.error import ExecutableError, InvalidArgument, RPCError
from weft.runtime import empty, tensor
from weft.script import tir as T

ROOT = Path(__file__).resolve().parent.parent.parent
ALWAYS = ("x86_64", "aarch64")  # others take minutes to build, and no other path of the compiler
EMULATORS = {"x86_64": None, "aarch64": "qemu-aarch64", "armv7": "qemu-arm", "riscv64": "qemu-riscv64"}


class Running:
    """A server that this test started."""

    def __init__(self, name, *options):
        self.program = program = ROOT / "build" / "rpc-server" / name / "weft_rpc_server"
        if not program.exists():
            said = f"there is no server for {name}: make test-devices TARGET={name} builds it and tests on it"
            missing(said) if name in ALWAYS else pytest.skip(said)
        if name != "x86_64" and find_spec("ziglang") is None:
            missing("the ziglang package, which links for other processors")
        emulator = EMULATORS[name]
        if emulator is not None and shutil.which(emulator) is None:
            missing(f"{emulator} is missing: apt-get install qemu-user")
        command = [*([emulator] if emulator else []), str(program), *"--host 127.0.0.1 --port 0 --key tests".split()]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def connect(self, **options):
        return rpc.connect("127.0.0.1", self.port, key="tests", **options)

    def end(self):
        self.process.terminate()
        eventually(lambda: self.process.poll() is not None)
        assert self.process.returncode == 0
        self.process.stdout.close()


@pytest.fixture
def server():
    running = Running("x86_64")
    yield running
    running.end()


def library(path, target="llvm"):
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    func = te.create_prim_func([a, te.compute((n,), lambda i: te.exp(a[i]), name="b")])
    return Path(weft.build(func, target).export_library(path))


def test_a_kernel_is_timed_where_it_lies(server, tmp_path):
    with server.connect() as remote:
        remote.upload(library(tmp_path / "lib.so"))
        kernel = remote.load_module("lib.so")
        x = np.linspace(-1, 1, 1001, dtype=np.float32)
        there, out = tensor(x, remote.cpu()), empty((1001,), "float32", remote.cpu())
        kernel["main"](there, out)
        np.testing.assert_allclose(out.numpy(), np.exp(x), rtol=1e-6)
        assert kernel.time_evaluator("main", remote.cpu(), number=3, repeat=2)(there, out).mean > 0
        flushed = {"cache_flush_bytes": 1 << 16, "f_preproc": "ffi.Array"}
        assert len(kernel.time_evaluator("main", remote.cpu(), 1, 3, **flushed)(there, out).results) == 3
        with pytest.raises(InvalidArgument, match="to call before"):
            kernel.time_evaluator("main", remote.cpu(), f_preproc="none")(there, out)
        with pytest.raises(MemoryError, match="may not allocate"):
            kernel.time_evaluator("main", remote.cpu(), cache_flush_bytes=1 << 60)(there, out)
        refuses(ValueError, "float32", kernel["main"], there, empty((1001,), "float64", remote.cpu()))


def test_clients_of_this_machine_need_no_tcp(server):
    for host, family in (("127.0.0.1", socket.AF_UNIX), ("127.1", socket.AF_INET)):
        with rpc.connect(host, server.port, key="tests") as remote:
            assert remote._sess.endpoint.link.socket.family == family
            assert remote.listdir() == ""


def test_a_session_over_pipes(server, tmp_path):
    with rpc.PopenSession(server.program) as remote:
        remote.upload(library(tmp_path / "lib.so"))
        x, out = tensor(np.zeros(7, "float32"), remote.cpu()), empty((7,), "float32", remote.cpu())
        remote.load_module("lib.so")["main"](x, out)
        np.testing.assert_array_equal(out.numpy(), np.ones(7))


def test_calls_nest_as_deep_as_the_servers_stack_holds(server, tmp_path):
    relax.build(script.from_source(HEAD + SUM), "llvm").export_library(tmp_path / "sum.so")
    with server.connect() as remote:
        remote.upload(tmp_path / "sum.so")
        total = relax.VirtualMachine(remote.load_module("sum.so"), remote.cpu())["main"]
        for deep in (5000, 1):
            assert total(tensor(np.array(deep), remote.cpu())).numpy() == deep * (deep + 1) // 2
            refuses(RecursionError, "fill this thread's stack", total, tensor(np.array(10**6), remote.cpu()))


def test_files_lie_in_the_folder_of_the_session(server, tmp_path):
    with server.connect() as remote:
        remote.upload(b"content", "deep/file.bin")
        assert (remote.listdir(), remote.listdir("deep")) == ("deep", "file.bin")
        assert remote.download("deep/file.bin") == b"content"
        folder = Path(remote.get_function("tvm.rpc.server.workpath")("deep"))
        for outside in ("../evil", "/etc/passwd", "deep/../../evil", "a\0b"):
            refuses(InvalidArgument, "lie in its folder", remote.upload, b"", outside)
    eventually(lambda: not folder.exists())


def test_damaged_libraries_are_refused(server, tmp_path):
    """Whatever a library says of itself is compared with its length before its code runs."""
    whole = bytearray(library(tmp_path / "lib.so").read_bytes())
    (segments_at,) = struct.unpack_from("<Q", whole, 32)
    struct.pack_into("<Q", whole, 24, 0)  # the entry point, which says that there is a seal
    with server.connect() as remote:
        for at, value in [(0, 0), (4, 1), (16, 1), (18, 183), (segments_at + 8, 1 << 40), (segments_at + 32, 1 << 60)]:
            damaged = bytearray(whole[:-96])  # without it, as it would tell first
            struct.pack_into("<H" if at in (16, 18) else "<B" if at < 16 else "<Q", damaged, at, value)
            remote.upload(bytes(damaged), "damaged.so")
            refuses(ExecutableError, "cannot open the library", remote.load_module, "damaged.so")
        remote.upload(bytes(whole[: len(whole) // 2]), "half.so")
        refuses(ExecutableError, "", remote.load_module, "half.so")


def test_a_secret_is_proved(tmp_path):
    (tmp_path / "secret").write_text("open sesame\n")
    server = Running("x86_64", "--secret-file", str(tmp_path / "secret"))
    with server.connect(secret="open sesame") as remote:
        assert remote.listdir() == ""
    for wrong in ({"secret": "sesame"}, {}):
        refuses(RPCError, "secret", server.connect, **wrong)
    refuses(RPCError, "key", rpc.connect, "127.0.0.1", server.port, key="other", secret="open sesame")
    server.end()


def test_sessions_are_bounded():
    server = Running("x86_64", "--max-memory-bytes", "1000000", "--max-message-bytes", "100000")
    with server.connect() as remote:
        empty((900_000,), "uint8", remote.cpu())
        for _ in range(4):  # what is let go of may be taken again
            empty((900_000,), "uint8", remote.cpu())
        held = empty((900_000,), "uint8", remote.cpu())
        for size, refused in ((100_000, nullcontext()), (100_001, pytest.raises(RPCError, match="may not allocate"))):
            with refused:  # what flushes a cache counts while it does
                remote._sess.time_evaluator("ffi.Array", remote.cpu(), 1, cache_flush_bytes=size)()
        del held
        refuses(RPCError, "may not allocate", empty, (1_000_001,), "uint8", remote.cpu())
        refuses(RPCError, "", remote.upload, bytes(200_000), "large")
    with pytest.raises(RPCError, match="expired|closed"), server.connect(session_timeout=0.3) as remote:
        remote.listdir(time.sleep(1) or "")
    server.end()


def test_what_it_lacks_is_an_error_that_says_so(server, tmp_path):
    a = te.placeholder((4,), name="a")
    weft.build(te.create_prim_func([a, te.compute((4,), lambda i: a[i], name="b")])).save(tmp_path / "kernel.o")
    with server.connect() as remote:
        refuses(InvalidArgument, "takes no functions of its client", remote.get_function("ffi.Array"), abs)
        remote.upload(tmp_path / "kernel.o")
        refuses(ExecutableError, "has no linker", remote.load_module, "kernel.o")
    for option in ("--tracker", "--tls-certificate"):
        done = clock.run([server.program, option, "x"])
        assert done.returncode == 2 and f'there is no option "{option}"' in done.stderr


def test_a_session_waits_for_a_place_and_ends_in_time():
    server = Running("x86_64", "--max-sessions", "1", "--timeout", "2")
    with server.connect() as first, server.connect():  # when the first one's time is over
        refuses(RPCError, "expired|closed", first.listdir)
    server.end()


def test_memory_stays_flat_over_sessions(server):
    """Of the process that listens: 100 in turn, and 32 at once three times; no session is left."""
    proc = Path(f"/proc/{server.process.pid}")

    def held():
        children = (proc / f"task/{server.process.pid}/children").read_text().split()
        return int((proc / "statm").read_text().split()[1]) * 4096, len(list((proc / "fd").iterdir())), len(children)

    def use(count):
        sessions = [server.connect() for _ in range(count)]
        for session in sessions:
            travels(session, 100_000)
            session.close()

    use(32)
    eventually(lambda: held()[2] == 0)
    before, files, _ = held()
    for count in (*[1] * 100, 32, 32, 32):
        use(count)
    eventually(lambda: held()[1:] == (files, 0))
    assert held()[0] - before < 1 << 18


def test_damaged_messages_end_their_session_alone(server):
    """Each is answered or ends the session, and none crashes it; ``make fuzz-server`` sends more, with sanitizers."""
    sent, sessions = fuzz(server.program, 2000, seed=24, seconds=40)
    assert sent > 20 * sessions


def test_a_session_that_crashes_is_told(server, tmp_path):
    """The listener goes on, and says by which signal it was."""
    with running(server.program) as (port, said):
        with rpc.connect("127.0.0.1", port, key="fuzz") as remote:
            remote.upload(overwriting(tmp_path / "lib.so"))
            kernel = remote.load_module("lib.so")
            refuses(RPCError, "closed", kernel["main"], empty((4,), "int32", remote.cpu()), 1 << 40)
        eventually(lambda: "a session crashed, by signal 11" in said.read_text())
        with rpc.connect("127.0.0.1", port, key="fuzz") as remote:
            assert remote.listdir() == ""


def overwriting(path):
    """A library whose kernel stores as far outside of its argument as it is told."""

    @T.prim_func
    def main(x: T.Buffer((4,), "int32"), far: T.int64):
        for i in range(4):
            x[i * far + far] = 1

    weft.build(main, "llvm").export_library(path)
    return path
