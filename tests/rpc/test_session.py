"""What a client does with a session: functions, tensors, modules, files, callbacks, timing."""

import gc
import signal
import socket

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import relax, rpc, te
from weft.error import ExecutableError, InvalidArgument, RPCError
from weft.rpc import RPCSession, service
from weft.rpc.channel import SocketChannel
from weft.rpc.codec import Opaque, RPCCode, encode, packet
from weft.rpc.remote import RemoteEndpoint, RemoteModule, RPCObjectRef
from weft.runtime import Tensor, empty, tensor

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 float8_e4m3fn float8_e5m2"
).split()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    a = te.placeholder((102,), "float32", name="a")
    b = te.compute((102,), lambda i: a[i] + 1.0, name="b")
    module = weft.build(te.create_prim_func([a, b]).with_attr("global_symbol", "add_one"), target="llvm")
    return str(module.export_library(tmp_path_factory.mktemp("rpc") / "add_one.so"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output((builder.emit(relax.op.add(x, x)), builder.emit(relax.op.nn.relu(x))))
        builder.emit_func_output(y)
    path = tmp_path_factory.mktemp("rpc") / "model.so"
    relax.build(builder.get(), "llvm").export_library(str(path))
    return str(path)


@pytest.mark.parametrize(
    "value",
    [0, -(2**63), 2**63 - 1, True, False, 2.5, None, "", "text", "ä" * 100, "a\0b", b"", b"bytes", b"\0" * 100_000],
)
def test_values_travel_both_ways(remote, value):
    echo = remote.get_function("testing.echo")
    found = echo(value)
    assert found == value
    assert type(found) is type(value)


def test_buffers_numbers_of_numpy_and_dtypes_are_values(remote):
    echo = remote.get_function("testing.echo")
    assert echo(bytearray(b"ab")) == b"ab"
    assert echo(memoryview(b"cd")) == b"cd"
    assert echo(np.float32(0.5)) == 0.5
    assert echo(tvm_ffi.core.String("x")) == "x"
    assert echo(tvm_ffi.dtype("float32x4")) == "float32x4"


def test_numbers_too_large_are_refused(remote):
    refuses(InvalidArgument, "64 bits", remote.get_function("testing.echo"), 2**64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype(remote, dtype):
    data = empty((3, 4), dtype)
    data.copyfrom((np.arange(12).reshape(3, 4) % 2).astype(data.numpy().dtype))
    there = tensor(data, remote.cpu())
    other = empty((3, 4), dtype, remote.cpu(0))
    there.copyto(other)
    assert isinstance(other, Tensor)
    assert (other.shape, other.dtype, other.nbytes) == ((3, 4), dtype, data.nbytes)
    np.testing.assert_array_equal(other.numpy(), data.numpy())
    back = empty((3, 4), dtype)
    other.copyto(back)
    np.testing.assert_array_equal(back.numpy(), data.numpy())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (300, 700)])
def test_shapes(remote, shape):
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    there = tensor(data, remote.cpu())
    assert there.shape == shape
    np.testing.assert_array_equal(there.numpy(), data)


def test_copies_of_layouts_views_and_elements(remote):
    data = np.arange(24, dtype="int32").reshape(4, 6)
    there = tensor(data.T, remote.cpu())
    np.testing.assert_array_equal(there.numpy(), data.T)
    np.testing.assert_array_equal(there.reshape(2, 12).numpy(), data.T.reshape(2, 12))
    there[0, 1] = 7
    assert there[0, 1] == 7
    assert str(there.device).startswith("remote[")
    refuses(ValueError, "shapes differ", there.copyfrom, np.zeros((2, 2), "int32"))


def test_what_lies_here_is_refused_there(remote):
    echo = remote.get_function("testing.echo")
    for value in (tensor(np.zeros(3)), np.zeros(3), weft.cpu()):
        refuses(InvalidArgument, "what lies there", echo, value)
    refuses(InvalidArgument, "do not reach", weft.get_global_func("testing.echo"), tensor(np.zeros(3), remote.cpu()))


def test_what_is_of_another_session_is_refused(server):
    one, two = rpc.connect("127.0.0.1", server.port, key="tests"), rpc.LocalSession()
    there = tensor(np.zeros(3), one.cpu())
    refuses(InvalidArgument, "another session", two.get_function("testing.echo"), there)


def test_errors_keep_their_kind(remote):
    raised = refuses(RPCError, "abc", remote.get_function("rpc.test.except"), "abc")
    assert isinstance(raised, ValueError)
    with pytest.raises(ZeroDivisionError, match="by nothing") as raised:
        remote.get_function("testing.test_raise_error")("ZeroDivisionError", "by nothing")
    assert isinstance(raised.value, RPCError)
    refuses(AttributeError, "not there", remote.get_function, "not there")
    assert remote.get_function("rpc.test.addone")(1) == 2


def test_functions_and_tensors_are_returned(remote):
    make = remote.get_function("rpc.test.remote_return_nd")
    array = make("get_arr")()
    np.testing.assert_array_equal(array.numpy(), np.zeros(10, "float32"))
    assert make("get_arr_elem")(array, 0) == 0
    assert remote.get_function("rpc.test.add_to_lhs")(10)(12) == 22


def test_objects_stay_there(remote):
    shape = remote.get_function("ffi.Shape")(2, 3)
    assert isinstance(shape, RPCObjectRef)
    assert remote.get_function("rpc.testing.GetShapeElem")(shape, 1) == 3


def test_what_nobody_needs_is_freed():
    session = rpc.LocalSession()
    objects = session._sess.endpoint.link.service.objects
    before = len(objects)
    echo = session.get_function("testing.echo")
    array = tensor(np.zeros(4), session.cpu())
    held = [array, session.get_function("ffi.Shape")(1), echo(array)]
    assert len(objects) > before + 3
    del held, echo, array
    gc.collect()
    assert len(objects) == before


def test_functions_of_the_client_are_called_back(remote):
    apply = remote.get_function("tests.rpc.twice")
    add = remote.get_function("rpc.test.add_to_lhs")(1)
    assert apply(lambda x: x * 3, 5) == 45
    assert apply(lambda x: add(x) * 2, 1) == 10  # which asks the server meanwhile
    refuses(KeyError, "mine", apply, lambda x: {}["mine"], 5)
    gc.collect()
    assert apply(abs, -2) == 2
    gc.collect()
    assert len(remote._sess.endpoint._callbacks) <= 1


def test_numbers_go_by_native_code_between_all_else(remote):
    """What is let go of meanwhile is freed, and functions that are called back call with numbers themselves."""
    echo, twice = remote.get_function("testing.echo"), remote.get_function("tests.rpc.twice")
    make, made = remote.get_function("tests.rpc.make"), remote.get_function("tests.rpc.made")
    for i in range(5):
        there = make()
        assert (there(), made()) == (1, 1)
        assert [echo(i), echo("text"), echo(i + 1)] == [i, "text", i + 1]
        del there
        assert twice(lambda x: echo(x) + echo(1), i) == i + 2
        assert (echo(0.5), echo(None), echo(i)) == (0.5, None, i)
        with remote.pipeline() as later:
            later(make)
        assert (made(), echo(i)) == (0, i)


def test_calls_that_nobody_waits_for(remote):
    """They run in order, before what is asked next; results are freed, and the first error is told where one waits."""
    keep, forget, fail = (
        remote.get_function(f"{name}") for name in ("tests.rpc.keep", "tests.rpc.forget", "rpc.test.except")
    )
    with remote.pipeline() as later:
        for i in range(1000):  # more than may be outstanding, and calls that are too long for that
            later(keep, i if i % 100 else "long" * 1000)
        later(keep, lambda x: x + 1)
        assert remote.get_function("tests.rpc.call_kept")(41) == 42
        assert remote.get_function("tests.rpc.kept")() == 1001
        later(forget)
    make = remote.get_function("rpc.test.remote_return_nd")
    with remote.pipeline() as later:
        for _ in range(300):
            later(make, "get_arr")
    assert make("ref_count")() < 20
    later = remote.pipeline()
    for name in ("first", "second"):
        later(fail, name)
    refuses(ValueError, "first", later.wait)
    with remote.pipeline() as later:
        later(fail, "told by the next that waits")
        refuses(ValueError, "told by the next", keep, 1)
        later(forget)
    with pytest.raises(KeyError), remote.pipeline() as later:  # noqa: PT012 - what the block raised is told
        later(fail, "not this")
        raise KeyError
    assert remote.get_function("tests.rpc.kept")() == 0
    with rpc.LocalSession() as other, pytest.raises(InvalidArgument, match="functions of its session"):
        other.pipeline()(keep, 1)
    session = RPCSession(remote._sess)
    session.close()
    refuses(RPCError, "closed", session.pipeline(), keep, 1)


def test_files(remote, tmp_path):
    remote.upload(bytearray(b"content"), "data.bin")
    (tmp_path / "here.txt").write_text("text")
    remote.upload(str(tmp_path / "here.txt"))
    assert remote.download("data.bin") == b"content"
    assert remote.listdir() == "data.bin,here.txt"
    remote.remove("data.bin")
    assert remote.listdir("") == "here.txt"
    refuses(RPCError, "", remote.download, "data.bin")


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "a/../../x", ".."])
def test_files_lie_in_the_folder(remote, name):
    for action in (
        lambda: remote.upload(b"x", name),
        lambda: remote.download(name),
        lambda: remote.remove(name),
        lambda: remote.load_module(name),
        lambda: remote.listdir(name),
    ):
        refuses(RPCError, "folder", action)


