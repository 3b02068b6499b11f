"""LowerMath: functions of float32 become polynomials, so that no loop calls out of its vectors."""

from __future__ import annotations

from typing import Any

from weft.ir import CallIntrin, Cast, DataType, IRModule, Let, Op, Var, function_pass, rewrite, with_lanes
from weft.tir.function import PrimFunc
from weft.tir.transform.math_float32 import POLYNOMIALS
from weft.tir.transform.math_scaled import SCALED

__all__ = ["lower_math"]


@function_pass(kind=PrimFunc)
def lower_math(func: PrimFunc, mod: IRModule, *, scaled_lanes: tuple[int, ...] = ()) -> PrimFunc:
    """Write out exp, log, tanh, erf, ... of float32, scalar or vector; of 16-bit floats through float32.

    Requires
        No blocks.
    Ensures
        The same form; those intrinsics remain on float64 only.

    Parameters
    ----------
        ``scaled_lanes``: lengths of float32 vectors that the target multiplies by powers of two in one instruction.
    Cost
        Linear; some 20 to 60 nodes for each call.
    """
    body = rewrite(func.body, lambda node: _rule(node, scaled_lanes))
    return func if body is func.body else func.replace(body=body)


def _rule(node: Any, scaled_lanes: tuple[int, ...]) -> Any:
    if type(node) is not CallIntrin or not isinstance(node.op, Op):
        return node
    polynomial = POLYNOMIALS.get(node.op.name)
    if polynomial is None:
        return node
    dt = DataType(node.dtype)
    if not dt.is_float or dt.bits > 32:
        return node
    if dt.lanes in scaled_lanes:
        polynomial = SCALED.get(node.op.name, polynomial)
    wide = with_lanes("float32", dt.lanes)
    args = [a if dt.bits == 32 else Cast(wide, a) for a in node.args]
    variables = [a if isinstance(a, Var) else Var("x", wide) for a in args]
    result = polynomial(*variables)
    for v, a in zip(reversed(variables), reversed(args), strict=True):
        if v is not a:
            result = Let(v, a, result)
    return result if dt.bits == 32 else Cast(dt, result)
