"""Operators that move, join, cut or make tensors without computing on their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import (
    DataType,
    Expr,
    IntImm,
    PrimExpr,
    PrimValue,
    TensorType,
    TupleType,
    as_int,
    as_shape,
    cast,
    ceildiv,
    const,
    floordiv,
    floormod,
    if_then_else,
    int64,
    logical_and,
    max_,
    numpy_dtype,
    select,
)
from weft.op.infer import normalize_axes, normalize_axis, product, same_dtype, simplify, tensor_arg, values_of
from weft.op.registry import Fusion, declare
from weft.topi.broadcast import broadcast_to
from weft.topi.reduce import unravel

__all__: list[str] = []


def _ravel(indices: Any, shape: Any) -> Any:
    flat: Any = int64(0)
    for i, d in zip(indices, shape, strict=True):
        flat = flat * d + i
    return flat


def _view(x: Any, shape: Any, name: str = "T_reshape") -> Any:
    """Read a tensor in row-major order under another shape."""
    return te.compute(tuple(shape), lambda *i: x(*unravel(_ravel(i, shape), x.shape)), name=name)


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
    "reshape", "x shape:shape", infer=_reshape_infer, lower=lambda x, shape: _view(x, shape), reference=lambda x, shape: np.reshape(x, [int(d) for d in shape]),
    fusion=Fusion.INJECTIVE, doc="The same elements in row-major order under another shape; one dimension may be -1.",
)  # fmt: skip


def _flatten_infer(x: Expr) -> TensorType:
    ty = tensor_arg("flatten", "x", x)
    return TensorType(None if ty.shape is None else (product(ty.shape),), ty.dtype, 1)


declare(
    "flatten", "x", infer=_flatten_infer, lower=lambda x: _view(x, (product(x.shape),)), reference=lambda x: x.reshape(-1), fusion=Fusion.INJECTIVE,
    doc="All elements in one dimension.",
)  # fmt: skip


def _permute_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    order = (
        tuple(reversed(range(ndim))) if axes is None else tuple(normalize_axis("permute_dims", a, ndim) for a in axes)
    )
    if sorted(order) != list(range(ndim)):
        raise ShapeMismatch(
            "permute_dims: axes are no permutation", expected=f"each of 0..{ndim - 1} once", found=str(tuple(axes))
        )
    return order


def _permute_infer(x: Expr, axes: Any = None) -> TensorType:
    ty = tensor_arg("permute_dims", "x", x)
    if ty.ndim < 0:
        return ty
    order = _permute_axes(axes, ty.ndim)
    return TensorType(None if ty.shape is None else tuple(ty.shape[a] for a in order), ty.dtype, ty.ndim)


def _permute_lower(x: Any, axes: Any = None) -> Any:
    order = _permute_axes(axes, x.ndim)
    inverse = [order.index(d) for d in range(x.ndim)]
    return te.compute(tuple(x.shape[a] for a in order), lambda *i: x(*(i[j] for j in inverse)), name="T_transpose")


declare(
    "permute_dims", "x", {"axes": None}, infer=_permute_infer, lower=_permute_lower, reference=lambda x, axes: np.ascontiguousarray(np.transpose(x, axes)),
    fusion=Fusion.INJECTIVE, doc="Reorder dimensions; reversed when `axes` is None.",
)  # fmt: skip


def _expand_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    values = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    return normalize_axes("expand_dims", values, ndim + len(values))


def _expand_shape(shape: Any, axis: Any) -> tuple[Any, ...]:
    axes, rest = _expand_axes(axis, len(shape)), iter(shape)
    return tuple(int64(1) if i in axes else next(rest) for i in range(len(shape) + len(axes)))


def _expand_infer(x: Expr, axis: Any) -> TensorType:
    ty = tensor_arg("expand_dims", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, -1 if ty.ndim < 0 else ty.ndim + len(_expand_axes(axis, ty.ndim)))
    dims = _expand_shape(ty.shape, axis)
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "expand_dims", "x", {"axis": 0}, infer=_expand_infer, lower=lambda x, axis: _view(x, _expand_shape(x.shape, axis), "T_expand_dims"),
    reference=lambda x, axis: np.expand_dims(x, axis), fusion=Fusion.INJECTIVE, doc="Insert dimensions of extent 1.",
)  # fmt: skip


def _squeeze_axes(shape: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(i for i, d in enumerate(shape) if as_int(d) == 1)
    axes = normalize_axes("squeeze", axis, len(shape))
    for a in axes:
        if as_int(shape[a]) not in (1, None):
            raise ShapeMismatch(f"squeeze: dimension {a} is not 1", expected="1", found=str(shape[a]))
    return axes


def _squeeze_infer(x: Expr, axis: Any = None) -> TensorType:
    ty = tensor_arg("squeeze", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, -1)
    axes = _squeeze_axes(ty.shape, axis)
    dims = tuple(d for i, d in enumerate(ty.shape) if i not in axes)
    return TensorType(dims, ty.dtype, len(dims))


declare(
    "squeeze", "x", {"axis": None}, infer=_squeeze_infer,
    lower=lambda x, axis: _view(x, [d for i, d in enumerate(x.shape) if i not in _squeeze_axes(x.shape, axis)], "T_squeeze"),
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


def _concat_lower(tensors: Any, axis: int = 0) -> Any:
    a = normalize_axis("concat", axis or 0, tensors[0].ndim)
    ends: list[Any] = []
    total: Any = int64(0)
    for t in tensors:
        total = simplify(total + t.shape[a])
        ends.append(total)

    def element(*i: Any) -> Any:
        value = tensors[-1](*(v if d != a else v - (ends[-2] if len(ends) > 1 else int64(0)) for d, v in enumerate(i)))
        for n in reversed(range(len(tensors) - 1)):
            begin = ends[n - 1] if n else int64(0)
            value = if_then_else(
                i[a] < ends[n], tensors[n](*(v if d != a else v - begin for d, v in enumerate(i))), value
            )
        return value

    return te.compute(tuple(total if d == a else e for d, e in enumerate(tensors[0].shape)), element, name="T_concat")


declare(
    "concat", "tensors:tensors", {"axis": 0}, infer=_concat_infer, lower=_concat_lower,
    reference=lambda tensors, axis: np.concatenate(tensors, axis or 0), fusion=Fusion.INJECTIVE, doc="Join along an axis.",
)  # fmt: skip


def _split_points(ty_dim: Any, indices_or_sections: Any) -> list[tuple[Any, Any]]:
    """(begin, extent) of each part."""
    if isinstance(indices_or_sections, (int, IntImm)):
        n = int(indices_or_sections)
        size = simplify(ceildiv(ty_dim, int64(n)))
        return [(simplify(size * i), simplify(size if i < n - 1 else ty_dim - size * (n - 1))) for i in range(n)]
    points = [int64(0), *as_shape(indices_or_sections), ty_dim]
    return [(b, simplify(e - b)) for b, e in zip(points[:-1], points[1:], strict=True)]


def _split_infer(x: Expr, indices_or_sections: Any, axis: int = 0) -> TupleType:
    ty = tensor_arg("split", "x", x)
    if ty.shape is None:
        n = indices_or_sections if isinstance(indices_or_sections, int) else len(indices_or_sections) + 1
        return TupleType((TensorType(None, ty.dtype, ty.ndim),) * n)
    a = normalize_axis("split", axis, ty.ndim)
    parts = _split_points(ty.shape[a], indices_or_sections)
    return TupleType(
        tuple(
            TensorType(tuple(e if i == a else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim) for _, e in parts
        )
    )


def _split_lower(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    a = normalize_axis("split", axis, x.ndim)
    return tuple(
        te.compute(
            tuple(e if d == a else s for d, s in enumerate(x.shape)),
            lambda *i, b=b: x(*(v + b if d == a else v for d, v in enumerate(i))),
            name="T_split",
        )
        for b, e in _split_points(x.shape[a], indices_or_sections)
    )


def _split_ref(x: Any, indices_or_sections: Any, axis: int) -> Any:
    parts = _split_points(int64(x.shape[axis]), indices_or_sections)
    return tuple(np.take(x, range(int(b), int(b) + int(e)), axis) for b, e in parts)


declare(
    "split", "x", {"indices_or_sections": 2, "axis": 0}, infer=_split_infer, lower=_split_lower, reference=_split_ref, fusion=Fusion.OPAQUE,
    doc="Cut along an axis into equal parts, or at indices.",
)  # fmt: skip


def _stack_infer(tensors: Expr, axis: int = 0) -> TensorType:
    first = tensors.ty.fields[0]  # type: ignore[attr-defined]
    if first.shape is None:
        return TensorType(None, first.dtype, first.ndim + 1)
    a = normalize_axis("stack", axis, first.ndim + 1)
    dims = (*first.shape[:a], int64(len(tensors.ty.fields)), *first.shape[a:])  # type: ignore[attr-defined]
    return TensorType(dims, first.dtype, len(dims))


def _stack_lower(tensors: Any, axis: int = 0) -> Any:
    a = normalize_axis("stack", axis, tensors[0].ndim + 1)
    widened = [_view(t, (*t.shape[:a], int64(1), *t.shape[a:])) for t in tensors]
    return _concat_lower(widened, a)


declare(
    "stack", "tensors:tensors", {"axis": 0}, infer=_stack_infer, lower=_stack_lower, reference=lambda tensors, axis: np.stack(tensors, axis),
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


def _tile_dims(shape: Any, repeats: Any) -> tuple[list[Any], list[Any]]:
    reps = list(as_shape(repeats if isinstance(repeats, (tuple, list)) else (repeats,)))
    rank = max(len(shape), len(reps))
    return [int64(1)] * (rank - len(shape)) + list(shape), [int64(1)] * (rank - len(reps)) + reps


def _tile_infer(x: Expr, repeats: Any) -> TensorType:
    ty = tensor_arg("tile", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    dims, reps = _tile_dims(ty.shape, repeats)
    return TensorType(tuple(simplify(d * r) for d, r in zip(dims, reps, strict=True)), ty.dtype, len(dims))


def _tile_lower(x: Any, repeats: Any) -> Any:
    dims, reps = _tile_dims(x.shape, repeats)
    skip = len(dims) - x.ndim
    return te.compute(
        tuple(simplify(d * r) for d, r in zip(dims, reps, strict=True)),
        lambda *i: x(
            *(v if as_int(r) == 1 else floormod(v, d) for v, d, r in zip(i[skip:], x.shape, reps[skip:], strict=True))
        ),
        name="T_tile",
    )


declare(
    "tile", "x", {"repeats": (1,)}, infer=_tile_infer, lower=_tile_lower, reference=lambda x, repeats: np.tile(x, repeats), fusion=Fusion.OPAQUE,
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


def _repeat_lower(x: Any, repeats: int, axis: Any = None) -> Any:
    x = _view(x, (product(x.shape),)) if axis is None else x
    a = normalize_axis("repeat", axis or 0, x.ndim)
    shape = tuple(simplify(d * repeats) if i == a else d for i, d in enumerate(x.shape))
    return te.compute(
        shape, lambda *i: x(*(floordiv(v, int64(repeats)) if d == a else v for d, v in enumerate(i))), name="T_repeat"
    )


declare(
    "repeat", "x", {"repeats": 1, "axis": None}, infer=_repeat_infer, lower=_repeat_lower, reference=lambda x, repeats, axis: np.repeat(x, repeats, axis),
    fusion=Fusion.OPAQUE, doc="Repeat each element along an axis.",
)  # fmt: skip


def _same_type(op: str) -> Any:
    def infer(x: Expr, *_: Any, **__: Any) -> TensorType:
        return tensor_arg(op, "x", x)

    return infer


def _flip_lower(x: Any, axis: int) -> Any:
    a = normalize_axis("flip", axis, x.ndim)
    return te.compute(
        x.shape, lambda *i: x(*(x.shape[a] - int64(1) - v if d == a else v for d, v in enumerate(i))), name="T_flip"
    )


declare(
    "flip", "x", {"axis": 0}, infer=_same_type("flip"), lower=_flip_lower, reference=lambda x, axis: np.ascontiguousarray(np.flip(x, axis)),
    fusion=Fusion.INJECTIVE, doc="Reverse along an axis.",
)  # fmt: skip


# --- slices ------------------------------------------------------------------------------------------------------------


def _slice_bounds(dim: PrimExpr, begin: Any, end: Any, stride: int) -> tuple[PrimExpr, PrimExpr]:
    """Return (begin, length) of a slice by NumPy's rules; symbolic bounds are taken to lie inside."""
    (b, e), size = as_shape((begin, end)), as_int(dim)
    step = int(stride)
    if as_int(b) is not None and as_int(e) is not None and size is not None:
        start, stop, _ = slice(as_int(b), as_int(e), step).indices(size)
        return int64(start), int64(len(range(start, stop, step)))
    if as_int(b) is not None and as_int(b) < 0:  # type: ignore[operator]
        b = dim + b
    if as_int(e) is not None and as_int(e) < 0 and not (step < 0 and as_int(e) == -(2**63)):  # type: ignore[operator]
        e = dim + e
    elif as_int(e) is not None and as_int(e) >= 2**31 - 1:  # type: ignore[operator]
        e = dim
    if step > 0:
        length = ceildiv(e - b, int64(step)) if step != 1 else e - b
    else:
        length = ceildiv(b - e, int64(-step))
    return simplify(b), simplify(length)


