"""LowerCrossThreadReduction: what is a reduction over threads, and what stays as it is."""

from weft.ir import IRModule, walk
from weft.script import tir as T
from weft.tir import For, transform


def lowered(func):
    return transform.LowerCrossThreadReduction()(IRModule({"main": func}))["main"]


def shared(func):
    return [n.buffer for n in walk(func.body) if type(n).__name__ == "AllocBuffer" and n.buffer.scope == "shared"]


def test_other_axes_of_the_block_have_their_own_part():
    @T.prim_func
    def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for ty in T.thread_binding(4, thread="threadIdx.y"):
            B[ty] = 0.0
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                B[ty] = B[ty] + A[ty, tx]

    (parts,) = shared(lowered(f))
    assert parts.shape[0].value == 32


def test_it_is_idempotent():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            B[0] = B[0] * A[tx]

    once = lowered(f)
    assert lowered(once) is once


def test_what_is_no_reduction_over_threads_stays():
    @T.prim_func
    def own_element(A: T.Buffer((8, 3), "float32"), B: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            for k in range(3):
                B[tx] = B[tx] + A[tx, k]

    @T.prim_func
    def blocks(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
        for bx in T.thread_binding(8, thread="blockIdx.x"):
            B[0] = B[0] + A[bx]

    @T.prim_func
    def serial(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32")):
        for i in range(8):
            B[0] = B[0] + A[i]

    @T.prim_func
    def prefix_sum(A: T.Buffer((8,), "float32"), B: T.Buffer((1,), "float32"), C: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            B[0] = B[0] + A[tx]
            C[tx] = B[0]

    for f in (own_element, blocks, serial, prefix_sum):
        assert lowered(f) is f


def test_a_condition_on_the_row_guards_the_store():
    @T.prim_func
    def f(A: T.Buffer((10, 8), "float32"), B: T.Buffer((10,), "float32")):
        for bx in T.thread_binding(3, thread="blockIdx.x"):
            for tx in T.thread_binding(8, thread="threadIdx.x"):
                if bx * 4 < 10 and tx < 5:
                    B[bx] = T.max(B[bx], A[bx, tx])

    text = str(lowered(f))
    assert "if tx == 0 and bx * 4 < 10:" in text and "if bx * 4 < 10 and tx < 5:" in text
    assert [n.loop_var.name for n in walk(lowered(f).body) if isinstance(n, For)] == ["bx", "tx"]
