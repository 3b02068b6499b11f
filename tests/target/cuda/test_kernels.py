"""Scheduled programs on CUDA: NVRTC makes machine code of them, and through the stand-in they give NumPy's values."""

import pytest

from tests.texts import named

# Build for the host's stand-in, and with NVRTC where it is.
HEAD = """
import ml_dtypes
from tests.target import programs
from weft.error import MissingDependency
from weft.target.cuda import compile_cuda
def build(*args, name="main", target="cuda -arch=sm_90"):
    f = weft.build(*args, target=target, name=name)
    text = f.imported_modules[0].get_source()
    try:
        assert compile_cuda(text, "cubin", "sm_90")[:4] == b"\\x7fELF"
    except MissingDependency:
        pass
    return f, text
rng = np.random.default_rng(1)

# What a kernel computes elementwise: dtype, expression, NumPy's meaning.
cases, functions = [], {}
def check(dtype, compute, expected, out=None, x=None, **tolerance):
    out, name = out or dtype, f"f{len(cases)}"
    functions[name] = programs.vector(lambda v: compute(v).astype(out), dtype).with_attr("global_symbol", name)
    x = (rng.standard_normal(200) * 20).astype(dtype) if x is None else x
    cases.append((name, x, np.asarray(expected(x)).astype(out), tolerance))

def assert_all():
    f, _ = build(weft.IRModule(functions))
    for name, x, want, tolerance in cases:
        a, b = rt.tensor(x, device=dev), rt.empty((200,), str(want.dtype), dev)
        f[name](a, b)
        if tolerance:
            np.testing.assert_allclose(b.numpy().astype("float64"), want.astype("float64"), **tolerance)
        else:
            np.testing.assert_array_equal(b.numpy(), want, name)
"""