def _slice_plan(shape: Any, axes: Any, begin: Any, end: Any, strides: Any) -> dict[int, tuple[Any, Any, int]]:
    steps = strides if strides is not None else [1] * len(axes)
    plan = {}
    for a, b, e, s in zip(axes, begin, end, steps, strict=True):
        axis = normalize_axis("strided_slice", int(a), len(shape))
        step = int(s)
        if step == 0:
            raise InvalidArgument("strided_slice: a stride is 0")
        first, length = _slice_bounds(shape[axis], b, e, step)
        plan[axis] = (first, length, step)
    return plan


def _slice_infer(
    x: Expr, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False
) -> TensorType:
    ty = tensor_arg("strided_slice", "x", x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    plan = _slice_plan(ty.shape, axes, begin, end, strides)
    return TensorType(tuple(plan[i][1] if i in plan else d for i, d in enumerate(ty.shape)), ty.dtype, ty.ndim)


def _slice_lower(x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False) -> Any:
    plan = _slice_plan(x.shape, axes, begin, end, strides)
    return te.compute(
        tuple(plan[i][1] if i in plan else d for i, d in enumerate(x.shape)),
        lambda *i: x(*(plan[d][0] + v * int64(plan[d][2]) if d in plan else v for d, v in enumerate(i))),
        name="T_strided_slice",
    )


def _slice_ref(x: Any, axes: Any, begin: Any, end: Any, strides: Any, assume_inbound: bool) -> Any:
    plan = _slice_plan([int64(d) for d in x.shape], axes, begin, end, strides)
    for a, (first, length, step) in plan.items():
        x = np.take(x, [int(first) + step * i for i in range(int(length))], a)
    return np.ascontiguousarray(x)


declare(
    "strided_slice", "x", {"axes": (), "begin": (), "end": (), "strides": None, "assume_inbound": False}, infer=_slice_infer, lower=_slice_lower,
    reference=_slice_ref, fusion=Fusion.INJECTIVE, doc="A part of a tensor, with steps; constant bounds follow NumPy's rules, symbolic ones lie inside.",
)  # fmt: skip


# --- padding -----------------------------------------------------------------------------------------------------------


def _pad_pairs(ndim: int, pad_width: Any) -> list[tuple[Any, Any]]:
    flat = list(as_shape(pad_width))
    if len(flat) != 2 * ndim:
        raise ShapeMismatch("nn.pad: pad_width has a wrong length", expected=str(2 * ndim), found=str(len(flat)))
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(ndim)]


