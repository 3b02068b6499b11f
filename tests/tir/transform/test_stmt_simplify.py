"""StmtSimplify, the public pass: what TVM's does to values."""

from weft import ir, tir
from weft.tir.transform import StmtSimplify


def test_casts_of_constants_are_computed():
    a = tir.decl_buffer((4,), "float32", "A")
    store = tir.BufferStore(a, tir.Cast("float32", tir.const(3, "int32")), (tir.const(0, "int32"),))
    after = StmtSimplify()(ir.IRModule({"main": tir.PrimFunc([a.data], store)}))["main"].body
    assert isinstance(after.value, ir.FloatImm) and after.value.value == 3.0 and after.value.dtype == "float32"


def test_of_a_choice_that_is_decided_one_case_is_left():
    a, i = tir.decl_buffer((8,), "float32", "A"), tir.Var("i", "int32")
    taken, other = tir.BufferLoad(a, (i,)), tir.BufferLoad(a, (i + 1,))
    inner = tir.if_then_else(i >= 8, other, tir.Select(i < 4, taken, other)) * 2.0
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(a, tir.if_then_else(i < 5, inner, other), (i,)))
    after = StmtSimplify()(ir.IRModule({"main": tir.PrimFunc([a.data], loop)}))["main"].body.body
    ir.assert_structural_equal(after.value, taken * 2.0, map_free_vars=True)