PROGRAMS = named("""
# matmul with shared tiles and virtual threads
M, N, K = 48, 32, 20
f, text = build(*programs.tiled_product(M, N, K, "shared"))
assert text.count("__shared__") == 2 and "__syncthreads" in text
x, y = rng.random((M, K), "float32"), rng.random((K, N), "float32")
a, b, c = put(x, y, np.zeros((M, N), "float32"))
f(a, b, c)
np.testing.assert_allclose(c.numpy(), x @ y, rtol=1e-5)
assert [c for c in log() if c.startswith("launch")] == ["launch:4,6,1:4,4,1:0:0"]
# a reduction over the threads of a block
@T.prim_func
def rowsum(A: T.Buffer((6, 100), "float32"), B: T.Buffer((6,), "float32")):
    for b in T.thread_binding(6, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            S = T.alloc_buffer((16,), "float32", scope="shared")
            L = T.alloc_buffer((1,), "float32", scope="local")
            L[0] = 0.0
            for k in range(7):
                if k * 16 + t < 100:
                    L[0] = L[0] + A[b, k * 16 + t]
            S[t] = L[0]
            for step in range(4):
                if t < T.shift_right(8, step):
                    S[t] = S[t] + S[t + T.shift_right(8, step)]
            if t == 0:
                B[b] = S[0]

f, text = build(rowsum)
x = rng.random((6, 100), "float32")
a, b = put(x, np.zeros(6, "float32"))
f(a, b)
np.testing.assert_allclose(b.numpy(), x.sum(1), rtol=1e-5)
# tir schedules and several functions
@weft.script.ir_module
class Mod:
    @T.prim_func
    def scale(A: T.Buffer((37, 5), "float32"), s: T.float32, B: T.Buffer((37, 5), "float32")):
        T.func_attr({"global_symbol": "scale"})
        for i, j in T.grid(37, 5):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * s

    @T.prim_func
    def relu(A: T.Buffer((50,), "float64"), B: T.Buffer((50,), "float64")):
        T.func_attr({"global_symbol": "relu"})
        for i in range(50):
            with T.block("B"):
                vi = T.axis.spatial(50, i)
                B[vi] = T.max(A[vi], T.float64(0))

sch = tir.Schedule(Mod)
for name in ("scale", "relu"):
    loops = sch.get_loops(sch.get_block("B", func_name=name))
    block, thread = sch.split(sch.fuse(*loops) if len(loops) > 1 else loops[0], [None, 32])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
f, text = build(sch.mod)
assert sorted(f.imported_modules[0].function_names()) == ["relu_kernel", "scale_kernel"]
x = rng.standard_normal((37, 5)).astype("float32")
a, b = put(x, x * 0)
f["scale"](a, 2.5, b)
np.testing.assert_allclose(b.numpy(), x * np.float32(2.5), rtol=1e-6)
x = rng.standard_normal(50)
a, b = put(x, x * 0)
f["relu"](a, b)
np.testing.assert_array_equal(b.numpy(), np.maximum(x, 0))
# axes bound by attributes and launches in host control flow
@T.prim_func
def attributes(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    B[bx * 16 + tx] = A[bx * 16 + tx] + 1.0

@T.prim_func
def repeated(A: T.Buffer((64,), "float32"), k: T.int32, B: T.Buffer((64,), "float32")):
    if k > 1:
        for r in range(k):
            for i in T.thread_binding(4, thread="blockIdx.x"):
                for j in T.thread_binding(16, thread="threadIdx.x"):
                    B[i * 16 + j] = B[i * 16 + j] + A[i * 16 + j] * T.cast(r + 1, "float32")

f, _ = build(attributes)
g, _ = build(repeated)
x = rng.random(64, "float32")
a, b = put(x, x * 0)
f(a, b)
np.testing.assert_array_equal(b.numpy(), x + 1)
g(a, 1, b)
np.testing.assert_array_equal(b.numpy(), x + 1)
g(a, 3, b)
np.testing.assert_allclose(b.numpy(), x * 7 + 1, rtol=1e-6)
# nvptx uses the same host code
f = weft.build(programs.vector(lambda v: v * 2.0), "nvptx -mcpu=sm_80")
code = f.imported_modules[0]
assert code.kind == "cuda" and code.function_names() == ["f_kernel"]
assert ".target sm_80" in code.get_source() and ".entry f_kernel(" in f.get_source("ptx")
with pytest.raises(RuntimeError, match="cannot load the ptx code"):  # the stand-in runs no PTX
    f(*put(np.zeros(100, "float32"), np.zeros(100, "float32")))
# unbound loops
A = te.placeholder((100,), name="A")
B = te.compute(A.shape, lambda i: A[i] * 2.0, name="B")
for target in ("cuda", "nvptx"):
    text = "'default_function' accesses GPU memory outside of GPU threads: did you forget to bind"
    with pytest.raises(weft.error.CodegenError, match=text):
        weft.build(te.create_schedule(B.op), [A, B], target)
# integers
i32 = "int32"
check(i32, lambda v: (v & 12) | (v ^ 5), lambda v: (v & 12) | (v ^ 5))
check(i32, lambda v: ~v, lambda v: ~v)
check(i32, lambda v: (v << 3) + (v >> 2), lambda v: (v << 3) + (v >> 2))
check("int8", lambda v: v + v, lambda v: v + v, x=(np.arange(200) - 100).astype("int8"))
check("uint8", lambda v: v * v, lambda v: v * v, x=np.arange(200).astype("uint8"))
check(i32, lambda v: te.abs(v) % 7, lambda v: abs(v) % 7)
check(i32, lambda v: tir.popcount(v), lambda v: [bin(int(e) & 0xFFFFFFFF).count("1") for e in v])
check("int64", lambda v: v // 7 * 1000003, lambda v: v // 7 * 1000003)
check(i32, lambda v: te.floordiv(v, -3) * 10 + te.floormod(v, -3), lambda v: v // -3 * 10 + v % -3)
def saturated(v):
    return np.clip(np.nan_to_num(v.astype("float64"), posinf=3e9, neginf=-3e9), -(2.0**31), 2.0**31 - 1).astype("int64")
x = np.resize(np.float32([np.nan, np.inf, -np.inf, 3e9, -3e9, 1.9]), 200)
check("float32", lambda v: v, saturated, out=i32, x=x)
check(i32, lambda v: tir.Select(v > 3, v, 0 - v), lambda v: np.where(v > 3, v, -v))
check(i32, lambda v: v > 3, lambda v: v > 3, out="bool")
assert_all()
# floats
f32 = "float32"
check(f32, lambda v: te.sigmoid(v), lambda v: 1 / (1 + np.exp(-v)), rtol=1e-5)
check(f32, lambda v: te.exp(v * 0.1) + te.tanh(v), lambda v: np.exp(v * 0.1) + np.tanh(v), rtol=1e-5)
check(f32, lambda v: te.abs(v) + te.round(v), lambda v: abs(v) + np.round(v))
check(f32, lambda v: tir.isnan(v), np.isnan, out="bool", x=np.resize(np.float32([np.nan, 1, np.inf]), 200))
check(f32, lambda v: tir.isinf(v), np.isinf, out="bool", x=np.resize(np.float32([np.nan, 1, -np.inf]), 200))
check(f32, lambda v: tir.max(v, 0.0), lambda v: np.maximum(v, 0), x=np.resize(np.float32([np.nan, 1, -1]), 200))
check(f32, lambda v: tir.reinterpret("int32", v) & 255, lambda v: v.view("int32") & 255, out="int32")
check("float64", lambda v: te.exp(v / 9) * te.cos(v), lambda v: np.exp(v / 9) * np.cos(v), rtol=1e-12)
for half in ("float16", "bfloat16"):
    check(half, lambda v: v, lambda v: v)
    check(half, lambda v: v * v + v, lambda v: v * v + v)
    check(half, lambda v: tir.max(v, tir.const(0.5, half)), lambda v: np.maximum(v, v.dtype.type(0.5)))
    check(half, lambda v: te.exp(v / tir.const(8, half)), lambda v: np.exp(v / v.dtype.type(8)), rtol=1e-2)
    check(half, lambda v: v, lambda v: v, out="float32")
    check(half, lambda v: v, lambda v: np.trunc(v.astype("float32")), out="int32")
x = np.resize(np.float32([65504, 65519, 65520, 1e-8, 6e-8, 3e-5, 0.1, -0.1, np.inf, 1 + 2**-11, 1 + 3 * 2**-11]), 200)
check(f32, lambda v: v, lambda v: v, out="float16", x=x)
check(f32, lambda v: v, lambda v: v, out="bfloat16", x=x)
assert_all()
# dynamic shared memory
@T.prim_func
def reverse(A: T.Buffer((4, 16), "float32"), I: T.Buffer((4, 16), "int8"), B: T.Buffer((4, 16), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            S = T.alloc_buffer((16,), "int8", scope="shared.dyn")
            R = T.alloc_buffer((16, 800), "float32", scope="shared.dyn")
            S[t] = I[b, t]
            R[t, 0] = A[b, t]
            B[b, t] = R[15 - t, 0] + T.cast(S[15 - t], "float32")

f, text = build(reverse)
assert text.count("__syncthreads") >= 1 and "extern __shared__" in text
x, i = rng.random((4, 16), "float32"), rng.integers(0, 9, (4, 16)).astype("int8")
a, d, b = put(x, i, x * 0)
f(a, d, b)
f(a, d, b)
np.testing.assert_array_equal(b.numpy(), x[:, ::-1] + i[:, ::-1])
assert log().count("shared") == 1  # asked for once: more than a block has without it
assert [c for c in log() if c.startswith("launch")] == ["launch:4,1,1:16,1,1:%d:0" % (16 + 16 * 800 * 4)] * 2
# named schedules of topi
from weft import topi
def run(out, expected, *given):
    s = topi.cuda.schedule_reduce(out)
    f, text = build(s, [*[a for a, _ in given], out])
    b = rt.empty(expected.shape, out.dtype, dev)
    f(*[rt.tensor(x, device=dev) for _, x in given], b)
    np.testing.assert_allclose(b.numpy(), expected, rtol=1e-5, atol=1e-5)
    return text
x = rng.standard_normal((33, 48)).astype("float32")
a = te.placeholder(x.shape, name="a")
assert "__shared__" in run(topi.sum(a * 2.0), (x * 2).sum(), (a, x))
run(topi.sum(a, axis=1), x.sum(1), (a, x))
run(topi.argmax(a, axis=1), x.argmax(1), (a, x))
run(topi.exp(topi.transpose(a)), np.exp(x.T), (a, x))
e = np.exp(x - x.max(1, keepdims=True))
run(topi.nn.softmax(a), e / e.sum(1, keepdims=True), (a, x))
""")


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(text, program):
    program(text)


