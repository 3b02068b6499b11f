"""Operators that move, join, cut or repeat tensors without computing on their elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.op import infer
from weft.op.attributes import Attribute, axes, axis, integer, integers
from weft.op.registry import Fusion, Layout, declare, make_call
from weft.op.relations import demand_at_least, demand_broadcast_to, demand_equal
from weft.topi import manipulate
from weft.topi.broadcast import broadcast_to

# --- shape ------------------------------------------------------------------------------------------------------------


def _reshape_dims(ty: ir.TensorType, values: tuple[ir.PrimExpr, ...]) -> tuple[ir.PrimExpr, ...]:
    """Resolve 0 (copy) and -1 (the rest) in a target shape."""
    dims = [
        ty.shape[i]
        if ir.as_int(v) == 0 and ty.shape is not None and i < len(ty.shape) and all(ir.as_int(d) != 0 for d in ty.shape)
        else v
        for i, v in enumerate(values)
    ]
    unknown = [i for i, v in enumerate(dims) if ir.as_int(v) == -1]
    if len(unknown) > 1:
        raise ShapeMismatch("reshape: more than one dimension is -1", found=", ".join(map(str, values)))
    if unknown and ty.shape is not None:
        rest = infer.product([d for i, d in enumerate(dims) if i != unknown[0]])
        dims[unknown[0]] = (
            infer.simplify(ir.floordiv(infer.product(ty.shape), rest)) if ir.as_int(rest) != 0 else ir.int64(0)
        )
    return tuple(dims)


def _demand_rest(
    count: ir.PrimExpr, dims: tuple[ir.PrimExpr, ...], values: tuple[ir.PrimExpr, ...], x: ir.Expr
) -> None:
    """Demand that -1 stands for one size: the other dimensions divide the number of elements, or are not empty."""
    for i, v in enumerate(values):
        if ir.as_int(v) == -1:
            others = infer.product([d for n, d in enumerate(dims) if n != i])
            if ir.as_int(others) is None and not infer.equal_dims(dims[i] * others, count):
                demand_at_least("reshape: elements for each of the dimension that is -1", others, 1, x.span)


def _reshape_infer(x: ir.Expr, shape: ir.Expr) -> ir.TensorType:
    ty = infer.tensor_arg("reshape", "x", x)
    values = infer.values_of(shape)
    if values is None:
        return ir.TensorType(None, ty.dtype, getattr(shape.ty, "ndim", -1))  # type: ignore[attr-defined]
    dims = _reshape_dims(ty, values)
    if any(ir.as_int(d) == -1 for d in dims):  # what it is follows from a shape that is not known
        return ir.TensorType(None, ty.dtype, len(dims))
    if ty.shape is not None:
        old, new = infer.product(ty.shape), infer.product(dims)
        shown = ", ".join(map(str, ty.shape))
        demand_equal(f"reshape: number of elements, from ({shown})", new, old, x.span)
        for d in dims:
            demand_at_least("reshape: a dimension", d, 0, x.span)
        _demand_rest(old, dims, values, x)
    return ir.TensorType(dims, ty.dtype, len(dims))


declare(
    "reshape",
    "x shape:shape",
    infer=_reshape_infer,
    lower=lambda x, shape: manipulate.view(x, _reshape_dims(ir.TensorType(x.shape, x.dtype, x.ndim), tuple(shape))),
    reference=lambda x, shape: np.reshape(x, [int(d) for d in shape]),
    fusion=Fusion.INJECTIVE,
    doc="The same elements in row-major order under another shape; one dimension may be -1.",
)


def _flatten_infer(x: ir.Expr) -> ir.TensorType:
    ty = infer.tensor_arg("flatten", "x", x)
    return ir.TensorType(None if ty.shape is None else (infer.product(ty.shape),), ty.dtype, 1)


declare(
    "flatten",
    "x",
    infer=_flatten_infer,
    lower=lambda x: manipulate.view(x, (infer.product(x.shape),)),
    reference=lambda x: x.reshape(-1),
    fusion=Fusion.INJECTIVE,
    doc="All elements in one dimension.",
)


def _batch_flatten_infer(x: ir.Expr) -> ir.TensorType:
    ty = infer.tensor_arg("nn.batch_flatten", "x", x, min_ndim=2)
    dims = None if ty.shape is None else (ty.shape[0], infer.product(ty.shape[1:]))
    return ir.TensorType(dims, ty.dtype, 2, ty.vdevice)


def _batch_flatten_decompose(x: ir.Expr) -> ir.Expr | None:
    dims = _batch_flatten_infer(x).shape
    return None if dims is None else make_call("reshape")(x, ir.shape_expr(dims))


declare(
    "nn.batch_flatten",
    "x",
    infer=_batch_flatten_infer,
    lower=lambda x: manipulate.view(x, (x.shape[0], infer.product(x.shape[1:]))),
    decompose=_batch_flatten_decompose,
    reference=lambda x: x.reshape(x.shape[0], math.prod(x.shape[1:])),
    fusion=Fusion.INJECTIVE,
    doc="All dimensions but the first in one.",
)


def _permute_infer(x: ir.Expr, axes: Any) -> ir.TensorType:
    ty = infer.tensor_arg("permute_dims", "x", x)
    if ty.ndim < 0:
        return ty
    order = manipulate.permutation(axes, ty.ndim)
    return ir.TensorType(None if ty.shape is None else tuple(ty.shape[a] for a in order), ty.dtype, ty.ndim)


declare(
    "permute_dims",
    "x",
    {"axes": axes(ordered=True)},
    infer=_permute_infer,
    lower=manipulate.transpose,
    reference=lambda x, axes: np.asarray(np.transpose(x, axes), order="C"),
    fusion=Fusion.INJECTIVE,
    doc="Reorder dimensions; reversed when `axes` is None.",
)


def _expand_infer(x: ir.Expr, axis: Any) -> ir.TensorType:
    ty = infer.tensor_arg("expand_dims", "x", x)
    if ty.shape is None:
        return ir.TensorType(
            None, ty.dtype, -1 if ty.ndim < 0 else ty.ndim + len(manipulate.expanded_axes(axis, ty.ndim))
        )
    dims = manipulate.expanded_shape(ty.shape, axis)
    return ir.TensorType(dims, ty.dtype, len(dims))


declare(
    "expand_dims",
    "x",
    {"axis": integers((0,))},
    infer=_expand_infer,
    lower=manipulate.expand_dims,
    reference=np.expand_dims,
    fusion=Fusion.INJECTIVE,
    doc="Insert dimensions of extent 1.",
)


def _squeeze_infer(x: ir.Expr, axis: Any) -> ir.TensorType:
    ty = infer.tensor_arg("squeeze", "x", x)
    if ty.shape is None:
        return ir.TensorType(None, ty.dtype, -1)
    axes = manipulate.squeezed_axes(ty.shape, axis)
    for a in axes:
        demand_equal(f"squeeze: dimension {a}", ty.shape[a], 1, x.span)
    for i, d in enumerate(ty.shape if axis is None else ()):
        if i not in axes:  # the rank says that it stays
            demand_equal(
                f"squeeze: dimension {i}, which no axis names (not 1)", d, ir.select(ir.equal(d, 1), 2, d), x.span
            )
    dims = tuple(d for i, d in enumerate(ty.shape) if i not in axes)
    return ir.TensorType(dims, ty.dtype, len(dims))


declare(
    "squeeze",
    "x",
    {"axis": axes()},
    infer=_squeeze_infer,
    lower=manipulate.squeeze,
    reference=np.squeeze,
    fusion=Fusion.INJECTIVE,
    doc="Drop dimensions of extent 1.",
)


# --- joining and splitting --------------------------------------------------------------------------------------------


def _joined(op: str, tensors: ir.Expr) -> tuple[list[ir.TensorType], str]:
    """The types of the tensors of a tuple, at least one and of one rank, and their data type."""
    fields = infer.fields_of(op, "tensors", tensors)
    types = [infer.tensor_arg(op, f"tensor {i}", f) for i, f in enumerate(fields)]
    if not types:
        raise InvalidArgument(f"{op}: needs at least one tensor", where=tensors.span)
    ranks = sorted({t.ndim for t in types if t.ndim >= 0})
    if len(ranks) > 1:
        raise ShapeMismatch(f"{op}: ranks differ", expected=str(ranks[0]), found=str(ranks[-1]), where=tensors.span)
    return types, infer.same_dtype(op, *fields)


def _common(op: str, types: list[ir.TensorType], skip: int | None, where: Any) -> list[ir.PrimExpr]:
    """The dimensions that all tensors share: constants where any tensor knows them."""
    dims = list(types[0].shape or ())
    for n, t in enumerate(types[1:], 1):
        for i, d in enumerate(t.shape or ()):
            if i == skip:
                continue
            demand_equal(f"{op}: dimension {i} of tensor {n}", d, dims[i], where)
            dims[i] = d if ir.as_int(dims[i]) is None and ir.as_int(d) is not None else dims[i]
    return dims


def _concat_infer(tensors: ir.Expr, axis: int | None) -> ir.TensorType:
    types, dtype = _joined("concat", tensors)
    ndim = max(t.ndim for t in types)
    if axis is None and ndim > 1:
        raise ShapeMismatch("concat: without an axis, tensors have one dimension", found=f"{ndim}", where=tensors.span)
    if ndim == 0:
        raise ShapeMismatch("concat: scalars cannot be joined", help="use stack", where=tensors.span)
    a = infer.normalize_axis("concat", axis or 0, ndim) if ndim > 0 else 0
    if any(t.shape is None for t in types):
        return ir.TensorType(None, dtype, ndim)
    dims = _common("concat", types, a, tensors.span)
    dims[a] = ir.int64(0)
    for t in types:
        dims[a] = dims[a] + t.shape[a]  # type: ignore[index]
    dims[a] = infer.simplify(dims[a])
    return ir.TensorType(tuple(dims), dtype, ndim)


declare(
    "concat",
    "tensors:tensors",
    {"axis": axis(0).or_none(0)},
    infer=_concat_infer,
    lower=manipulate.concatenate,
    reference=np.concatenate,
    fusion=Fusion.INJECTIVE,
    layout=Layout.AXES,
    doc="Join along an axis, the only one where none is named.",
)


def _sections(value: Any) -> Any:
    whole = isinstance(value, (tuple, list)) or getattr(value, "ndim", 0)
    return (integers(symbolic=True) if whole else integer(at_least=1, at_most=_MOST_SECTIONS)).normal(value)


_MOST_SECTIONS = 1 << 16
_SECTIONS = Attribute(2, f"an integer of at least 1 and at most {_MOST_SECTIONS}, or where to cut", _sections)


def _split_infer(x: ir.Expr, indices_or_sections: Any, axis: int) -> ir.TupleType:
    ty = infer.tensor_arg("split", "x", x)
    if ty.shape is None:
        n = indices_or_sections if isinstance(indices_or_sections, int) else len(indices_or_sections) + 1
        return ir.TupleType((ir.TensorType(None, ty.dtype, ty.ndim),) * n)
    a = infer.normalize_axis("split", axis, ty.ndim)
    parts = manipulate.split_points(ty.shape[a], indices_or_sections)
    for i, (_, extent) in enumerate(parts):
        demand_at_least(f"split: size of part {i}", extent, 0, x.span)
    return ir.TupleType(
        tuple(
            ir.TensorType(tuple(e if i == a else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim)
            for _, e in parts
        )
    )


def _split_ref(x: Any, indices_or_sections: Any, axis: int) -> Any:
    parts = manipulate.split_points(ir.int64(x.shape[axis]), indices_or_sections)
    return tuple(np.take(x, range(int(b), int(b) + int(e)), axis) for b, e in parts)


declare(
    "split",
    "x",
    {"indices_or_sections": _SECTIONS, "axis": axis(0)},
    infer=_split_infer,
    lower=manipulate.split,
    reference=_split_ref,
    layout=Layout.AXES,
    doc="Cut along an axis into equal parts, or at indices.",
)


def _stack_infer(tensors: ir.Expr, axis: int) -> ir.TensorType:
    types, dtype = _joined("stack", tensors)
    ndim = max(t.ndim for t in types)
    if any(t.shape is None for t in types):
        return ir.TensorType(None, dtype, -1 if ndim < 0 else ndim + 1)
    a = infer.normalize_axis("stack", axis, ndim + 1)
    dims = _common("stack", types, None, tensors.span)
    return ir.TensorType((*dims[:a], ir.int64(len(types)), *dims[a:]), dtype, ndim + 1)


declare(
    "stack",
    "tensors:tensors",
    {"axis": integer(0)},
    infer=_stack_infer,
    lower=manipulate.stack,
    reference=np.stack,
    fusion=Fusion.INJECTIVE,
    doc="Join along a new axis.",
)


# --- repeating --------------------------------------------------------------------------------------------------------


def _broadcast_to_infer(x: ir.Expr, shape: ir.Expr) -> ir.TensorType:
    ty = infer.tensor_arg("broadcast_to", "x", x)
    values = infer.values_of(shape)
    ndim = getattr(shape.ty, "ndim", -1) if values is None else len(values)  # type: ignore[attr-defined]
    if ty.ndim > ndim >= 0:
        raise ShapeMismatch(
            "broadcast_to: the target has fewer dimensions",
            expected=f"{ty.ndim} or more",
            found=str(ndim),
            where=x.span,
        )
    if values is None:
        return ir.TensorType(None, ty.dtype, ndim)
    if ty.shape is not None:
        for d, v in zip(reversed(ty.shape), reversed(values), strict=False):
            demand_broadcast_to("broadcast_to: a dimension that is not 1", d, v, x.span)
    for v in values:
        demand_at_least("broadcast_to: a dimension of the target", v, 0, x.span)
    return ir.TensorType(values, ty.dtype, len(values))


declare(
    "broadcast_to",
    "x shape:shape",
    infer=_broadcast_to_infer,
    lower=lambda x, shape: broadcast_to(x, shape),
    reference=lambda x, shape: np.asarray(np.broadcast_to(x, [int(d) for d in shape]), order="C"),
    fusion=Fusion.BROADCAST,
    doc="Repeat along dimensions of extent 1.",
)


def _tile_infer(x: ir.Expr, repeats: Any) -> ir.TensorType:
    ty = infer.tensor_arg("tile", "x", x)
    if ty.shape is None:
        return ir.TensorType(None, ty.dtype, -1 if ty.ndim < 0 else max(ty.ndim, len(repeats)))
    dims, reps = manipulate.tile_dims(ty.shape, repeats)
    for r in reps:
        demand_at_least("tile: a number of repeats", r, 0, x.span, "InvalidArgument")
    return ir.TensorType(tuple(infer.simplify(d * r) for d, r in zip(dims, reps, strict=True)), ty.dtype, len(dims))


def _tile_decompose(x: ir.Expr, repeats: Any) -> ir.Expr | None:
    """Broadcast along a dimension of its own before each that is repeated: only shapes change around that."""
    ty = x.ty
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return None
    dims, reps = manipulate.tile_dims(ty.shape, repeats)
    apart, one = list(zip(dims, reps, strict=True)), ir.int64(1)
    before = [n for d, r in apart for n in ((d,) if ir.as_int(r) == 1 else (one, d))]
    after = [n for d, r in apart for n in ((d,) if ir.as_int(r) == 1 else (r, d))]
    whole = [infer.simplify(d * r) for d, r in apart]
    reshape, broadcast = make_call("reshape"), make_call("broadcast_to")
    copies = broadcast(reshape(x, ir.shape_expr(before)), ir.shape_expr(after))
    return reshape(copies, ir.shape_expr(whole))


declare(
    "tile",
    "x",
    {"repeats": integers((1,), symbolic=True)},
    infer=_tile_infer,
    lower=manipulate.tile,
    decompose=_tile_decompose,
    reference=lambda x, repeats: np.tile(x, repeats),
    doc="Repeat the whole tensor along each axis.",
)


def _repeat_infer(x: ir.Expr, repeats: Any, axis: int | None) -> ir.TensorType:
    ty = infer.tensor_arg("repeat", "x", x)
    demand_at_least("repeat: repeats", repeats, 0, x.span, "InvalidArgument")
    if ty.shape is None:
        return ir.TensorType(None, ty.dtype, 1 if axis is None else ty.ndim)
    if axis is None:
        return ir.TensorType((infer.simplify(infer.product(ty.shape) * repeats),), ty.dtype, 1)
    a = infer.normalize_axis("repeat", axis, ty.ndim)
    return ir.TensorType(
        tuple(infer.simplify(d * repeats) if i == a else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim
    )


declare(
    "repeat",
    "x",
    {"repeats": integer(1, symbolic=True), "axis": axis(None)},
    infer=_repeat_infer,
    lower=manipulate.repeat,
    reference=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    doc="Repeat each element along an axis.",
)


declare(
    "flip",
    "x",
    {"axis": axis(0)},
    infer=infer.same_as("flip"),
    lower=manipulate.flip,
    reference=lambda x, axis: np.ascontiguousarray(np.flip(x, axis)),
    fusion=Fusion.INJECTIVE,
    doc="Reverse along an axis.",
)
