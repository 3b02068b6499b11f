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
