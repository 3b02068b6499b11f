"""NVPTX: PTX has what a kernel needs, NVIDIA's assembler takes it, and its LLVM IR run on the host gives the values."""

import re

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.target.nvptx_emulation import assembled, emulate
from tests.target.programs import bound, pairwise, staged
from weft import te, tir
from weft.error import CodegenError, WeftError
from weft.script import tir as T
from weft.target.cuda import emit_nvvm, emit_ptx
from weft.tir.intrin import INTRINSICS


def _lowered(schedule, args, name="f"):
    return {v.name_hint: f for v, f in weft.lower(schedule, args, name=name).items()}


def _params(ptx, name):
    return re.findall(r"\.param \.(\w+)", re.search(rf"\.entry {name}\((.*?)\)\n", ptx, re.DOTALL)[1])


@pytest.mark.parametrize("n", [0, 1, 31, 100])
def test_vector_addition_of_symbolic_length(n):
    a, b, c = pairwise(lambda x, y: x + y)
    x, y = np.random.default_rng(n).random((2, n), "float32")
    out = np.full(n, np.nan, "float32")
    functions = _lowered(bound(c), [a, b, c])
    values = dict(A=x, B=y, C=out, n=("int32", n))
    ptx = emulate(functions, values, ((n + 31) // 32, 1, 1), (32, 1, 1))
    np.testing.assert_array_equal(out, x + y)
    assert _params(ptx, "f_kernel") == ["u64", "u64", "u64", "u32"]
    assert ".target sm_80" in ptx and ".maxntid 32, 1, 1" in ptx
    assert ptx.count("ld.global") == 2 and ptx.count("st.global") == 1 and "ld.b32" not in ptx


def test_tiled_matmul_in_shared_memory():
    """Tiles of both factors in shared memory, two barriers in the loop over tiles, a 2-D block."""

    @T.prim_func
    def matmul(A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 32), "float32"), C: T.Buffer((16, 32), "float32")):
        for by in T.thread_binding(2, thread="blockIdx.y"):
            for bx in T.thread_binding(4, thread="blockIdx.x"):
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(8, thread="threadIdx.x"):
                        S = T.alloc_buffer((8, 8), scope="shared")
                        R = T.alloc_buffer((8, 8), scope="shared")
                        acc = T.alloc_buffer((1,), scope="local")
                        acc[0] = T.float32(0)
                        for k in range(3):
                            S[ty, tx] = A[by * 8 + ty, k * 8 + tx]
                            R[ty, tx] = B[k * 8 + ty, bx * 8 + tx]
                            for r in range(8):
                                acc[0] = acc[0] + S[ty, r] * R[r, tx]
                        C[by * 8 + ty, bx * 8 + tx] = acc[0]

    rng = np.random.default_rng(0)
    a, b, c = rng.random((16, 24), "float32"), rng.random((24, 32), "float32"), np.zeros((16, 32), "float32")
    ptx = emulate({"matmul": matmul}, dict(A=a, B=b, C=c), (4, 2, 1), (8, 8, 1))
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert emit_nvvm({"matmul": matmul}).count("call void @llvm.nvvm.barrier") == 2
    assert "bar.sync" in ptx and len(re.findall(r"\.shared \.align 16 \.b8 \w+\[256\]", ptx)) == 2
    assert "ld.shared" in ptx and "st.shared" in ptx and "ld.global" in ptx and "fma.rn.f32" in ptx
    assert ".local" not in ptx and ".maxntid 8, 8, 1" in ptx


@pytest.mark.parametrize("rows", [1, 3])
def test_row_reduction_by_a_tree_in_shared_memory(rows):
    @T.prim_func
    def row_sum(A: T.Buffer((rows, 100), "float32"), B: T.Buffer((rows,), "float32")):
        for bx in T.thread_binding(rows, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                S = T.alloc_buffer((32,), scope="shared")
                S[tx] = T.float32(0)
                for k in range(4):
                    if k * 32 + tx < 100:
                        S[tx] = S[tx] + A[bx, k * 32 + tx]
                for step in range(5):
                    if tx < T.shift_right(16, step):
                        S[tx] = S[tx] + S[tx + T.shift_right(16, step)]
                if tx == 0:
                    B[bx] = S[0]

    a, b = np.random.default_rng(rows).random((rows, 100), "float32"), np.zeros(rows, "float32")
    ptx = emulate({"row_sum": row_sum}, dict(A=a, B=b), (rows, 1, 1), (32, 1, 1))
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)
    assert "bar.sync" in ptx


