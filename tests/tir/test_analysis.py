"""Questions about functions: operations, memory, accesses outside of buffers, and copies that share nothing."""

import pytest

import weft
from weft import error, ir, script, te, tir
from weft.ir import IRModule, structural_equal, walk
from weft.script import tir as T
from weft.tir.analysis import OOBChecker, access, calculate_allocated_bytes, estimate_tir_flops, verify_vtcm_limit


def test_flops_of_branches_and_loops():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(8):
            for j in range(i + 1):
                if A[i] > T.float32(0):
                    A[j] = A[i] * T.float32(2) + T.float32(1)
                else:
                    A[j] = A[i] - T.float32(1)
        for i in range(n):
            A[i] = A[i] + T.float32(1)

    assert estimate_tir_flops(IRModule({"f": f})) == 8 * 8 * 2 + 1
    assert estimate_tir_flops(IRModule({"f": f.with_attr("estimated_flops", 7)})) == 7


@T.prim_func
def nested(A: T.Buffer((8,), "float32")):
    with T.allocate([16], "float32", "global.vtcm") as a:
        B = T.Buffer((16,), "float32", data=a, scope="global.vtcm")
        B[0] = A[0]
        with T.allocate([4], "int8", "global.vtcm") as b:
            C = T.Buffer((4,), "int8", data=b, scope="global.vtcm")
            C[0] = T.int8(1)
        with T.allocate([8], "int8", "global.vtcm") as c:
            D = T.Buffer((8,), "int8", data=c, scope="global.vtcm")
            D[0] = T.int8(1)


def test_memory_at_one_time():
    assert calculate_allocated_bytes(nested) == {"main": {"global.vtcm": 64 + 8}}
    assert calculate_allocated_bytes(IRModule({"g": nested})) == {"g": {"global.vtcm": 72}}
    assert verify_vtcm_limit(nested, 72) and not verify_vtcm_limit(nested, 71) and verify_vtcm_limit(nested, 0)


def accessing(body):
    """Write a function whose loop i of 8 and parameter n say what is read of A, a buffer of 8 elements."""
    text = f"""
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
    for i in range(8):
        {body}
"""
    return IRModule({"f": script.from_source(text)})


@pytest.mark.parametrize(
    "body",
    [
        "B[i] = T.if_then_else(i > 0, A[i - 1], T.float32(0))",
        "B[i] = T.Select(i < 7, A[i + 1], T.float32(0))",
        "B[i] = T.Select(T.And(i > 0, A[i - 1] > 0), T.float32(1), T.float32(0))",
        "B[i] = T.Select(T.Or(i == 0, A[i - 1] > 0), T.float32(1), T.float32(0))",
        "B[i] = A[n]",
        "B[i] = A[i + n]",
        "B[i] = A[T.Cast('int32', A[i]) + 8]",
        "T.evaluate(T.address_of(A[8]))",
        "for j in range(i):\n            B[j] = A[i - j - 1]",
        "for j in range(0):\n            B[j] = A[9]",
        "if n < 3:\n            B[i] = A[i + 9]",
        "with T.block(''):\n            k = T.axis.reduce(8, i)\n            with T.init(): A[k * 2] = 0",
        "with T.block(''):\n            v = T.axis.spatial(8, i)\n            T.where(i < 7)\n            A[v + 1] = 1",
    ],
)
def test_accesses_that_may_be_inside(body):
    mod = accessing(body)
    assert OOBChecker()(mod) is mod


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("B[i] = A[i + 1]", "A dimension 0. index i . 1 is 8 where i = 7, outside the range .0, 8"),
        ("B[7 - i * 2] = A[i]", "B dimension 0. index 7 - i . 2 is -7 where i = 7"),
        ("B[i] = A[9]", "A dimension 0. index 9 is 9, outside"),
        ("if i > 3:\n            B[i] = A[i + 5]", "A dimension 0. index i . 5 is 12"),
        ("B[i] = T.if_then_else(i < 7, A[i], A[i + 1])", "A dimension 0. index i . 1 is 8"),
        ("for j in range(i, 8):\n            B[j - i] = A[j + i]", "j . i is 14 where i = 7, j = 7"),
        ("with T.block('b'):\n            v = T.axis.spatial(9, i + 1)\n            B[v] = A[0]", "index i . 1 is 8"),
        ("x: T.int32 = i * 2\n        B[i] = A[x]", "index i . 2 is 14"),
    ],
)
def test_accesses_outside(body, found):
    mod = accessing(body)
    for refuse in (OOBChecker(), weft.build, weft.compile):
        with pytest.raises(error.ScheduleError, match=found):
            refuse(mod)
    with weft.transform.PassContext(config={"tir.instrument_bound_checkers": True}):
        weft.build(mod)