def _pad_infer(data: Expr, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0) -> TensorType:
    ty = tensor_arg("nn.pad", "data", data)
    if pad_mode not in ("constant", "reflect", "edge", "replicate", "wrap", "circular"):
        raise InvalidArgument(
            f"nn.pad: unknown mode '{pad_mode}'", expected="constant, reflect, edge or wrap", where=data.span
        )
    if ty.shape is None:
        return ty
    pairs = _pad_pairs(ty.ndim, pad_width)
    return TensorType(tuple(simplify(d + b + a) for d, (b, a) in zip(ty.shape, pairs, strict=True)), ty.dtype, ty.ndim)


def _pad_lower(data: Any, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0) -> Any:
    pairs = _pad_pairs(data.ndim, pad_width)
    shape = tuple(simplify(d + b + a) for d, (b, a) in zip(data.shape, pairs, strict=True))

    def constant(*i: Any) -> Any:
        inside: Any = const(True, "bool")
        at = []
        for v, d, (b, a) in zip(i, data.shape, pairs, strict=True):
            j = v if as_int(b) == 0 else v - b
            if as_int(b) != 0:
                inside = logical_and(inside, j >= int64(0))
            if as_int(a) != 0:
                inside = logical_and(inside, j < d)
            at.append(j)
        return if_then_else(inside, data(*at), const(pad_value, data.dtype))

    def mapped(*i: Any) -> Any:
        return data(
            *(
                v if as_int(b) == 0 and as_int(a) == 0 else _pad_index(v - b, d, pad_mode)
                for v, d, (b, a) in zip(i, data.shape, pairs, strict=True)
            )
        )

    return te.compute(shape, constant if pad_mode == "constant" else mapped, name="T_pad")


