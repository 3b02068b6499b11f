"""Operators that move, join, cut or make tensors without computing on their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import (
    Expr,
    IntImm,
    PrimExpr,
    TensorType,
    TupleType,
    as_int,
    floordiv,
    int64,
)
from weft.op.infer import normalize_axis, product, same_dtype, simplify, tensor_arg, values_of
from weft.op.registry import Fusion, declare
from weft.topi.broadcast import broadcast_to
from weft.topi.manipulate import (
    concatenate,
    expanded_axes,
    expanded_shape,
    flip,
    permutation,
    repeat,
    split,
    split_points,
    squeezed_axes,
    stack,
    tile,
    tile_dims,
    transpose,
    view,
)
from weft.topi.slice import pad, pad_pairs, slice_plan, strided_slice

__all__: list[str] = []


def _ravel(indices: Any, shape: Any) -> Any:
    flat: Any = int64(0)
    for i, d in zip(indices, shape, strict=True):
        flat = flat * d + i
    return flat


# --- shape -------------------------------------------------------------------------------------------------------------


def _reshape_dims(ty: TensorType, values: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """Resolve 0 (copy) and -1 (the rest) in a target shape."""
    dims = [
        ty.shape[i] if as_int(v) == 0 and ty.shape is not None and i < len(ty.shape) and not _has_zero(ty.shape) else v
        for i, v in enumerate(values)
    ]
    unknown = [i for i, v in enumerate(dims) if as_int(v) == -1]
    if len(unknown) > 1:
        raise ShapeMismatch("reshape: more than one dimension is -1", found=", ".join(map(str, values)))
    if unknown and ty.shape is not None:
        rest = product([d for i, d in enumerate(dims) if i != unknown[0]])
        dims[unknown[0]] = simplify(floordiv(product(ty.shape), rest)) if as_int(rest) != 0 else int64(0)
    return tuple(dims)


def _has_zero(shape: tuple[PrimExpr, ...]) -> bool:
    return any(as_int(d) == 0 for d in shape)


def _reshape_infer(x: Expr, shape: Expr) -> TensorType:
    ty = tensor_arg("reshape", "x", x)
    values = values_of(shape)
    if values is None:
        return TensorType(None, ty.dtype, getattr(shape.ty, "ndim", -1))  # type: ignore[attr-defined]
    dims = _reshape_dims(ty, values)
    if ty.shape is not None:
        old, new = product(ty.shape), product(dims)
        if isinstance(old, IntImm) and isinstance(new, IntImm) and old.value != new.value:
            shown = ", ".join(map(str, ty.shape))
            raise ShapeMismatch(
                "reshape: the number of elements changes",
                expected=f"{old.value} elements, of ({shown})",
                found=f"{new.value}",
                where=x.span,
            )
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "reshape", "x shape:shape", infer=_reshape_infer, lower=lambda x, shape: view(x, shape), reference=lambda x, shape: np.reshape(x, [int(d) for d in shape]),
    fusion=Fusion.INJECTIVE, doc="The same elements in row-major order under another shape; one dimension may be -1.",
)  # fmt: skip


def _flatten_infer(x: Expr) -> TensorType:
    ty = tensor_arg("flatten", "x", x)
    return TensorType(None if ty.shape is None else (product(ty.shape),), ty.dtype, 1)


declare(
    "flatten", "x", infer=_flatten_infer, lower=lambda x: view(x, (product(x.shape),)), reference=lambda x: x.reshape(-1), fusion=Fusion.INJECTIVE,
    doc="All elements in one dimension.",
)  # fmt: skip


def _permute_infer(x: Expr, axes: Any = None) -> TensorType:
    ty = tensor_arg("permute_dims", "x", x)
    if ty.ndim < 0:
        return ty
    order = permutation(axes, ty.ndim)
    return TensorType(None if ty.shape is None else tuple(ty.shape[a] for a in order), ty.dtype, ty.ndim)


declare(
    "permute_dims", "x", {"axes": None}, infer=_permute_infer, lower=transpose, reference=lambda x, axes: np.ascontiguousarray(np.transpose(x, axes)),
    fusion=Fusion.INJECTIVE, doc="Reorder dimensions; reversed when `axes` is None.",
)  # fmt: skip


def _expand_infer(x: Expr, axis: Any) -> TensorType:
    ty = tensor_arg("expand_dims", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, -1 if ty.ndim < 0 else ty.ndim + len(expanded_axes(axis, ty.ndim)))
    dims = expanded_shape(ty.shape, axis)
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "expand_dims", "x", {"axis": 0}, infer=_expand_infer, lower=lambda x, axis: view(x, expanded_shape(x.shape, axis), "T_expand_dims"),
    reference=lambda x, axis: np.expand_dims(x, axis), fusion=Fusion.INJECTIVE, doc="Insert dimensions of extent 1.",
)  # fmt: skip


def _squeeze_infer(x: Expr, axis: Any = None) -> TensorType:
    ty = tensor_arg("squeeze", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, -1)
    axes = squeezed_axes(ty.shape, axis)
    dims = tuple(d for i, d in enumerate(ty.shape) if i not in axes)
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "squeeze", "x", {"axis": None}, infer=_squeeze_infer,
    lower=lambda x, axis: view(x, [d for i, d in enumerate(x.shape) if i not in squeezed_axes(x.shape, axis)], "T_squeeze"),
    reference=lambda x, axis: np.squeeze(x, axis if axis is None or isinstance(axis, int) else tuple(axis)), fusion=Fusion.INJECTIVE,
    doc="Drop dimensions of extent 1.",
)  # fmt: skip


# --- joining and splitting ---------------------------------------------------------------------------------------------


def _concat_infer(tensors: Expr, axis: int = 0) -> TensorType:
    types = tensors.ty.fields  # type: ignore[attr-defined]
    if not types:
        raise InvalidArgument("concat: needs at least one tensor", where=tensors.span)
    dtype = same_dtype("concat", *tensors.fields) if hasattr(tensors, "fields") else types[0].dtype
    if any(t.shape is None for t in types):
        return TensorType(None, dtype, types[0].ndim)
    a = normalize_axis("concat", axis or 0, types[0].ndim)
    total: PrimExpr = int64(0)
    for t in types:
        if t.ndim != types[0].ndim:
            raise ShapeMismatch(
                "concat: ranks differ", expected=str(types[0].ndim), found=str(t.ndim), where=tensors.span
            )
        for i, (d, e) in enumerate(zip(t.shape, types[0].shape, strict=True)):
            if i != a and as_int(d) is not None and as_int(e) is not None and as_int(d) != as_int(e):
                raise ShapeMismatch(f"concat: dimension {i} differs", expected=str(e), found=str(d), where=tensors.span)
        total = total + t.shape[a]
    dims = tuple(simplify(total) if i == a else d for i, d in enumerate(types[0].shape))
    return TensorType(dims, dtype, len(dims))


declare(
    "concat", "tensors:tensors", {"axis": 0}, infer=_concat_infer, lower=concatenate,
    reference=lambda tensors, axis: np.concatenate(tensors, axis or 0), fusion=Fusion.INJECTIVE, doc="Join along an axis.",
)  # fmt: skip


def _split_infer(x: Expr, indices_or_sections: Any, axis: int = 0) -> TupleType:
    ty = tensor_arg("split", "x", x)
    if ty.shape is None:
        n = indices_or_sections if isinstance(indices_or_sections, int) else len(indices_or_sections) + 1
        return TupleType((TensorType(None, ty.dtype, ty.ndim),) * n)
    a = normalize_axis("split", axis, ty.ndim)
    parts = split_points(ty.shape[a], indices_or_sections)
    return TupleType(
        tuple(
            TensorType(tuple(e if i == a else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim) for _, e in parts
        )
    )


def _split_ref(x: Any, indices_or_sections: Any, axis: int) -> Any:
    parts = split_points(int64(x.shape[axis]), indices_or_sections)
    return tuple(np.take(x, range(int(b), int(b) + int(e)), axis) for b, e in parts)


declare(
    "split", "x", {"indices_or_sections": 2, "axis": 0}, infer=_split_infer, lower=split, reference=_split_ref, fusion=Fusion.OPAQUE,
    doc="Cut along an axis into equal parts, or at indices.",
)  # fmt: skip


def _stack_infer(tensors: Expr, axis: int = 0) -> TensorType:
    first = tensors.ty.fields[0]  # type: ignore[attr-defined]
    if first.shape is None:
        return TensorType(None, first.dtype, first.ndim + 1)
    a = normalize_axis("stack", axis, first.ndim + 1)
    dims = (*first.shape[:a], int64(len(tensors.ty.fields)), *first.shape[a:])  # type: ignore[attr-defined]
    return TensorType(dims, first.dtype, len(dims))


declare(
    "stack", "tensors:tensors", {"axis": 0}, infer=_stack_infer, lower=stack, reference=lambda tensors, axis: np.stack(tensors, axis),
    fusion=Fusion.INJECTIVE, doc="Join along a new axis.",
)  # fmt: skip


# --- repeating ---------------------------------------------------------------------------------------------------------


def _broadcast_to_infer(x: Expr, shape: Expr) -> TensorType:
    ty = tensor_arg("broadcast_to", "x", x)
    values = values_of(shape)
    if values is None:
        return TensorType(None, ty.dtype, getattr(shape.ty, "ndim", -1))  # type: ignore[attr-defined]
    if ty.shape is not None:
        if len(ty.shape) > len(values):
            raise ShapeMismatch(
                "broadcast_to: the target has fewer dimensions",
                expected=f"at least {len(ty.shape)}",
                found=str(len(values)),
                where=x.span,
            )
        for d, v in zip(reversed(ty.shape), reversed(values), strict=False):
            if as_int(d) not in (1, None) and as_int(v) is not None and as_int(d) != as_int(v):
                raise ShapeMismatch(
                    "broadcast_to: a dimension cannot be repeated", expected=f"1 or {v}", found=str(d), where=x.span
                )
    return TensorType(values, ty.dtype, len(values))


declare(
    "broadcast_to", "x shape:shape", infer=_broadcast_to_infer, lower=lambda x, shape: broadcast_to(x, shape),
    reference=lambda x, shape: np.ascontiguousarray(np.broadcast_to(x, [int(d) for d in shape])), fusion=Fusion.BROADCAST,
    doc="Repeat along dimensions of extent 1.",
)  # fmt: skip


def _tile_infer(x: Expr, repeats: Any) -> TensorType:
    ty = tensor_arg("tile", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    dims, reps = tile_dims(ty.shape, repeats)
    return TensorType(tuple(simplify(d * r) for d, r in zip(dims, reps, strict=True)), ty.dtype, len(dims))


declare(
    "tile", "x", {"repeats": (1,)}, infer=_tile_infer, lower=tile, reference=lambda x, repeats: np.tile(x, repeats), fusion=Fusion.OPAQUE,
    doc="Repeat the whole tensor along each axis.",
)  # fmt: skip


def _repeat_infer(x: Expr, repeats: int, axis: Any = None) -> TensorType:
    ty = tensor_arg("repeat", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, 1 if axis is None else ty.ndim)
    if axis is None:
        return TensorType((simplify(product(ty.shape) * repeats),), ty.dtype, 1)
    a = normalize_axis("repeat", axis, ty.ndim)
    return TensorType(tuple(simplify(d * repeats) if i == a else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim)


declare(
    "repeat", "x", {"repeats": 1, "axis": None}, infer=_repeat_infer, lower=repeat, reference=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    fusion=Fusion.OPAQUE, doc="Repeat each element along an axis.",
)  # fmt: skip


def _same_type(op: str) -> Any:
    def infer(x: Expr, *_: Any, **__: Any) -> TensorType:
        return tensor_arg(op, "x", x)

    return infer


declare(
    "flip", "x", {"axis": 0}, infer=_same_type("flip"), lower=flip, reference=lambda x, axis: np.ascontiguousarray(np.flip(x, axis)),
    fusion=Fusion.INJECTIVE, doc="Reverse along an axis.",
)  # fmt: skip


# --- slices ------------------------------------------------------------------------------------------------------------


def _slice_infer(
    x: Expr, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False
) -> TensorType:
    ty = tensor_arg("strided_slice", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    plan = slice_plan(ty.shape, axes, begin, end, strides)
    return TensorType(tuple(plan[i][1] if i in plan else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim)


def _slice_ref(x: Any, axes: Any, begin: Any, end: Any, strides: Any, assume_inbound: bool) -> Any:
    plan = slice_plan([int64(d) for d in x.shape], axes, begin, end, strides)
    for a, (first, length, step) in plan.items():
        x = np.take(x, [int(first) + step * i for i in range(int(length))], a)
    return np.ascontiguousarray(x)


declare(
    "strided_slice", "x", {"axes": (), "begin": (), "end": (), "strides": None, "assume_inbound": False}, infer=_slice_infer, lower=strided_slice,
    reference=_slice_ref, fusion=Fusion.INJECTIVE, doc="A part of a tensor, with steps; constant bounds follow NumPy's rules, symbolic ones lie inside.",
)  # fmt: skip


# --- padding -----------------------------------------------------------------------------------------------------------


def _pad_infer(data: Expr, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0) -> TensorType:
    ty = tensor_arg("nn.pad", "data", data)
    if pad_mode not in ("constant", "reflect", "edge", "replicate", "wrap", "circular"):
        raise InvalidArgument(
            f"nn.pad: unknown mode '{pad_mode}'", expected="constant, reflect, edge or wrap", where=data.span
        )
    if ty.shape is None:
        return ty
    pairs = pad_pairs(ty.ndim, pad_width)
    return TensorType(tuple(simplify(d + b + a) for d, (b, a) in zip(ty.shape, pairs, strict=True)), ty.dtype, ty.ndim)


def _pad_ref(data: Any, pad_width: Any, pad_mode: str, pad_value: float) -> Any:
    pairs = [(int(b), int(a)) for b, a in pad_pairs(data.ndim, pad_width)]
    mode = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
    return np.pad(data, pairs, mode, **({"constant_values": pad_value} if mode == "constant" else {}))


declare(
    "nn.pad", "data", {"pad_width": (), "pad_mode": "constant", "pad_value": 0.0}, infer=_pad_infer, lower=pad, reference=_pad_ref,
    fusion=Fusion.INJECTIVE, doc="Pad each axis before and after; `pad_width` is (before, after) for each axis in turn.",
)  # fmt: skip