def test_modules(remote, library):
    remote.upload(library)
    module = remote.load_module("add_one.so")
    a, b = tensor(np.arange(102, dtype="float32"), remote.cpu()), empty((102,), "float32", remote.cpu())
    module["add_one"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(102) + 1)
    result = module.time_evaluator("add_one", remote.cpu(), number=5, repeat=3, min_repeat_ms=1)(a, b)
    assert len(result.results) == 3
    assert 0 < result.min < 1
    refuses(AttributeError, "missing", lambda: module["missing"])
    refuses(InvalidArgument, "its session", module.time_evaluator, "add_one", weft.cpu())


def test_a_library_that_is_open_keeps_its_file(remote, library):
    remote.upload(library)
    open_one = remote.load_module("add_one.so")
    a, b = tensor(np.zeros(102, "float32"), remote.cpu()), empty((102,), "float32", remote.cpu())
    remote.upload(b"short", "add_one.so")
    refuses(ExecutableError, "", remote.load_module, "add_one.so")
    remote.upload(library)
    for module in (open_one, remote.load_module("add_one.so")):
        module["add_one"](a, b)
        a.copyfrom(b.numpy())
    np.testing.assert_array_equal(b.numpy(), np.full(102, 2))


def test_a_stream_is_a_handle_of_the_session(remote):
    """What is none, or something else that the session holds, never reaches a driver."""
    data = empty((4,), "float32", remote.cpu())
    remote.cpu().sync(0)
    for wrong in (1, 4096, data.handle.wire.data, 1 << 62):
        for use in (remote.cpu().sync, remote.cpu().set_raw_stream, remote.cpu().free_raw_stream):
            refuses(InvalidArgument, "handle", use, wrong)


