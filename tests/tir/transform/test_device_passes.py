"""ThreadSync and SplitHostDevice: where barriers stand, what becomes a kernel, what is refused."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir
from weft.script import tir as T


def apply(p, func, name="main"):
    return p(weft.IRModule({name: func}))


def barriers(func):
    return [n for n in ir.walk(func.body) if isinstance(n, tir.Call) and n.op.name == "tir.tvm_storage_sync"]


def test_a_barrier_stands_between_writer_and_reader_only():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            S = T.alloc_buffer((16,), scope="shared")
            R = T.alloc_buffer((1,), scope="local")
            R[0] = A[t]
            S[t] = R[0]
            B[t] = A[t]
            B[t] = S[15 - t] + S[t]

    assert len(barriers(apply(tir.transform.ThreadSync("shared"), f)["main"])) == 1
    assert apply(tir.transform.ThreadSync("warp"), f)["main"] is f


def test_a_loop_waits_for_its_last_iteration():
    @T.prim_func
    def f(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for k in range(8):
                S = T.alloc_buffer((16,), scope="shared")
                S[t] = A[k, t]
                B[k, t] = S[15 - t]

    out = apply(tir.transform.ThreadSync("shared"), f)["main"]
    assert len(barriers(out)) == 2
    loop = next(n for n in ir.walk(out.body) if isinstance(n, tir.For) and n.kind == tir.ForKind.SERIAL)
    assert isinstance(loop.body.seq[0], tir.Evaluate)


def test_a_barrier_in_a_test_of_threads_is_refused():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            S = T.alloc_buffer((16,), scope="shared")
            if t < 8:
                S[t] = A[t]
                B[t] = S[7 - t]

    refuses(error.LoweringError, "would not reach a barrier", apply, tir.transform.ThreadSync("shared"), f)


def bound(n, factor=32):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=factor)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    return te.schedule.schedule_to_prim_func(s, [a, b], "double")


def test_split_with_a_symbolic_length():
    mod = apply(tir.transform.SplitHostDevice(), bound(te.size_var("n")), "double")
    assert sorted(v.name_hint for v, _ in mod.items()) == ["double", "double_kernel"]
    host, device = mod["double"], mod["double_kernel"]
    (call,) = [n for n in ir.walk(host.body) if isinstance(n, tir.Call) and n.op.name == "tir.tvm_call_packed"]
    assert call.args[0].value == "double_kernel"
    assert [b.name for b in call.args[1:3]] == ["B", "A"] and call.args[3].name == "n"
    assert len(call.args) == 6 and call.args[5].value == 32
    assert device.attrs["tir.is_global_func"] and device.attrs["calling_conv"] == 2
    assert list(device.attrs["tir.kernel_launch_params"]) == ["blockIdx.x", "threadIdx.x"]
    assert not any(isinstance(n, tir.For) for n in ir.walk(host.body))
    assert tir.analysis.verify_well_formed(mod)
    again = tir.transform.SplitHostDevice()(mod)
    assert again["double"] is host and again["double_kernel"] is device


def test_two_nests_become_two_kernels():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            B[t] = A[t]
        for t in T.thread_binding(8, thread="threadIdx.x"):
            B[t] = B[t] + 1.0

    mod = apply(tir.transform.SplitHostDevice(), f)
    assert sorted(v.name_hint for v, _ in mod.items()) == ["f_kernel", "f_kernel_1", "main"]


def test_an_extent_that_only_the_device_knows():
    @T.prim_func
    def f(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(A[b], thread="threadIdx.x"):
                B[t] = 0.0

    refuses(error.LoweringError, "known only on the device", apply, tir.transform.SplitHostDevice(), f)


@pytest.mark.parametrize(("scope", "expected"), [("shared", 1), ("warp", 2)])
def test_a_barrier_that_stands_there_is_enough_if_the_whole_block_waits(scope, expected):
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((64,), scope="shared")
            S[t] = A[t]
            T.evaluate(T.call_intrin("void", "tir.tvm_storage_sync", scope))
            B[t] = S[63 - t]

    assert len(barriers(apply(tir.transform.thread_sync("shared"), f)["main"])) == expected


def test_what_a_block_shares_shrinks_to_what_its_threads_use():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 16), "float32")
        B = T.match_buffer(b, (n, 16), "float32")
        for row in T.thread_binding(n, thread="blockIdx.x"):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                S = T.alloc_buffer((n, 16), scope="shared")
                S[row, t] = A[row, t]
                B[row, t] = S[row, 15 - t]

    out = apply(tir.transform.compact_buffer(), f)["main"]
    (shared,) = [n.buffer for n in ir.walk(out.body) if isinstance(n, tir.AllocBuffer)]
    assert [int(d) for d in shared.shape] == [1, 16]


@T.prim_func
def taking_turns(A: T.Buffer((64,), "float32"), n: T.int32):
    for _ in T.thread_binding(1, thread="threadIdx.x"):
        B = T.alloc_buffer((64,), scope="shared.dyn")
        C = T.alloc_buffer((8, 8), "float16", scope="shared.dyn")
        D = T.alloc_buffer((33,), scope="shared.dyn")
        E = T.alloc_buffer((64,), "int64", scope="shared.dyn")
        for i in range(64):
            B[i] = A[63 - i]
            C[i // 8, i % 8] = T.Cast("float16", B[i])
        T.tvm_storage_sync("shared.dyn")
        for i in range(33):
            D[i] = T.Cast("float32", C[i // 8, i % 8]) + B[i + 1]
            T.tvm_storage_sync("shared.dyn")
        if n > 0:
            T.tvm_storage_sync("shared.dyn")
        for i in range(64):
            E[i] = T.Cast("int64", D[i // 2])
        for i in range(64):
            A[i] = T.Cast("float32", E[63 - i])


def test_buffers_of_a_kernel_take_turns_in_one_memory():
    def as_host(node):
        if isinstance(node, tir.For):
            return tir.For(node.loop_var, node.min, node.extent, tir.ForKind.SERIAL, node.body)
        return tir.Evaluate(0) if isinstance(node, tir.Evaluate) and "tvm_storage_sync" in str(node) else node

    merged = apply(tir.transform.MergeSharedMemoryAllocations(), taking_turns)["main"]
    (memory,) = [n.buffer for n in ir.walk(merged.body) if isinstance(n, tir.AllocBuffer)]
    assert memory.dtype == "uint8" and int(memory.shape[0]) == 528 + 512  # E lies over B and C, D behind E
    results = [weft.runtime.tensor(np.arange(64, dtype="float32")) for _ in range(2)]
    for func, given in zip((taking_turns, merged), results, strict=True):
        weft.build(func.replace(body=ir.rewrite(func.body, as_host)), target="llvm")(given, 0)
    np.testing.assert_array_equal(*(r.numpy() for r in results))