def test_reductions_bound_to_threads(program):
    """The axis of a reduction is bound: threads reduce in shared memory."""
    program("""
def parts(n, m, threads, rows=0, reduce=te.sum, dtype="float32"):
    A = te.placeholder((n, m), dtype, name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: reduce(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=threads)
    if rows:  # TVM's way: partial sums by rfactor, several rows in a block
        BF = s.rfactor(B, ki)
        xo, xi = s[B].split(B.op.axis[0], factor=rows)
        s[B].bind(xo, te.thread_axis("blockIdx.x"))
        s[B].bind(xi, te.thread_axis("threadIdx.y"))
        s[B].bind(s[B].reduce_axis[0], te.thread_axis("threadIdx.x"))
        s[BF].compute_at(s[B], s[B].reduce_axis[0])
    else:
        s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
        s[B].bind(ki, te.thread_axis("threadIdx.x"))
    return te.schedule.schedule_to_prim_func(s, [A, B], "f")

n, m = te.var("n"), te.var("m")
cases = [("a", parts(5, 100, 16), (5, 100), np.sum), ("b", parts(3, 70, 7), (3, 70), np.sum),
         ("c", parts(n, m, 8, rows=4), (6, 45), np.sum), ("d", parts(9, 33, 5, 3, te.max), (9, 33), np.max),
         ("e", parts(4, 20, 6, 0, te.min, "int32"), (4, 20), np.min), ("g", parts(2, 1, 1), (2, 1), np.sum)]
f, text = build(weft.IRModule({name: func.with_attr("global_symbol", name) for name, func, _, _ in cases}))
for name, func, shape, numpy in cases:
    x = (rng.standard_normal(shape) * 9).astype(func.buffer_map[0][1].dtype)
    a, b = put(x, x[:, 0] * 0)
    f[name](a, b)
    np.testing.assert_allclose(b.numpy(), numpy(x, axis=1), rtol=1e-5, atol=1e-5)
    assert "bar.sync" in weft.build(func, target="nvptx").get_source("ptx") or name == "g"

# What follows a reduction may be outside of its threads: all of them store the same.
A = te.placeholder((4, 32), name="A")
k = te.reduce_axis((0, 32))
S = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="S")
R = te.compute((4,), lambda i: S[i] * 2.0, name="R")
s = te.create_schedule(R.op)
s[S].bind(S.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
s[R].bind(R.op.axis[0], te.thread_axis("blockIdx.x"))
s[S].compute_at(s[R], R.op.axis[0])
f, text = build(s, [A, R])
x = rng.random((4, 32), "float32")
a, b = put(x, np.zeros(4, "float32"))
f(a, b)
np.testing.assert_allclose(b.numpy(), 2 * x.sum(1), rtol=1e-5)

# TIR schedules: the initial value is stored inside the nest; two axes of threads reduce together.
@T.prim_func
def total(A: T.Buffer((3, 6, 50), "float32"), B: T.Buffer((3,), "float32")):
    for i, j, k in T.grid(3, 6, 50):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SRR", [i, j, k])
            with T.init():
                B[vi] = T.float32(1)
            B[vi] = B[vi] + A[vi, vj, vk]
sch = tir.Schedule(total)
i, j, k = sch.get_loops(sch.get_block("B"))
outer, inner = sch.split(k, [None, 8])
sch.reorder(i, j, inner, outer)
for loop, tag in ((i, "blockIdx.x"), (j, "threadIdx.y"), (inner, "threadIdx.x")):
    sch.bind(loop, tag)
f, text = build(sch.mod)
x = rng.random((3, 6, 50), "float32")
a, b = put(x, np.zeros(3, "float32"))
f(a, b)
np.testing.assert_allclose(b.numpy(), 1 + x.sum((1, 2)), rtol=1e-5)
""")


def test_warp_shuffles_compile(program):
    """The host has no warps, so this only asks NVRTC."""
    program("""
from weft.target.cuda import emit_kernel
@T.prim_func
def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    for t in T.thread_binding(32, thread="threadIdx.x"):
        B[t] = A[t] + T.call_intrin("float32", "tir.tvm_warp_shuffle_down",
            T.call_intrin("uint32", "tir.tvm_warp_activemask"), A[t], 16, 32, 32)
text = emit_kernel(f).source
assert "__shfl_down_sync(" in text
try:
    assert b"SHFL" in compile_cuda(text) or compile_cuda(text)[:4] == b"\\x7fELF"
except MissingDependency:
    pass
""")
