"""LowerCrossThreadReduction on blocks: the parts, the all-reduce, who stores, and what is refused."""

import pytest

from tests.refusals import refuses
from weft import error, ir, tir
from weft.script import from_source
from weft.script import tir as T


def lowered(func):
    return tir.transform.LowerCrossThreadReduction()(ir.IRModule({"main": func}))["main"]


def blocks(func):
    return {b.name_hint: b for b in ir.walk(func.body) if isinstance(b, tir.Block)}


@T.prim_func
def split(A: T.Buffer((8, 128), "float32"), B: T.Buffer((8,), "float32")):
    for i, ko in T.grid(8, 4):
        for ki in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vk = T.axis.reduce(128, ko * 32 + ki)
                T.where(i < 7 and ko * 32 + ki < 100)
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


def test_parts_of_a_reduction():
    out = lowered(split)
    found = blocks(out)
    assert list(found) == ["root", "B_in_thread_init", "B_in_thread", "B_cross_thread", "B_write_back"]
    assert [b.scope for b in found["root"].alloc_buffers] == ["local", "local"]
    call = next(n for n in ir.walk(found["B_cross_thread"]) if isinstance(n, tir.Call))
    assert call.op.name == "tir.tvm_thread_allreduce" and len(call.args) == 5
    realize = next(r for r in ir.walk(out.body) if isinstance(r, tir.BlockRealize) and r.block is found["B_write_back"])
    thread = next(n for n in ir.walk(out.body) if isinstance(n, tir.For) and n.thread_binding is not None)
    assert ir.structural_equal(realize.predicate.b, thread.loop_var == 0) and "i < 7" in str(realize.predicate)
    assert sum(isinstance(n, tir.For) and n.thread_binding is not None for n in ir.walk(out.body)) == 1


def test_several_values_at_once():
    @T.prim_func
    def argmax(V: T.Buffer((8, 32), "float32"), P: T.Buffer((8,), "int32"), M: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("m"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        P[vi] = -1
                        M[vi] = T.min_value("float32")
                    with T.LetStmt(T.Select(M[vi] >= V[vi, vk], P[vi], vk)) as a:
                        with T.LetStmt(T.Select(M[vi] >= V[vi, vk], M[vi], V[vi, vk])) as b:
                            P[vi] = a
                            M[vi] = b

    node = next(n.node for n in ir.walk(lowered(argmax).body) if isinstance(n, tir.AttrStmt))
    x0, x1, y0, y1 = *node.lhs, *node.rhs
    assert ir.structural_equal(node.result, (tir.Select(x1 >= y1, x0, y0), tir.Select(x1 >= y1, x1, y1)))
    script = T.comm_reducer(lambda a, b: a + b, [T.float32(0)])
    assert isinstance(script, tir.CommReducer) and script.lhs[0].dtype == "float32"


def test_one_thread_stores_what_follows():
    @T.prim_func
    def f(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8,), "float32")):
        S = T.alloc_buffer((8,), scope="local")
        for i in T.thread_binding(8, thread="blockIdx.x"):
            for k in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("S"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        S[vi] = T.float32(0)
                    S[vi] = S[vi] + A[vi, vk]
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = S[vi] * T.float32(2)

    realize = [r for r in ir.walk(lowered(f).body) if isinstance(r, tir.BlockRealize)][-1]
    assert realize.block.name_hint == "B" and isinstance(realize.predicate, tir.EQ)


@pytest.mark.parametrize(
    ("threads", "step", "match"),
    [
        ("blockIdx.x", "B[vi] = B[vi] + A[vi, vk]", "blocks of threads"),
        ("threadIdx.x", "B[vi] = B[vi] - A[vi, vk]", "no sum, product"),
        ("threadIdx.x", "C[0] = A[vi, vk]; B[vi] = B[vi] + C[0]", "does more than"),
    ],
)
def test_refusals(threads, step, match):
    """No reduction is left to a race."""
    f = from_source(f"""
@T.prim_func
def f(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
    for i in range(8):
        for k in T.thread_binding(32, thread="{threads}"):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                {step}
""")
    refuses(error.InvalidArgument, match, lowered, f)
