"""Type rules that many operators share. Shapes are tuples of int64 scalar expressions and may be symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch, TypeInferenceError
from weft.op.relations import demand_broadcast
from weft.topi.shape import equal_dims, normalize_axes, normalize_axis, product, simplify

__all__ = [
    "broadcast",
    "broadcast_dims",
    "demand_held",
    "demand_same_layout",
    "dims_of",
    "equal_dims",
    "fields_of",
    "index_arg",
    "normalize_axes",
    "normalize_axis",
    "product",
    "same_as",
    "same_dtype",
    "simplify",
    "tensor_arg",
    "values_of",
]


KINDS: dict[str, tuple[str, Callable[[ir.DataType], bool]]] = {
    "float": ("a floating-point type", lambda d: d.is_real),
    "integer": ("an integer type", lambda d: not d.is_real and d != "bool"),
    "integral": ("an integer type or bool", lambda d: not d.is_real),
    "number": ("a type of numbers, not bool", lambda d: d != "bool"),
}
"""Kinds of data types that operators ask for: in words, and as a test."""


def tensor_arg(
    op: str,
    name: str,
    arg: ir.Expr,
    ndim: int | None = None,
    dtype: str | None = None,
    min_ndim: int = 0,
    kind: str = "",
) -> ir.TensorType:
    """Return the tensor type of an argument, checking its rank and data type (exactly, or its `kind` of `KINDS`).

    Raises
    ------
    TypeInferenceError
        When it is no tensor.
    ShapeMismatch, DTypeMismatch
        When its rank or data type is wrong.
    """
    ty = arg.ty  # type: ignore[attr-defined]
    if not isinstance(ty, ir.TensorType):
        raise TypeInferenceError(f"{op}: '{name}' must be a tensor", found=str(ty), where=arg.span)
    if ndim is not None and ty.ndim not in (-1, ndim):
        raise ShapeMismatch(
            f"{op}: '{name}' has the wrong rank", expected=f"{ndim} dimensions", found=f"{ty.ndim}", where=arg.span
        )
    if 0 <= ty.ndim < min_ndim:
        raise ShapeMismatch(
            f"{op}: '{name}' has too few dimensions",
            expected=f"at least {min_ndim}",
            found=f"{ty.ndim}",
            where=arg.span,
        )
    if kind and ty.dtype and not KINDS[kind][1](ir.DataType(ty.dtype)):
        raise DTypeMismatch(
            f"{op}: '{name}' has the wrong data type",
            expected=KINDS[kind][0],
            found=ty.dtype,
            where=arg.span,
            help="use astype",
        )
    if dtype is not None and ty.dtype and not ty.dtype.startswith(dtype):
        raise DTypeMismatch(f"{op}: '{name}' has the wrong data type", expected=dtype, found=ty.dtype, where=arg.span)
    return ty


def index_arg(op: str, arg: ir.Expr, name: str = "indices") -> ir.TensorType:
    """Return the type of a tensor of indices, which must be integers.

    Raises
    ------
    DTypeMismatch
        When it has another data type.
    """
    ty = tensor_arg(op, name, arg)
    if ty.dtype and not ir.DataType(ty.dtype).is_integer:
        raise DTypeMismatch(
            f"{op}: '{name}' must be integers", expected="int32 or int64", found=ty.dtype, where=arg.span
        )
    return ty


def demand_same_layout(op: str, layout: str, out_layout: str | None, where: ir.Span | None) -> None:
    """Refuse an operator whose result has another layout than its operand, where the operator cannot do that."""
    if out_layout not in (None, layout):
        raise InvalidArgument(
            f"{op}: the result has the layout of 'data'",
            expected=layout,
            found=out_layout,
            where=where,
            help="use layout_transform",
        )


def fields_of(op: str, name: str, arg: ir.Expr) -> tuple[ir.Expr, ...]:
    """Return the tensors of an argument that is a tuple; where it is a variable, as references to its fields.

    Raises
    ------
    TypeInferenceError
        When it is no tuple.
    """
    if isinstance(arg, ir.Tuple):
        return arg.fields
    if not isinstance(getattr(arg, "ty", None), ir.TupleType):
        raise TypeInferenceError(
            f"{op}: '{name}' must be a tuple of tensors", found=str(getattr(arg, "ty", None)), where=arg.span
        )
    return tuple(ir.TupleGetItem(arg, i, ty=t) for i, t in enumerate(arg.ty.fields))  # type: ignore[attr-defined]


def dims_of(expr: ir.Expr) -> tuple[ir.PrimExpr, ...] | None:
    """Return the dimensions of a tensor, or None where they are unknown."""
    ty = expr.ty  # type: ignore[attr-defined]
    return ty.shape if isinstance(ty, ir.TensorType) else None


def values_of(expr: ir.Expr) -> tuple[ir.PrimExpr, ...] | None:
    """Return the values of a shape argument, or None where they are unknown."""
    if isinstance(expr, ir.ShapeExpr):
        return expr.values
    return expr.ty.values if isinstance(getattr(expr, "ty", None), ir.ShapeType) else None


def same_as(op: str, dtype: str | None = None, kind: str = "") -> Callable[..., ir.TensorType]:
    """Make the rule of an operator whose result has the type of its first argument, or another data type.

    `kind` restricts the argument to a kind of data type.
    """

    def infer(x: ir.Expr, *_: Any, **__: Any) -> ir.TensorType:
        ty = tensor_arg(op, "x", x, kind=kind)
        return ir.TensorType(ty.shape, dtype, ty.ndim, ty.vdevice) if dtype is not None else ty

    return infer


def same_dtype(op: str, *args: ir.Expr) -> str:
    """Check that tensors have one data type and return it ("" when unknown)."""
    typed = (ir.TensorType, ir.PrimType)
    known = [(i, a.ty.dtype) for i, a in enumerate(args) if isinstance(a.ty, typed) and a.ty.dtype]  # type: ignore[attr-defined]
    for _i, d in known[1:]:
        if d != known[0][1]:
            raise DTypeMismatch(
                f"{op}: operands have different data types",
                found=" and ".join(d for _, d in known),
                help="use astype",
                where=args[0].span,
            )
    return known[0][1] if len(known) == len(args) else ""


def demand_held(op: str, name: str, value: object, dtype: str, where: ir.Span | None) -> None:
    """Demand that a number that goes into a tensor is one of its data type."""
    if not dtype or not isinstance(value, (bool, int, float)):
        return
    try:
        made = ir.exact_const(value, dtype)
        wrong = isinstance(made, ir.IntImm) and made.value != value
    except InvalidArgument:
        wrong = True
    if wrong:
        what = f"{op}: '{name}' is no number of the tensor's type"
        raise DTypeMismatch(what, expected=dtype, found=str(value), where=where)


def broadcast_dims(op: str, *shapes: tuple[ir.PrimExpr, ...]) -> tuple[ir.PrimExpr, ...]:
    """Broadcast shapes by NumPy's rule; of two dimensions that may or may not be 1, a choice is made at run time.

    Raises
    ------
    ShapeMismatch
        When two constant dimensions differ and neither is 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[ir.PrimExpr] = []
    for i in range(-rank, 0):
        result: ir.PrimExpr = ir.int64(1)
        for s in shapes:
            if len(s) < -i:
                continue
            d = s[i]
            if ir.as_int(d) == 1 or equal_dims(d, result):
                continue
            if ir.as_int(result) == 1:
                result = d
            elif ir.as_int(d) is not None and ir.as_int(result) is not None:
                shown = " and ".join("(" + ", ".join(map(str, s)) + ")" for s in shapes)
                raise ShapeMismatch(f"{op}: shapes do not broadcast", expected=f"dimension {i} equal or 1", found=shown)
            else:
                demand_broadcast(f"{op}: dimension {i} of operands that broadcast", d, result)
                if ir.as_int(d) is not None:
                    result = d  # the other side is 1 or this
                elif ir.as_int(result) is None:
                    result = _wider(result, d)
        out.append(result)
    return tuple(out)


