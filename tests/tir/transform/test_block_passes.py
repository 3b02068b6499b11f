"""Passes over blocks one after another: what is computed stays, and each step refuses what it cannot take."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error
from weft.ir import GlobalVar, IRModule, walk
from weft.script import tir as T
from weft.tir import analysis, transform
from weft.tir.interpret import interpret
from weft.tir.schedule import Schedule
from weft.tir.stmt import Block


@T.prim_func
def sums(A: T.Buffer((6, 10), "float32"), C: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6, 10), "float32")
    S = T.alloc_buffer((6,), "float32")
    for i, j in T.grid(6, 10):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(j < 9)
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, k in T.grid(6, 9):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + B[vi, vk]
    for i in range(6):
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            C[vi] = S[vi] + T.float32(1)


STEPS = [
    transform.LowerInitBlock,
    transform.PlanAndUpdateBufferAllocationLocation,
    transform.ConvertBlocksToOpaque,
    transform.LowerMatchBuffer,
    transform.LowerOpaqueBlock,
    transform.StmtSimplify,
]


def run(func):
    x = np.random.default_rng(0).standard_normal((6, 10)).astype("float32")
    out = weft.runtime.tensor(np.zeros(6, "float32"))
    weft.build(func, target="llvm")(weft.runtime.tensor(x), out)
    np.testing.assert_allclose(out.numpy(), 2 * x[:, :9].astype("float64").sum(1) + 1, rtol=1e-5)


@pytest.mark.parametrize("count", range(1, len(STEPS) + 1))
def test_every_step_keeps_what_is_computed(count):
    sch = Schedule(sums)
    sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("S"))[0])
    mod = IRModule({"main": sch.func})
    for step in STEPS[:count]:
        mod = step()(mod)
    if count >= 5:
        assert not any(isinstance(n, Block) for n in walk(mod["main"].body))
        run(mod["main"])
    elif count == 1:
        run(mod["main"])


def test_where_buffers_are_used():
    sch = Schedule(sums)
    loop = sch.get_loops(sch.get_block("S"))[0]
    sch.compute_at(sch.get_block("B"), loop)
    func = sch.func
    places = analysis.detect_buffer_access_lca(func)
    named = {b.name: s for b, s in places.items()}
    assert named["B"].loop_var is sch.get(loop).loop_var
    assert named["A"].name_hint == "B" and named["C"].name_hint == "C"
    assert named["S"] is func.body.block  # the reduction writes it in all its steps, and C reads it


def test_regions_of_a_block():
    block = Schedule(sums).get(Schedule(sums).get_block("S"))
    buffers = {b.data: b for r in (*block.reads, *block.writes) for b in [r.buffer]}
    reads, writes, opaque = analysis.get_block_access_region(block, buffers)
    assert [r.buffer.name for r in reads] == ["B"] and [w.buffer.name for w in writes] == ["S"] and not opaque


def test_refusals():
    mod = IRModule({"main": sums})
    refuses(weft.error.LoweringError, "LowerInitBlock goes first", transform.ConvertBlocksToOpaque(), mod)
    refuses(weft.error.LoweringError, "ConvertBlocksToOpaque goes first", transform.LowerOpaqueBlock(), mod)

    @T.prim_func
    def uneven(A: T.Buffer((4,), "float32")):
        for _b in T.thread_binding(1, thread="blockIdx.x"):
            for i in T.thread_binding(4, thread="threadIdx.x"):
                A[i] = T.float32(1)
            for j in T.thread_binding(3, thread="threadIdx.x"):
                A[j] = T.float32(1)

    refuses(weft.error.InvalidArgument, "different extents", transform.UnifyThreadBinding(), IRModule({"main": uneven}))


def test_flat_elements():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4, 3), "float32")
        B = T.match_buffer(b, (12,), "float32")
        for i in range(12):
            T.store(B.data, i, T.load("float32", A.data, 11 - i) + T.float32(1))

    x = np.arange(12, dtype="float32").reshape(4, 3)
    out = weft.runtime.tensor(np.zeros(12, "float32"))
    weft.build(f, target="llvm")(weft.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), x.reshape(-1)[::-1] + 1)


def test_functions_as_wholes():
    mod = IRModule({"main": sums, "other": sums.with_attr("mark", 1).without_attr("global_symbol")})
    assert [v.name_hint for v in transform.Filter(lambda f: f.attrs.get("mark") is None)(mod)] == ["main"]
    marked = transform.Apply(lambda f: f.with_attr("seen", True))(mod)
    assert all(f.attrs["seen"] for _, f in marked.items())
    target = weft.target.Target("cuda").with_host("llvm")
    bound = transform.BindTarget(target)(mod)
    assert bound["main"].attrs["target"] == target and bound["other"].attrs["target"].host is None
    assert isinstance(next(iter(bound)), GlobalVar)


CLAIMS = {
    "one stride is not two": (
        "s = T.int32()",
        "A[0:1, 0:8], (1, 8), strides=[s, s], offset_factor=1",
        "sub[0, 1] = 1.0",
    ),
    "a parameter is a stride": ("", "A[0:1, 0:8], (1, 8), strides=[m, 1], offset_factor=1", "sub[0, 1] = 1.0"),
    "a dimension of an argument": ("", "A[0:4, 0:8], (4, n), offset_factor=1", "sub[0, 1] = 1.0"),
    "a loop's variable": ("", "A[i, 0:8], (i,), offset_factor=1", "sub[1] = 1.0"),
    "no offset": ("", "A[i, 0:8], (8,), elem_offset=0", "sub[1] = 1.0"),
    "an address of what declares none": ("", "A[i, 0:8], (8,)", 'T.evaluate(T.call_extern("int32", "f", sub.data))'),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_matched_buffer_claims_of_its_region_holds(claim):
    before, matched, use = CLAIMS[claim]
    body = f"{before}\n            sub = T.match_buffer({matched})\n            {use}"
    f = weft.script.from_source(f"""
@T.prim_func(check_well_formed=False)
def f(A: T.Buffer((8, 8), "float32"), b: T.handle, m: T.int32):
    n = T.int32()
    B = T.match_buffer(b, (n,), "float32")
    for i in range(4):
        with T.block("b"):
            T.reads()
            T.writes(A[0:8, 0:8])
            {body}
""")
    mod = IRModule({"main": f})
    for pass_ in (transform.LowerMatchBuffer(), transform.lower_blocks):
        refuses(error.LoweringError, "match_buffer: 'sub' ", pass_, mod)
    with pytest.raises(error.LoweringError, match="match_buffer: 'sub' "):
        interpret(f, np.zeros((8, 8), "float32"), np.zeros(8, "float32"), 3)
