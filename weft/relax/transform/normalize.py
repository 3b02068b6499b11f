"""Normalize: every function in normal form with all types inferred."""

from typing import Any

from weft.ir import Function, IRModule, function_pass
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import SeqExpr
from weft.relax.infer import function_type


@function_pass(kind=Function, ensures="relax.normalized")
def normalize(func: Function, mod: IRModule) -> Function:
    """Bring functions into normal form: nested operations bound to variables, types inferred.

    Requires: Well-formed Relax.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            return R.exp(R.add(x, x))

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            gv: R.Tensor((2, 3), "float32") = R.add(x, x)
            gv0: R.Tensor((2, 3), "float32") = R.exp(gv)
            return gv0
    Cost: Linear.
    Source: TVM's ``Normalize``.
    """
    if isinstance(func.body, SeqExpr) and func.ret_ty is not None and _is_normal(func.body):
        return func
    bb = BlockBuilder(mod)
    new: Any = bb.normalize(func)
    return new.replace(ret_ty=new.body.ty, ty=function_type(new))


def _is_normal(seq: SeqExpr) -> bool:
    bindings = [b for block in seq.blocks for b in block.bindings]
    return seq.ty is not None and all(
        b.var.ty is not None and getattr(b.value, "ty", None) is not None for b in bindings
    )