def _wider(result: ir.PrimExpr, dim: ir.PrimExpr) -> ir.PrimExpr:
    """What two dimensions broadcast to. A choice is 1 where all that it chooses from is, so nothing is asked twice."""
    known = _choices(result)
    for d in _choices(dim):
        if not any(equal_dims(d, k) for k in known):
            result = ir.select(ir.equal(result, 1), d, result)
    return result


def _choices(dim: ir.PrimExpr) -> list[ir.PrimExpr]:
    """The dimensions that a dimension of broadcast operands is chosen from: of ``select(a == 1, b, a)`` a and b."""
    if isinstance(dim, ir.Select) and isinstance(dim.condition, ir.EQ) and ir.as_int(dim.condition.b) == 1:
        first, rest = dim.condition.a, dim.true_value
        if equal_dims(first, dim.false_value):
            return [*_choices(first), *_choices(rest)]
    return [dim]


def broadcast(op: str, *args: ir.Expr, dtype: str | None = None) -> ir.TensorType:
    """Infer an element-wise operation of several tensors of one data type."""
    types = [tensor_arg(op, f"argument {i}", a) for i, a in enumerate(args)]
    result = dtype if dtype is not None else same_dtype(op, *args)
    if all(t.shape is not None for t in types):
        try:
            dims = broadcast_dims(op, *(t.shape for t in types))  # type: ignore[misc]
        except ShapeMismatch as e:
            e.where = args[0].span
            raise
        return ir.TensorType(dims, result, len(dims))
    ndim = max(t.ndim for t in types) if all(t.ndim >= 0 for t in types) else -1
    return ir.TensorType(None, result, ndim)