def _pad_index(j: Any, d: Any, mode: str) -> Any:
    zero, last = int64(0), d - int64(1)
    if mode in ("edge", "replicate"):
        return tir.max(zero, tir.min(j, last))
    if mode in ("wrap", "circular"):
        return floormod(j, d)
    period = tir.max(last * int64(2), int64(1))
    k = floormod(j, period)
    return tir.min(k, period - k) if not (isinstance(last, IntImm) and last.value == 0) else zero


def _pad_ref(data: Any, pad_width: Any, pad_mode: str, pad_value: float) -> Any:
    pairs = [(int(b), int(a)) for b, a in _pad_pairs(data.ndim, pad_width)]
    mode = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
    return np.pad(data, pairs, mode, **({"constant_values": pad_value} if mode == "constant" else {}))


declare(
    "nn.pad", "data", {"pad_width": (), "pad_mode": "constant", "pad_value": 0.0}, infer=_pad_infer, lower=_pad_lower, reference=_pad_ref,
    fusion=Fusion.INJECTIVE, doc="Pad each axis before and after; `pad_width` is (before, after) for each axis in turn.",
)  # fmt: skip


# --- making ------------------------------------------------------------------------------------------------------------


def _full_infer(shape: Expr, fill_value: Expr, dtype: str = "") -> TensorType:
    ty = tensor_arg("full", "fill_value", fill_value)
    values = values_of(shape)
    dt = DataType(dtype) if dtype else ty.dtype
    return TensorType(values, dt, len(values) if values is not None else getattr(shape.ty, "ndim", -1))  # type: ignore[attr-defined]