def test_object_files_are_linked_there(remote, library, tmp_path):
    a = te.placeholder((4,), "float32", name="a")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="b")
    weft.build(te.create_prim_func([a, b]).with_attr("global_symbol", "twice"), target="llvm").save(tmp_path / "k.o")
    remote.upload(str(tmp_path / "k.o"))
    x, y = tensor(np.ones(4, "float32"), remote.cpu()), empty((4,), "float32", remote.cpu())
    remote.load_module("k.o")["twice"](x, y)
    np.testing.assert_array_equal(y.numpy(), [2, 2, 2, 2])
    (tmp_path / "linked.so").write_bytes(remote.download_linked_module("k.o"))
    assert weft.runtime.load_module(tmp_path / "linked.so")["twice"] is not None


def test_virtual_machines(remote, model):
    remote.upload(model)
    vm = relax.VirtualMachine(remote.load_module("model.so"), remote.cpu())
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    there = tensor(x, remote.cpu())
    vm.set_input("main", there)
    vm.invoke_stateful("main")
    doubled, positive = vm.get_outputs("main")
    np.testing.assert_array_equal(doubled.numpy(), 2 * x)
    np.testing.assert_array_equal(positive.numpy(), np.maximum(x, 0))
    vm.save_function("main", "saved", x=there)
    assert vm.time_evaluator("saved", remote.cpu(), number=2, repeat=2)().mean > 0
    assert vm.get_function_arity("main") == 1
    refuses(AttributeError, "", lambda: vm["no such function"])


