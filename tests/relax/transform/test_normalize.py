"""Normalize: nested expressions get variables and types."""

from weft import ir, relax
from weft.ir.spec import SPECS, violations
from weft.relax.transform import normalize


def test_nested_calls_get_variables():
    x = relax.Var("x", relax.tensor_type((0, 4), "float32"))
    exp = ir.Call(ir.Op.get("relax.exp"), (x,), ir.Attrs.of())
    func = ir.Function((x,), ir.Call(ir.Op.get("relax.add"), (exp, exp), ir.Attrs.of()), None)
    out = normalize()(ir.IRModule({"main": func}))
    assert not violations(out, SPECS["relax.normalized"])
    assert normalize()(out)["main"] is out["main"]
    assert out["main"].ret_ty.shape[0].value == 0


def test_scalars_stand_where_expressions_do():
    """A scalar of TVM's programs is a value of Relax where it is bound, packed, passed, tested or returned."""
    n = ir.Var("n", "int64")
    x, v = relax.Var("x", relax.TensorType((n,), "float32")), relax.Var("v", ir.PrimType("int64"))
    bound = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(v, n + 1),)),), v)
    call = ir.Call(ir.ExternFunc("f"), (n, 3, 2.5), ir.Attrs.of(), (relax.AnyType(),))
    for body in (bound, ir.Tuple((x, n)), ir.If(n > 1, x, x), call, n):
        out = normalize()(ir.IRModule({"main": ir.Function((x,), body, None, body is not call)}))
        assert not violations(out, SPECS["relax.normalized"])
