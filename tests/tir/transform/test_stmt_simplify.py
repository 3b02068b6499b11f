"""StmtSimplify, the public pass: what TVM's does to values."""

from weft import ir, tir
from weft.tir.transform import StmtSimplify


def test_casts_of_constants_are_computed():
    a = tir.decl_buffer((4,), "float32", "A")
    store = tir.BufferStore(a, tir.Cast("float32", tir.const(3, "int32")), (tir.const(0, "int32"),))
    after = StmtSimplify()(ir.IRModule({"main": tir.PrimFunc([a.data], store)}))["main"].body
    assert isinstance(after.value, ir.FloatImm) and after.value.value == 3.0 and after.value.dtype == "float32"
