"""DecomposeOps: operators that declare how they are made of simpler ones are replaced by those."""

from __future__ import annotations

from typing import Any

from weft.ir import Call, Expr, Function, IRModule, Op, TupleGetItem, function_pass
from weft.op import get_op_def
from weft.relax.core_ops import CORE_OPS
from weft.relax.rewriter import rewrite_bindings

__all__ = ["decompose_ops"]


@function_pass(kind=Function, opt_level=0)
def decompose_ops(func: Function, mod: IRModule) -> Function:
    """Replace operators by their ``decompose`` declaration.

    Requires
        ``relax.normalized``.
    Ensures
        ``relax.normalized``; no operator with a decomposition that applies.
    Example
        Before::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                with R.dataflow():
                    y = R.nn.dropout(x)
                    R.output(y)
                return y

        After::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
                return x
    Cost
        Linear.
    Source
        TVM's ``DecomposeOpsForInference``.
    """

    def rule(_binding: Any, value: Expr, _bb: Any) -> Expr | None:
        if isinstance(value, TupleGetItem):
            return value
        if (
            not isinstance(value, Call)
            or not isinstance(value.op, Op)
            or value.op.name.removeprefix("relax.") in CORE_OPS
        ):
            return None
        decompose = getattr(get_op_def(value.op), "decompose", None)
        return decompose(*value.args, **dict(value.attrs.items)) if decompose is not None else None

    return rewrite_bindings(func, mod, rule)