def test_accesses_outside_of_any_size():
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i + 1], name="B")
    with pytest.raises(error.ScheduleError, match="A dimension 0. index i . 1 is n where i = n - 1, outside"):
        weft.build(te.create_prim_func([A, B]))


def test_renewed_functions_share_nothing():
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((8,), "float32"), n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + T.float32(1)

    new = weft.tir.renew_defs(f)
    assert structural_equal(f, new)
    own = [{n for n in walk(x) if isinstance(n, (tir.Var, tir.Buffer))} for x in (f, new)]
    assert own[0].isdisjoint(own[1]) and len(own[0]) == len(own[1])


@pytest.mark.parametrize("kind", [tir.Add, tir.FloorDiv, tir.Max, tir.EQ, tir.LT])
def test_operands_may_be_numbers(kind):
    x = tir.Var("x", "int64")
    assert kind(x, 3).b.dtype == "int64" == kind(3, x).a.dtype
    assert weft.arith.Analyzer().simplify(kind(x, 3) == kind(x, 3)) is not None


def test_other_constructors_take_numbers():
    assert tir.Cast("float32", 3).value.dtype == "int32" and tir.Not(True).a.dtype == "bool"
    let = tir.Let(tir.Var("y", "int64"), 3, 4)
    assert (let.value.dtype, let.body.dtype) == ("int64", "int32")


def test_calls_by_name():
    vector = tir.Var("v", "int8x16")
    assert tir.vectorlow("int8x8", vector).dtype == "int8x8" == tir.vectorhigh("int8x8", vector).dtype
    assert tir.vectorcombine("int8x32", vector, vector).dtype == "int8x32"
    buffer = tir.decl_buffer((4, 4), "float32")
    assert structural_equal(tir.address_of(buffer), tir.address_of(buffer[0, 0]))
    assert tir.assume(cond=tir.Var("c", "bool")).op.name == "tir.assume"


@pytest.mark.parametrize(("kind", "left"), [("Pure", 0), ("ReadState", 1), ("Opaque", 1)])
def test_programs_say_what_calls_of_their_operators_do(kind, left):
    """Evaluating a pure call computes nothing, so it goes."""
    name = f"tir.mine_{kind}"
    ir.register_op_attr(name, "TCallEffectKind", getattr(tir.CallEffectKind, kind))
    body = tir.Evaluate(tir.call_intrin("float32", name, tir.const(1.0, "float32")))
    mod = IRModule({"f": tir.PrimFunc((), tir.SeqStmt((body, body)))})
    kept = [n for n in walk(tir.transform.RemoveNoOp()(mod)["f"].body) if isinstance(n, ir.CallIntrin)]
    assert len(kept) == left  # one object, twice


def test_regions_of_matched_buffers_are_those_of_their_sources():
    @T.prim_func
    def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i in range(2):
            with T.block("rows"):
                v = T.axis.spatial(2, i)
                top = T.match_buffer(A[v * 4 : v * 4 + 2, 0:8], (2, 8))
                low = T.match_buffer(A[v * 4 + 2 : v * 4 + 4, 0:8], (2, 8))
                out = T.match_buffer(B[v * 4 + 1, 0:8], (8,))
                T.evaluate(T.call_extern("int32", "f", top.data, low.data))
                for j in range(4):
                    out[j] = top[0, j + 1]

    block = f.body.block.body.body.block
    assert [str(r) for r in (*block.reads, *block.writes)] == ["A[v * 4, 1:5]", "B[v * 4 + 1, 0:4]"]
    *_, opaque = tir.analysis.get_block_access_region(block, {b.data: b for b in f.buffer_map.values()})
    assert [str(r) for r in opaque] == ["A[v * 4:v * 4 + 4, 0:8]"]


def test_loops_are_bounded_once_for_the_accesses_of_a_body(monkeypatch):
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            for j in range(i, i + 4):
                B[j] = A[i] + A[i + j] + A[j * 2] + B[j]
            B[i] = A[i + 40]

    asked = []
    monkeypatch.setattr(access, "_intervals", lambda domain, real=access._intervals: asked.append(1) or real(domain))
    reads, writes = access.block_regions(None, f.body)
    assert len(asked) == 2  # once for each body
    assert [[str(r.region[0].min + r.region[0].extent) for r in rs] for rs in (reads, writes)] == [["48", "11"], ["11"]]