def test_a_softmax_of_rows():
    """Maximum, exponentials and their sum in one block for each row; exp is Weft's polynomial."""

    @T.prim_func
    def softmax(A: T.Buffer((3, 40), "float32"), B: T.Buffer((3, 40), "float32")):
        for bx in T.thread_binding(3, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                S = T.alloc_buffer((8,), scope="shared")
                top = T.alloc_buffer((1,), scope="local")
                total = T.alloc_buffer((1,), scope="local")
                S[tx] = A[bx, tx]
                for k in range(4):
                    S[tx] = T.max(S[tx], A[bx, 8 + k * 8 + tx])
                top[0] = S[0]
                for k in range(7):
                    top[0] = T.max(top[0], S[k + 1])
                S[tx] = T.float32(0)
                for k in range(5):
                    S[tx] = S[tx] + T.exp(A[bx, k * 8 + tx] - top[0])
                total[0] = T.float32(0)
                for k in range(8):
                    total[0] = total[0] + S[k]
                for k in range(5):
                    B[bx, k * 8 + tx] = T.exp(A[bx, k * 8 + tx] - top[0]) / total[0]

    a, b = np.random.default_rng(1).normal(0, 9, (3, 40)).astype("float32"), np.zeros((3, 40), "float32")
    ptx = emulate({"softmax": softmax}, dict(A=a, B=b), (3, 1, 1), (8, 1, 1))
    e = np.exp(a - a.max(1, keepdims=True).astype("float64"))
    np.testing.assert_allclose(b, e / e.sum(1, keepdims=True), rtol=3e-6)
    assert "call" not in ptx and "div.rn.f32" in ptx


_ARITHMETIC = {
    "float16": (lambda x, y: x * y + te.exp(x), lambda x, y: x * y + np.exp(x)),
    "float32": (lambda x, y: te.tanh(x) + te.fmod(x, y), lambda x, y: np.tanh(x) + np.fmod(x, y)),
    "float64": (lambda x, y: te.sqrt(te.abs(x)) / y, lambda x, y: np.sqrt(np.abs(x)) / y),
    "int8": (lambda x, y: te.floordiv(x, y) + te.floormod(x, y), lambda x, y: x // y + x % y),
    "int32": (lambda x, y: te.truncdiv(x, y) * 3 + te.truncmod(x, y), lambda x, y: np.trunc(x / y) * 3 + np.fmod(x, y)),
    "int64": (lambda x, y: te.floordiv(x, y) * 10 + te.floormod(x, -3), lambda x, y: x // y * 10 + x % -3),
    "uint8": (lambda x, y: tir.max(x, y) - tir.min(x, y), lambda x, y: np.maximum(x, y) - np.minimum(x, y)),
}


@pytest.mark.parametrize("dtype", _ARITHMETIC)
def test_arithmetic(dtype):
    ours, expected = _ARITHMETIC[dtype]
    a, b = te.placeholder((70,), dtype, name="A"), te.placeholder((70,), dtype, name="B")
    c = te.compute((70,), lambda i: ours(a[i], b[i]), name="C")
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(-8, 8, 70).astype(dtype) for _ in range(2))
    if "float" not in dtype:
        x, y = (np.where(v == 0, 1, v).astype(dtype) for v in (x, y))
    out = np.zeros(70, dtype)
    emulate(_lowered(bound(c), [a, b, c]), dict(A=x, B=y, C=out), (3, 1, 1), (32, 1, 1))
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-15}.get(dtype, 0)
    np.testing.assert_allclose(out.astype("float64"), expected(x, y).astype("float64"), rtol=tolerance, atol=tolerance)


def test_indices_of_64_bits_and_a_dynamic_matrix():
    m, n = te.var("m", "int64"), te.var("n", "int64")
    a = te.placeholder((m, n), name="A")
    c = te.compute((n, m), lambda i, j: a[j, i], name="C")
    x = np.random.default_rng(4).random((5, 9), "float32")
    out = np.zeros((9, 5), "float32")
    functions = _lowered(bound(c, 16), [a, c])
    values = dict(A=x, C=out, m=("int64", 5), n=("int64", 9))
    ptx = emulate(functions, values, (3, 1, 1), (16, 1, 1))
    np.testing.assert_array_equal(out, x.T)
    assert "u64" in _params(ptx, "f_kernel")[-1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool"])
def test_warp_shuffles(dtype):
    @T.prim_func
    def rotate(A: T.Buffer((8,), dtype), B: T.Buffer((8,), dtype), C: T.Buffer((8,), dtype)):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            B[tx] = T.call_intrin(dtype, "tir.tvm_warp_shuffle", 255, A[tx], 7 - tx, 8, 32)
            C[tx] = T.call_intrin(dtype, "tir.tvm_warp_shuffle_down", 255, A[tx], 1, 8, 32)

    a = np.random.default_rng(0).uniform(-90, 90, 8).astype(dtype)
    a[::3] = 0
    b, c = np.zeros((2, 8), dtype)
    ptx = emulate({"rotate": rotate}, dict(A=a, B=b, C=c), (1, 1, 1), (8, 1, 1))
    np.testing.assert_array_equal(b, a[::-1])
    np.testing.assert_array_equal(c, [*a[1:], a[7]])
    assert ptx.count("shfl.sync.idx.b32") == (2 if a.dtype.itemsize == 8 else 1) and "shfl.sync.down.b32" in ptx


def test_a_barrier_of_a_warp_and_intrinsics_of_llvm():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            A[tx] = T.call_llvm_pure_intrin("int32", "llvm.nvvm.read.ptx.sreg.tid.x") + 1
            T.evaluate(T.call_intrin("void", "tir.tvm_storage_sync", "warp"))

    ptx = assembled({"f": f})
    assert "bar.warp.sync" in ptx and "%tid.x" in ptx


def test_threads_fetch_a_tile_together_and_share_it():
    n, k = 32, 24
    s, (a, b, c) = staged(n, k, tile=8)
    functions = _lowered(s, [a, b, c])
    rng = np.random.default_rng(0)
    x, y, out = rng.random((n, k), "float32"), rng.random(k, "float32"), np.zeros(n, "float32")
    emulate(functions, dict(A=x, B=y, C=out), (4, 1, 1), (8, 1, 1))
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "y"), [(np.inf, 2.0), (3.0, 0.0), (np.nan, 1.0), (-0.0, 5.0), (5.0, np.inf), (-7.5, 2.5)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_remainder_is_exact(dtype, x, y):
    """Special values here; then numbers of every size, subnormal ones among them."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    a = np.ldexp(rng.uniform(-1, 1, 60), rng.integers(info.minexp - info.nmant, info.maxexp, 60)).astype(dtype)
    b = np.ldexp(rng.uniform(-1, 1, 60), rng.integers(info.minexp - info.nmant, info.maxexp, 60)).astype(dtype)
    a[0], b[0], c = x, y, np.zeros(60, dtype)

    @T.prim_func
    def f(A: T.Buffer((60,), dtype), B: T.Buffer((60,), dtype), C: T.Buffer((60,), dtype)):
        for bx in T.thread_binding(60, thread="blockIdx.x"):
            C[bx] = T.fmod(A[bx], B[bx])

    emulate({"f": f}, dict(A=a, B=b, C=c), (60, 1, 1), (1, 1, 1))
    with np.errstate(invalid="ignore"):
        expected = np.fmod(a, b)
    np.testing.assert_array_equal(c, expected)
    np.testing.assert_array_equal(np.signbit(c)[~np.isnan(c)], np.signbit(expected)[~np.isnan(c)])


def _elementwise(compute, *arrays):
    """Values of a function of elements, computed by one thread for each."""
    n, dtype = arrays[0].size, str(arrays[0].dtype)
    inputs = [te.placeholder((n,), dtype, name=f"X{i}") for i in range(len(arrays))]
    c = te.compute((n,), lambda i: compute(*(x[i] for x in inputs)), name="C")
    out = np.zeros(n, dtype)
    values = {f"X{i}": a for i, a in enumerate(arrays)}
    emulate(_lowered(bound(c), [*inputs, c]), {**values, "C": out}, ((n + 31) // 32, 1, 1), (32, 1, 1))
    return out


def _wide(dtype, count=120):
    """Numbers of every size, subnormal and special ones among them."""
    info, rng = np.finfo(dtype), np.random.default_rng(5)
    sizes = rng.integers(info.minexp - info.nmant, info.maxexp, count)
    some = np.ldexp(rng.uniform(-1, 1, count), sizes).astype(dtype)
    return np.concatenate([some, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 355.0], dtype)])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trigonometric_functions_of_every_argument(name, dtype):
    x = _wide(dtype)
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(x.astype("float64"))
    got = _elementwise(getattr(te, name), x)
    finite = np.isfinite(expected)
    error = np.abs(got - expected)[finite] / np.spacing(np.abs(expected[finite]).astype(dtype))
    assert np.array_equal(np.isnan(got), ~finite) and error.max() < 4
    assert name == "cos" or np.array_equal(np.signbit(got[-8:-6]), [False, True])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_beside_and_exponents(dtype):
    x, step = _wide(dtype), np.random.default_rng(0).uniform(-2200, 2200, 128).astype(dtype)
    step[::2] = np.round(step[::2] / 80)
    y = np.where(step > 0, x[::-1], x).astype(dtype)
    with np.errstate(over="ignore", divide="ignore"):
        scaled = np.ldexp(x, np.trunc(step).astype("int32"))
    np.testing.assert_array_equal(_elementwise(tir.ldexp, x, step), scaled)
    np.testing.assert_array_equal(_elementwise(tir.nextafter, x, y), np.nextafter(x, y))
    with np.errstate(divide="ignore"):
        exponents = np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1, np.where(x == 0, -np.inf, np.abs(x)))
    np.testing.assert_array_equal(_elementwise(tir.logb, x), exponents.astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_function_of_floats_has_code_without_a_library(dtype):
    names = [n for n, i in INTRINSICS.items() if i.result == "float" or n in ("fmod", "pow", "atan2", "hypot", "fma")]
    names.remove("mantissa")  # of vectors on AVX-512
    inputs = [te.placeholder((64,), dtype, name=f"X{i}") for i in range(3)]
    outputs = te.compute(
        (64,), lambda i: tuple(getattr(tir, n)(*[x[i] for x in inputs][: INTRINSICS[n].n_args]) for n in names)
    )
    s = te.create_schedule(outputs[0].op)
    s[outputs[0]].bind(outputs[0].op.axis[0], te.thread_axis("threadIdx.x"))
    ptx = assembled(_lowered(s, [*inputs, *outputs]))
    assert len(names) > 25 and ptx.count("st.global") == len(names) and ".extern" not in ptx


# --- what is refused --------------------------------------------------------------------------------------------------


def _refused(func, match, target="nvptx -mcpu=sm_80"):
    return refuses(WeftError, "(?s)" + match, emit_ptx, {"f": func}, target)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda a: tir.call_extern("float32", "expf", a), r"kernel 'f_kernel'.*host's function 'expf'"),
        (lambda a: tir.call_packed("my.printer", a), r"kernel 'f_kernel'.*host's function 'my\.printer'"),
        (lambda a: tir.call_intrin("float32", "tir.mantissa", a), r"kernel 'f_kernel'.*tir\.mantissa"),
    ],
)
def test_what_a_device_cannot_call_is_refused_by_name(call, match):
    a = te.placeholder((8,), name="A")
    c = te.compute((8,), lambda i: call(a[i]), name="C")
    refuses(CodegenError, "(?s)" + match, emit_ptx, _lowered(bound(c), [a, c]))


def test_an_error_shows_the_line():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            A[tx] = T.call_extern("float32", "on_the_host", A[tx])

    assert "test_nvptx.py" in str(_refused(f, "on_the_host")) and "A[tx] = T.call_extern" in str(_refused(f, "host"))


def test_too_many_threads_and_too_much_shared_memory():
    @T.prim_func
    def wide(A: T.Buffer((64, 64), "float32")):
        for ty in T.thread_binding(64, thread="threadIdx.y"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                A[ty, tx] = T.float32(1)

    @T.prim_func
    def large(A: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((13000,), scope="shared")
            S[tx] = T.float32(1)
            S[tx + 64] = T.float32(1)
            A[tx] = S[12999 - tx] + S[tx]

    _refused(wide, "too many threads.*at most 1024, found 4096")
    _refused(large, "too many threads.*at most 32, found 64", "nvptx -max_num_threads=32")
    _refused(large, "'S' does not fit into the memory of a block.*at most 49152")


def test_several_threads_storing_to_one_element_are_refused_unless_one_is_singled_out():
    @T.prim_func
    def race(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                B[bx] = B[bx] - A[bx, tx]

    @T.prim_func
    def single(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                if tx < 1:
                    B[bx] = B[bx] + A[bx, tx]

    _refused(race, r"a store to 'B' is not one thread's own.*threadIdx\.x")
    assert "st.global" in assembled({"f": single})


def test_assertions_and_parallel_loops_are_refused():
    @T.prim_func
    def asserting(A: T.Buffer((4,), "float32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            assert A[tx] > T.float32(0), "positive"
            A[tx] = T.float32(1)

    @T.prim_func
    def parallel(A: T.Buffer((4, 4), "float32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for j in T.parallel(4):
                A[tx, j] = T.float32(1)

    _refused(asserting, "device code cannot report a failed assertion")
    _refused(parallel, "a parallel loop on a GPU.*bind it to threads")


def test_another_kind_of_target_is_refused():
    refuses(CodegenError, "for targets of kind nvptx", emit_ptx, {}, "llvm")


@pytest.mark.parametrize("arch", ["sm_60", "sm_70", "sm_75", "sm_86", "sm_90a", "sm_100f", "sm_121"])
def test_architectures(arch):
    """Conversions, barriers, shuffles and wide arithmetic on old and new machines."""

    @T.prim_func
    def f(A: T.Buffer((32,), "float16"), B: T.Buffer((32,), "float64"), C: T.Buffer((32,), "bfloat16")):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            S = T.alloc_buffer((32,), "float16", scope="shared")
            S[tx] = T.max(A[tx], T.call_intrin("float16", "tir.tvm_warp_shuffle_up", -1, A[tx], 1, 32, 32))
            B[tx] = T.sin(T.Cast("float64", S[31 - tx]))
            C[tx] = T.Cast("bfloat16", T.exp(S[31 - tx]))

    assert f".target {arch}" in assembled({"f": f}, f"nvptx -mcpu={arch}")


def test_a_built_module_has_the_texts_of_its_kernels():
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] + 1.0, name="C")
    built = weft.build(bound(c), [a, c], "nvptx -mcpu=sm_86", name="add_one")
    (kernels,) = built.imported_modules
    assert ".entry add_one_kernel" in kernels.get_source("ptx") and ".target sm_86" in built.get_source("ptx")
    assert "define ptx_kernel void @add_one_kernel" in kernels.get_source("ll")


@pytest.mark.parametrize("flag", [True, False])
def test_statements_and_scalar_parameters(flag):
    """Loops that end early, arrays of a thread, branches, narrow integers and Booleans in memory and as parameters."""

    @T.prim_func
    def f(
        A: T.Buffer((64,), "int8"),
        B: T.Buffer((64,), "bool"),
        C: T.Buffer((64,), "uint8"),
        flag: T.bool,
        k: T.int64,
        x: T.float32,
        limit: T.int32,
    ):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                L = T.alloc_buffer((16,), "int32", scope="local")
                n = T.alloc_buffer((1,), "int32", scope="local")
                for i in range(16):
                    L[i] = i * T.Cast("int32", A[bx * 32 + tx])
                n[0] = T.int32(0)
                while n[0] < limit and L[n[0]] < 40:
                    n[0] = n[0] + 1
                at = T.floormod(T.Cast("int32", A[bx * 32 + tx]), 16)
                B[bx * 32 + tx] = flag and (T.Cast("float32", L[at]) > x)
                if tx % 2 == 0:
                    C[bx * 32 + tx] = T.Cast("uint8", n[0] + T.Cast("int32", k))
                else:
                    C[bx * 32 + tx] = T.Select(B[bx * 32 + tx], T.uint8(7), T.uint8(250))

    a = np.random.default_rng(0).integers(-100, 100, 64).astype("int8")
    b, c = np.zeros(64, "bool"), np.zeros(64, "uint8")
    scalars = dict(flag=("bool", flag), k=("int64", 3), x=("float32", 5.0), limit=("int32", 16))
    emulate({"f": f}, dict(A=a, B=b, C=c, **scalars), (2, 1, 1), (32, 1, 1))
    table = np.arange(16) * a[:, None].astype("int32")
    above = flag & (table[np.arange(64), a % 16] > 5)
    steps = np.where((table >= 40).any(1), (table >= 40).argmax(1), 16)
    np.testing.assert_array_equal(b, above)
    np.testing.assert_array_equal(c, np.where(np.arange(64) % 2 == 0, steps + 3, np.where(above, 7, 250)))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("llvm.nvvm.read.ptx.sreg.cluster.ctaid.x", r"sm_70 has no intrinsic .llvm\.nvvm.*Cannot select"),
        ("llvm.nvvm.nonsense", r"'llvm\.nvvm\.nonsense'.*does not know the name"),
    ],
)
def test_instructions_that_the_architecture_lacks_are_refused(name, match):
    @T.prim_func
    def f(A: T.Buffer((4,), "int32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            A[tx] = T.call_llvm_pure_intrin("int32", name)

    _refused(f, match, "nvptx -mcpu=sm_70")