def _full_lower(shape: Any, fill_value: Any, dtype: str = "") -> Any:
    dt = dtype or fill_value.dtype
    return te.compute(tuple(shape), lambda *_: cast(dt, fill_value(*([int64(0)] * fill_value.ndim))), name="T_full")


declare(
    "full", "shape:shape fill_value", {"dtype": ""}, infer=_full_infer, lower=_full_lower,
    reference=lambda shape, fill_value, dtype: np.full([int(d) for d in shape], np.asarray(fill_value).reshape(()), numpy_dtype(dtype) if dtype else None),
    fusion=Fusion.OPAQUE, doc="A tensor of one value.",
)  # fmt: skip

for _name, _value in (("zeros", 0), ("ones", 1)):
    declare(
        _name, "shape:shape", {"dtype": "float32"},
        infer=lambda shape, dtype="float32": TensorType(values_of(shape), DataType(dtype), len(values_of(shape) or ())),
        lower=lambda shape, dtype="float32", _v=_value: te.compute(tuple(shape), lambda *_: const(_v, dtype), name="T_full"),
        reference=lambda shape, dtype, _v=_value: np.full([int(d) for d in shape], _v, numpy_dtype(dtype)), fusion=Fusion.OPAQUE,
        doc=f"A tensor of {_name}.",
    )  # fmt: skip
    declare(
        _name + "_like", "x", {"dtype": ""},
        infer=lambda x, dtype="": TensorType(x.ty.shape, DataType(dtype) if dtype else x.ty.dtype, x.ty.ndim),
        lower=lambda x, dtype="", _v=_value: te.compute(x.shape, lambda *_: const(_v, dtype or x.dtype), name="T_full"),
        reference=lambda x, dtype, _v=_value: np.full(x.shape, _v, numpy_dtype(dtype) if dtype else x.dtype), fusion=Fusion.OPAQUE,
        doc=f"A tensor of {_name}, shaped as another.",
    )  # fmt: skip


