"""Normalize: nested expressions get variables and types."""

from weft import relax
from weft.ir import Attrs, Call, Function, IRModule, Op
from weft.ir.spec import SPECS, violations
from weft.relax.transform import normalize


def test_nested_calls_get_variables():
    x = relax.Var("x", relax.tensor_type((0, 4), "float32"))
    exp = Call(Op.get("relax.exp"), (x,), Attrs.of())
    func = Function((x,), Call(Op.get("relax.add"), (exp, exp), Attrs.of()), None)
    out = normalize()(IRModule({"main": func}))
    assert not violations(out, SPECS["relax.normalized"])
    assert normalize()(out)["main"] is out["main"]
    assert out["main"].ret_ty.shape[0].value == 0