def test_devices(remote):
    cpu = remote.cpu()
    assert cpu.exist
    assert not remote.device("cuda", 77).exist
    cpu.sync()
    refuses(RPCError, "", tensor, np.zeros(3), remote.device("cuda", 77))
    assert remote.context("llvm", 0) == cpu


def test_a_closed_session_says_so():
    session = rpc.LocalSession()
    echo = session.get_function("testing.echo")
    session.close()
    refuses(RPCError, "closed", echo, 1)


def test_a_connection_that_is_lost_while_one_sends_is_no_answer():
    """The packet before is not taken for the answer."""
    ours, theirs = socket.socketpair()
    endpoint = RemoteEndpoint(SocketChannel(ours), "a server")
    theirs.sendall(packet(RPCCode.RETURN, encode([None])))
    endpoint.initialize([])
    theirs.sendall(packet(RPCCode.RETURN, encode([Opaque(4096)])))
    function = RPCSession(RemoteModule(endpoint)).get_function("f")
    theirs.close()
    refuses(RPCError, r"closed|lost", function, 1)


def test_functions_are_those_that_the_session_holds(remote):
    """More than native code knows at once, and one that was let go of."""
    echo = [remote.get_function("testing.echo") for _ in range(600)]
    assert [f(i) for i, f in enumerate(echo)] == list(range(600))
    endpoint, handle = echo[0].endpoint, echo.pop(0).handle
    gc.collect()
    assert echo[-1](7) == 7
    refuses(RPCError, "no function of handle", endpoint.call_plain, handle, (1,))


def test_kernels_take_parts_of_memory(remote, library):
    remote.upload(library)
    add = remote.load_module("add_one.so")["add_one"]
    data = np.arange(300, dtype="float32")
    there, out = tensor(data, remote.cpu()), empty((102,), "float32", remote.cpu())
    wire = there.handle.wire._replace(shape=(102,))
    add.endpoint.call(add.handle, [wire._replace(byte_offset=384), out.handle.wire])
    np.testing.assert_array_equal(out.numpy(), data[96:198] + 1)
    wrong = [("byte_offset", 800), ("byte_offset", 1 << 63), ("shape", (1 << 62,)), ("shape", (102, 0)), ("data", 1)]
    for field, value in wrong:
        refuses(RPCError, "", add.endpoint.call, add.handle, [wire._replace(**{field: value}), out.handle.wire])


def test_an_interrupted_call_ends_its_session(server):
    """The answer that still comes would be taken for that of the next call."""
    session = rpc.connect("127.0.0.1", server.port, key="tests")
    sleep = session.get_function("tests.rpc.sleep")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        refuses(KeyboardInterrupt, "", sleep, 20.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    refuses(RPCError, "closed", sleep, 0.0)


def test_a_session_holds_so_many_objects(monkeypatch):
    monkeypatch.setattr(service, "_MAX_HANDLES", 9)
    with rpc.LocalSession() as session, pytest.raises(MemoryError, match="holds too many objects"):
        _ = [session.get_function("testing.echo") for _ in range(10)]


def test_a_packet_has_room_for_so_many_numbers():
    """Native code writes a call into a packet on its stack."""
    refuses(InvalidArgument, "no more numbers", weft.get_global_func("weft.rpc_call"), -1, 5, *range(6000))
