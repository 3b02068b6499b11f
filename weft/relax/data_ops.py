"""Operators whose result's shape is data: ``unique`` and ``nonzero``, which functions of the runtime compute."""

from __future__ import annotations

from weft import error, ir
from weft.relax.core_ops import core_op, tensor_operand


def unique(
    x: ir.Expr,
    sorted: bool | ir.Expr = True,
    return_index: bool | ir.Expr = False,
    return_inverse: bool | ir.Expr = False,
    return_counts: bool | ir.Expr = False,
    axis: int | ir.Expr | None = None,
) -> ir.Call:
    """Take each element of a tensor, or each part along an axis, once.

    Parameters
    ----------
    sorted : bool
        Whether the elements are sorted; else they come in the order of their first appearance.
    return_index, return_inverse, return_counts : bool
        Whether the result is a tuple that has also: where each stands first, which one stands at each place, how
        often each appears.
    axis : int, optional
        By default the tensor is flattened.
    """
    given = (sorted, return_index, return_inverse, return_counts)
    flags = (f if isinstance(f, ir.Expr) else ir.prim_value(ir.int64(int(f))) for f in given)
    last = () if axis is None else (axis if isinstance(axis, ir.Expr) else ir.prim_value(axis),)
    return ir.Call(ir.Op.get("relax.unique"), (x, *flags, *last))


def nonzero(x: ir.Expr) -> ir.Call:
    """List the places of the elements that are not zero: ``(ndim, number) int64``."""
    return ir.Call(ir.Op.get("relax.nonzero"), (x,))


@core_op("unique")
def _unique_type(call: ir.Call) -> ir.Type:
    ty = tensor_operand(call)
    axis = ir.as_int(call.args[5].value) if len(call.args) > 5 else None  # type: ignore[attr-defined]
    if axis is not None and ty.ndim >= 0 and not -ty.ndim <= axis < ty.ndim:
        raise error.ShapeMismatch("unique: there is no such axis", expected=f"rank {ty.ndim}", found=str(axis))
    one = (ir.int64(1),) if ty.ndim == 0 else None
    rank = ty.ndim if axis is not None and ty.ndim != 0 else 1
    types = [ir.TensorType(one, ty.dtype, rank, ty.vdevice)]
    types += [ir.TensorType(one, "int64", 1, ty.vdevice) for flag in call.args[2:5] if ir.as_int(flag.value)]  # type: ignore[attr-defined]
    return types[0] if len(types) == 1 else ir.TupleType(tuple(types))


@core_op("nonzero")
def _nonzero_type(call: ir.Call) -> ir.Type:
    return ir.TensorType(None, "int64", 2, tensor_operand(call).vdevice)
