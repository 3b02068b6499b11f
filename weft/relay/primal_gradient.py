"""What flows back through a call of a Relay operator: from the adjoint of its value, those of its arguments.

An operator has the gradient of what it expands to, unless a program registers another (``FPrimalGradient``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir, relax
from weft.error import InvalidArgument
from weft.relax.transform import DecomposeOpsForInference
from weft.relax.transform.gradient import pullback
from weft.relay.expr import Call, Constant, Tuple, TupleGetItem
from weft.relay.import_relax import imported
from weft.relay.op.registry import op_call
from weft.relay.to_relax import RelaxBuilder, relax_type


def is_float(ty: ir.Type | None) -> bool:
    """Whether a type is that of a tensor of real numbers, which has adjoints."""
    return isinstance(ty, ir.TensorType) and ir.DataType(ty.dtype).is_float


def zeros_of(value: ir.Expr, ty: ir.Type | None) -> Any:
    """Return the adjoint of a value that nothing depends on."""
    if isinstance(ty, ir.TupleType):
        return Tuple(tuple(zeros_of(field_of(value, i), t) for i, t in enumerate(ty.fields)))
    return op_call("zeros_like", value)


def ones_of(value: ir.Expr, ty: ir.Type | None) -> Any:
    """Return the adjoint of a result: 1, of several results that of the first, and 0 for the others.

    Raises
    ------
    InvalidArgument
        When what is differentiated are integers or truth values.
    """
    if isinstance(ty, ir.TupleType):
        rest = (zeros_of(field_of(value, i), t) for i, t in enumerate(ty.fields) if i)
        return Tuple((ones_of(field_of(value, 0), ty.fields[0]), *rest)) if ty.fields else Tuple(())
    if isinstance(ty, ir.TensorType) and not is_float(ty):
        raise InvalidArgument(
            "gradient: only results that are real numbers have derivatives",
            found=ty.dtype,
            where=value.span,
            help="cast the arguments to float32",
        )
    return op_call("ones_like", value)


def field_of(value: ir.Expr, i: int) -> Any:
    """Return a field of a tuple, of a tuple that is written down without a projection."""
    return value.fields[i] if isinstance(value, ir.Tuple) else TupleGetItem(value, i)


def primal_gradient(call: Call, args: Sequence[ir.Expr], adjoint: ir.Expr) -> list[Any]:
    """Return the adjoints of a call's arguments.

    Parameters
    ----------
    call : Call
        Of an operator, with types.
    args : list of Expr
        What stands for the arguments.
    adjoint : Expr
        The adjoint of the result.

    Raises
    ------
    UnsupportedOperator
        When something that the operator expands to has no gradient.
    """
    rule = call.op.get_attr("FPrimalGradient") if isinstance(call.op, ir.Op) else None
    if rule is not None:
        again = Call(call.op, tuple(args), call.attrs, span=call.span, ty=call.ty)
        return list(rule(again, adjoint))
    bb, params, given = relax.BlockBuilder(), [], []
    builder = RelaxBuilder(bb)
    holders = []

    def holder(value: Any, ty: ir.Type) -> Any:
        if isinstance(ty, ir.TupleType):
            return ir.Tuple(tuple(holder(field_of(value, i), t) for i, t in enumerate(ty.fields)))
        params.append(ir.ExprVar(f"p{len(params)}", relax_type(ty, builder.fresh_dim)))
        given.append(value)
        return params[-1]

    for old, value in zip(call.args, args, strict=True):
        made = builder.convert(old) if isinstance(old, Constant) else holder(value, old.ty)
        builder.define(old, made)
        holders.append(made)
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(builder.convert(call))
        bb.emit_func_output(out)
    plain: Any = DecomposeOpsForInference()(bb.get())["main"]
    back = iter(imported(pullback(plain), [*given, adjoint]).fields)
    found = {p: next(back) for p in params if is_float(p.ty)}
    return [_gathered(h, v, found) for h, v in zip(holders, args, strict=True)]


def _gathered(holder: Any, value: Any, found: dict[Any, Any]) -> Any:
    """Put the adjoints of the parameters that stand for an argument together."""
    if isinstance(holder, ir.Tuple):
        return Tuple(tuple(_gathered(h, field_of(value, i), found) for i, h in enumerate(holder.fields)))
    return found[holder] if holder in found else op_call("zeros_like", value)