def _prim(value: Any) -> Any:
    return value.value if isinstance(value, PrimValue) else value


def _arange_infer(start: Any, end: Any, step: Any, dtype: str = "int64") -> TensorType:
    b, e, s = (as_shape((_prim(v),))[0] for v in (start, end, step))
    length = (
        max_(ceildiv(e - b, s), int64(0))
        if as_int(s) is None or as_int(s) > 0
        else max_(ceildiv(b - e, int64(0) - s), int64(0))
    )  # type: ignore[operator]
    if as_int(b) == 0 and as_int(s) == 1:
        length = e
    return TensorType((simplify(length),), DataType(dtype), 1)


def _arange_lower(start: Any, end: Any, step: Any, dtype: str = "int64") -> Any:
    b, s = (as_shape((_prim(v),))[0] for v in (start, step))
    extent = _arange_infer(start, end, step, dtype).shape
    return te.compute(extent, lambda i: cast(dtype, b + i * s), name="T_arange")  # type: ignore[arg-type]


declare(
    "arange", "start:prim end:prim step:prim", {"dtype": "int64"}, infer=_arange_infer, lower=_arange_lower,
    reference=lambda start, end, step, dtype: np.arange(int(start), int(end), int(step)).astype(numpy_dtype(dtype)), fusion=Fusion.OPAQUE,
    doc="Evenly spaced integers.",
)  # fmt: skip


def _triangle(lower_part: bool) -> Any:
    def lower(x: Any, k: Any = 0) -> Any:
        offset = as_shape((_prim(k),))[0]

        def element(*i: Any) -> Any:
            keep = i[-1] <= i[-2] + offset if lower_part else i[-1] >= i[-2] + offset
            return select(keep, x(*i), const(0, x.dtype))

        return te.compute(x.shape, element, name="T_tril" if lower_part else "T_triu")

    return lower


for _name, _fn in (("tril", np.tril), ("triu", np.triu)):
    declare(
        _name, "x", {"k": 0}, infer=_same_type(_name), lower=_triangle(_name == "tril"), reference=lambda x, k, _fn=_fn: _fn(x, int(k)),
        fusion=Fusion.INJECTIVE, doc="The triangle of each matrix, shifted by k.",
    )  # fmt: skip
