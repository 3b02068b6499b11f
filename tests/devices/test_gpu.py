"""What the pages on devices promise, on every kind of device that this machine has: one test for all of them."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.target.programs import fadd, rows_by_their_sums, sum_of_many, tiled_product, vector
from tests.threads import at_once
from weft import error, rpc, runtime, te, tir
from weft.cli import main
from weft.ffi import get_global_func, remove_global_func
from weft.script import tir as T

RNG = np.random.default_rng(0)


# --- memory, streams, the device itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0, 4)])
def test_copies(gpu, shape):
    for dtype in ("float32", "float16", "int64", "bool", "uint8", ml_dtypes.bfloat16):
        x = (RNG.standard_normal(shape) * 9).astype(dtype)
        (a,) = gpu.put(x)
        assert a.device == gpu.dev
        b = a.copyto(runtime.empty(shape, str(a.dtype), gpu.dev))
        np.testing.assert_array_equal(b.copyto(runtime.cpu()).numpy(), x)
        b.copyfrom(np.zeros(shape, dtype))
        assert not b.numpy().any()
        np.testing.assert_array_equal(a.numpy(), x)
        for other in (runtime.device(kind, 0) for kind in ("cuda", "opencl", "vulkan")):
            if other.exist:
                there = a.copyto(other)
                assert there.device == other
                np.testing.assert_array_equal(there.numpy(), x)


def test_a_device_says_what_it_is(gpu, capsys):
    assert gpu.dev.device_name
    assert gpu.dev.max_threads_per_block >= 64
    assert gpu.dev.max_shared_memory_per_block >= 16 << 10
    assert gpu.dev.total_global_memory > 1 << 20
    assert gpu.dev.multi_processor_count is None if gpu.kind == "vulkan" else gpu.dev.multi_processor_count >= 1
    assert weft.target.Target.from_device(gpu.dev).max_num_threads == gpu.dev.max_threads_per_block
    assert main(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(f"{gpu.dev}\t")]
    assert gpu.dev.device_name in line and "None" not in line


def test_streams_of_a_session(gpu):
    with rpc.LocalSession() as session:
        dev = session.device(gpu.kind)
        stream = dev.create_raw_stream()
        dev.set_raw_stream(stream)
        np.testing.assert_array_equal(runtime.tensor(np.ones(3, "float32"), dev).numpy(), np.ones(3))
        dev.sync(stream)
        refuses(error.InvalidArgument, "another device's", session.cpu().sync, stream)
        dev.free_raw_stream(stream)
        refuses(error.InvalidArgument, "handle", dev.sync, stream)


def test_streams(gpu):
    f, x = fadd(gpu.kind), RNG.random(1000).astype("float32")
    first, then = gpu.dev.create_raw_stream(), gpu.dev.create_raw_stream()
    gpu.dev.set_raw_stream(first)
    a, b, c, d = gpu.put(x, x, x * 0, x * 0)
    f(a, b, c)
    gpu.dev.sync_stream_from_to(first, then)
    gpu.dev.set_raw_stream(then)
    f(c, c, d)
    gpu.dev.sync(then)
    np.testing.assert_array_equal(d.numpy(), 4 * x)
    gpu.dev.set_raw_stream(0)
    for stream in (first, then):
        gpu.dev.free_raw_stream(stream)
    f(a, b, c)
    gpu.dev.sync()
    np.testing.assert_array_equal(c.numpy(), 2 * x)


def test_errors_of_devices(gpu):
    with pytest.raises(ValueError, match=f"there is no device {gpu.kind}:99"):
        runtime.empty((3,), "float32", runtime.device(gpu.kind, 99))
    refuses(MemoryError, f"cannot allocate .* bytes on {gpu.kind}:0", runtime.empty, (1 << 50,), "uint8", gpu.dev)
    refuses(ValueError, "strided", runtime.from_dlpack(np.ones((4, 4), "float32").T).copyto, gpu.dev)


def test_memory_that_was_freed_is_taken_again(gpu):
    take, give = (get_global_func(f"weft.device_workspace_{name}") for name in ("alloc", "free"))
    get_global_func("__tvm_set_device")(gpu.dev.device_type, 0)
    first = take(1 << 20)
    give(first)
    again = take(1 << 20)
    assert again.value == first.value
    other = take(1 << 20)
    assert other.value != again.value
    for block in (again, other):
        give(block)
    refuses(MemoryError, "cannot allocate", take, 1 << 50)  # after what is kept has gone back
    give(take(1 << 20))
    refuses(ValueError, "is no workspace", give, first)


# --- functions and launches -------------------------------------------------------------------------------------------


def test_a_symbolic_size(gpu):
    f = fadd(gpu.kind)
    for n in (1, 63, 64, 1000, 0, 64 * 65536 + 1):  # more blocks than a dispatch of Vulkan has on Mesa's driver
        x, y = RNG.random((2, n), "float32")
        a, b, c = gpu.put(x, y, x * 0)
        f(a, b, c)
        np.testing.assert_array_equal(c.numpy(), x + y)


def test_arguments_are_checked(gpu):
    f, x = fadd(gpu.kind), np.zeros(8, "float32")
    a, b, c = gpu.put(x, x, x)
    with pytest.raises(ValueError, match=rf"(?s)B.device_type on argument #1 .*expected {gpu.kind}, found cpu"):
        f(a, runtime.tensor(x), c)
    with pytest.raises(ValueError, match=r"(?s)B.shape\[0\] on argument #1 .*expected to match A.shape\[0\] == 8"):
        f(a, *gpu.put(np.zeros(9, "float32")), c)
    kernel = f.imported_modules[0]["fadd_kernel"]
    refuses(TypeError, "expected 4 arguments and 2 launch parameters, found 5", kernel, c, a, b, 8, 1)
    refuses(TypeError, "fadd_kernel: argument 3: expected an int, found .*float", kernel, c, a, b, 8.5, 1, 64)
    with pytest.raises(
        RuntimeError, match=rf"cannot launch fadd_kernel .*\(1048576, 1, 1\) threads .* on {gpu.kind}:0: "
    ):
        kernel(c, a, b, 8, 1, 1 << 20)


def test_a_host_in_c(gpu, tmp_path):
    f = weft.build(vector(lambda v: v * 2.0), target=weft.target.Target(gpu.kind, host="c"))
    x = RNG.random(100).astype("float32")
    a, b = gpu.put(x, x * 0)
    f(a, b)
    np.testing.assert_array_equal(b.numpy(), x * 2)
    refuses(ValueError, f"(?s)expected {gpu.kind}, found cpu", f, a, runtime.tensor(x))


def test_a_library_has_its_kernels_inside(gpu, tmp_path):
    f, path = fadd(gpu.kind), str(tmp_path / "f.so")
    f.export_library(path)
    again = runtime.load_module(path)
    assert [m.kind for m in again.imported_modules] == [gpu.kind]
    assert again.imported_modules[0].function_names() == ["fadd_kernel"]
    x, y = RNG.random((2, 70), "float32")
    for module in (f, again):
        a, b, c = gpu.put(x, y, x * 0)
        module["fadd"](a, b, c)
        np.testing.assert_array_equal(c.numpy(), x + y)
    if gpu.kind == "opencl":
        assert again.imported_modules[0].get_source() == f.imported_modules[0].get_source()


def test_the_text_of_kernels(gpu):
    weft.register_global_func(f"tvm_callback_{gpu.kind}_postproc", lambda text, target: f"// {target.kind}\n{text}")
    try:
        code = fadd(gpu.kind).imported_modules[0]
    finally:
        remove_global_func(f"tvm_callback_{gpu.kind}_postproc")
    assert code.is_device_module
    assert code.get_source().startswith(f"// {gpu.kind}\n")
    refuses(error.InvalidArgument, "no source of kind 'wasm'", code.get_source, "wasm")


def test_a_program_that_the_driver_refuses(gpu):
    func = vector(lambda v: tir.call_pure_extern("float32", "no_such_function", v), "float32")
    with pytest.raises(Exception, match="(?s)no_such_function"):  # now, or where the program is loaded
        weft.build(func, target=gpu.kind)(*gpu.put(*np.zeros((2, 8), "float32")))


def test_timing_is_by_the_clock_of_the_device(gpu):
    x = np.ones(1 << 16, "float32")
    result = fadd(gpu.kind).time_evaluator("fadd", gpu.dev, number=4, repeat=3)(*gpu.put(x, x, x))
    assert len(result.results) == 3
    assert all(0 < r < 1 for r in result.results)


def test_threads_share_a_kernel(gpu):
    f, wrong = fadd(gpu.kind), []

    def work(seed):
        x = np.random.default_rng(seed).random(5000).astype("float32")
        for _ in range(20):
            a, b, c = gpu.put(x, x + seed, x * 0)
            f(a, b, c)
            if not np.array_equal(c.numpy(), x + (x + seed)):
                wrong.append(seed)

    at_once(work, 4)
    assert not wrong


# --- what kernels compute ---------------------------------------------------------------------------------------------

FLOATS = [
    ("exp", te.exp, np.exp, -4, 4),
    ("log", te.log, np.log, 0.1, 9),
    ("tanh", te.tanh, np.tanh, -4, 4),
    ("rsqrt", tir.rsqrt, lambda x: 1 / np.sqrt(x), 0.1, 9),
    ("round", te.round, np.round, -9, 9),
    ("sigmoid", te.sigmoid, lambda x: 1 / (1 + np.exp(-x)), -4, 4),
    ("abs", te.abs, np.abs, -3, 3),
    ("int8", lambda v: v.astype("int8"), lambda x: np.clip(np.trunc(x), -128, 127), -300, 300),
    ("power", lambda v: te.power(v, tir.const(2.5, v.dtype)), lambda x: x**2.5, 0.1, 4),
    ("third", lambda v: v / tir.const(3, v.dtype), lambda x: x / 3, -9, 9),
    (
        "select",
        lambda v: tir.Select(v > tir.const(0, v.dtype), v, v * tir.const(0.5, v.dtype)),
        lambda x: np.where(x > 0, x, x / 2),
        -9,
        9,
    ),
]
INTEGERS = [
    ("twice", lambda v: v + v, lambda x: x + x),
    ("floormod", lambda v: te.floormod(v, 7), lambda x: x % 7),
    ("floordiv", lambda v: te.floordiv(v, 7), lambda x: x // 7),
    ("shift", lambda v: v << 2, lambda x: x << 2),
    ("half", lambda v: v.astype("float32") / 2.0, lambda x: (x / 2).astype("float32")),
    ("ones", tir.popcount, lambda x: np.array([bin(int(v) & ((1 << x.itemsize * 8) - 1)).count("1") for v in x])),
]


def computed(gpu, rows, dtype, x):
    """What each function of a table makes of a vector, by one module."""
    cast = {name: vector(f, dtype).with_attr("global_symbol", name) for name, f, *_ in rows}
    built = weft.build(weft.IRModule(cast), target=gpu.kind)
    for name, func in cast.items():
        (a,), out = gpu.put(x[name]), str(func.buffer_map[1][1].dtype)
        c = runtime.empty(a.shape, out, gpu.dev)
        built[name](a, c)
        yield name, c.numpy()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 5e-6), ("float64", 1e-12), ("float16", 2e-3), ("bfloat16", 2e-2)]
)
def test_functions_of_floats(gpu, dtype, tolerance):
    numpy = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = {name: RNG.uniform(low, high, 263).astype(numpy) for name, _, _, low, high in FLOATS}
    for (name, _, f, _, _), (_, y) in zip(FLOATS, computed(gpu, FLOATS, dtype, x), strict=True):
        expected = f(x[name].astype("float64"))
        np.testing.assert_allclose(y.astype("float64"), expected, rtol=tolerance, atol=1e-30, err_msg=name)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_functions_of_integers(gpu, dtype):
    x = RNG.integers(-30 if dtype.startswith("i") else 0, 31, 263).astype(dtype)
    found = computed(gpu, INTEGERS, dtype, {name: x for name, *_ in INTEGERS})
    for (name, _, f), (_, y) in zip(INTEGERS, found, strict=True):
        np.testing.assert_array_equal(y, f(x), err_msg=name)


def test_truth_and_values_that_are_no_numbers(gpu):
    rows = [
        ("isnan", tir.isnan),
        ("bits", lambda v: tir.reinterpret("int32", v)),
        ("least", lambda v: tir.Min(v, tir.const(1.0, "float32"))),
    ]
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5], "float32")
    found = dict(computed(gpu, rows, "float32", {name: x for name, _ in rows}))
    np.testing.assert_array_equal(found["isnan"], np.isnan(x))
    np.testing.assert_array_equal(found["bits"], x.view("int32"))
    np.testing.assert_array_equal(found["least"], np.minimum(x, np.float32(1)))
    (f,) = dict(computed(gpu, [("f", lambda v: tir.Not(v))], "bool", {"f": x > 0})).values()
    np.testing.assert_array_equal(f, ~(x > 0))


@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
def test_a_product_with_shared_tiles(gpu, scope):
    m, n, depth = 48, 32, 20
    f = weft.build(*tiled_product(m, n, depth, scope), gpu.kind, name="f")
    x, y = RNG.random((m, depth), "float32"), RNG.random((depth, n), "float32")
    args = gpu.put(x, y, np.zeros((m, n), "float32"))
    f(*args)
    np.testing.assert_allclose(args[2].numpy(), x @ y, rtol=1e-5)


@pytest.mark.parametrize(("reduce", "dtype"), [(te.sum, "float32"), (te.max, "float32"), (te.min, "int32")])
def test_threads_reduce_together(gpu, reduce, dtype):
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), dtype, name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: reduce(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=16)
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    f = weft.build(s, [a, b], gpu.kind, name="f")
    for shape in ((5, 100), (1, 1), (3, 70)):
        x = (RNG.standard_normal(shape) * 9).astype(dtype)
        args = gpu.put(x, x[:, 0] * 0)
        f(*args)
        expected = {te.sum: np.sum, te.max: np.max, te.min: np.min}[reduce](x, axis=1)
        np.testing.assert_allclose(args[1].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_kernels_pass_memory_of_the_device(gpu):
    f = weft.build(*rows_by_their_sums(), gpu.kind, name="share")
    assert f.imported_modules[0].function_names() == ["share_kernel", "share_kernel_1"]
    for rows in (5, 100, 5, 99):
        x = RNG.random((rows, 8), "float32")
        args = gpu.put(x, x * 0)
        f(*args)
        np.testing.assert_allclose(args[1].numpy(), x / x.sum(1, keepdims=True), rtol=1e-5)


def test_more_arguments_than_travel_with_a_launch(gpu):
    x = RNG.random((15, 8), "float32")
    *parts, total = gpu.put(*x, x[0])
    weft.build(sum_of_many(15), target=gpu.kind)(*parts, total)
    np.testing.assert_allclose(total.numpy(), x.sum(0), rtol=1e-6)


def test_threads_of_tvmscript_and_truth_in_memory(gpu):
    @T.prim_func
    def f(A: T.Buffer((40,), "float32"), M: T.Buffer((40,), "bool"), keep: T.bool, B: T.Buffer((40,), "float32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(10, thread="threadIdx.x"):
                S = T.alloc_buffer((10,), "float32", scope="shared")
                S[t] = A[b * 10 + t]
                M[b * 10 + t] = A[b * 10 + t] > T.float32(0.5)
                B[b * 10 + t] = T.if_then_else(keep, S[9 - t], T.float32(0))

    built = weft.build(f, target=gpu.kind)
    x = RNG.random(40).astype("float32")
    for keep in (True, False):
        a, m, b = gpu.put(x, np.zeros(40, "bool"), x)
        built(a, m, keep, b)
        np.testing.assert_array_equal(m.numpy(), x > 0.5)
        np.testing.assert_array_equal(b.numpy(), x.reshape(4, 10)[:, ::-1].ravel() * keep)


@pytest.mark.parametrize(("name", "by"), [("", 3), ("_up", 2), ("_down", 5)])
def test_threads_of_a_warp_exchange_values(gpu, name, by):
    @T.prim_func
    def f(A: T.Buffer((3, 64), "float32"), B: T.Buffer((3, 64), "float32")):
        for b in T.thread_binding(3, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                B[b, t] = T.call_intrin(
                    "float32",
                    f"tir.tvm_warp_shuffle{name}",
                    T.call_intrin("uint32", "tir.tvm_warp_activemask"),
                    A[b, t],
                    by,
                    16,
                    16,
                )

    x = RNG.random((3, 64)).astype("float32")
    a, b = gpu.put(x, x * 0)
    if gpu.kind == "vulkan" or (gpu.kind == "opencl" and "cl_khr_subgroup_shuffle " not in f"{gpu.dev.extensions} "):
        with pytest.raises(error.WeftError, match="no code for|sub-groups of a size that a device is asked for"):
            weft.build(f, target=gpu.kind)(a, b)
        return
    weft.build(f, target=gpu.kind)(a, b)
    lane = np.arange(16)
    from_lane = {
        "": lane * 0 + by,
        "_up": np.where(lane >= by, lane - by, lane),
        "_down": np.where(lane + by < 16, lane + by, lane),
    }[name]
    np.testing.assert_array_equal(b.numpy(), x.reshape(3, 4, 16)[:, :, from_lane].reshape(3, 64))
