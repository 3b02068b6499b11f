"""Moving, joining and cutting tensors."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.error import ShapeMismatch
from weft.ir import (
    IntImm,
    as_int,
    as_shape,
    ceildiv,
    floordiv,
    floormod,
    if_then_else,
    int64,
)
from weft.topi.reduce import unravel
from weft.topi.shape import normalize_axes, normalize_axis, product, ravel, simplify

__all__ = ["concatenate", "expanded_axes", "expanded_shape", "flip", "permutation", "repeat", "split", "split_points", "squeezed_axes", "stack", "tile", "tile_dims", "transpose", "view"]


def view(x: Any, shape: Any, name: str = "T_reshape") -> Any:
    """Read a tensor in row-major order under another shape."""
    return te.compute(tuple(shape), lambda *i: x(*unravel(ravel(i, shape), x.shape)), name=name)


def permutation(axes: Any, ndim: int) -> tuple[int, ...]:
    order = (
        tuple(reversed(range(ndim))) if axes is None else tuple(normalize_axis("permute_dims", a, ndim) for a in axes)
    )
    if sorted(order) != list(range(ndim)):
        raise ShapeMismatch(
            "permute_dims: axes are no permutation", expected=f"each of 0..{ndim - 1} once", found=str(tuple(axes))
        )
    return order


def transpose(x: Any, axes: Any = None) -> Any:
    order = permutation(axes, x.ndim)
    inverse = [order.index(d) for d in range(x.ndim)]
    return te.compute(tuple(x.shape[a] for a in order), lambda *i: x(*(i[j] for j in inverse)), name="T_transpose")


def expanded_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    values = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    return normalize_axes("expand_dims", values, ndim + len(values))


def expanded_shape(shape: Any, axis: Any) -> tuple[Any, ...]:
    axes, rest = expanded_axes(axis, len(shape)), iter(shape)
    return tuple(int64(1) if i in axes else next(rest) for i in range(len(shape) + len(axes)))


def squeezed_axes(shape: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(i for i, d in enumerate(shape) if as_int(d) == 1)
    axes = normalize_axes("squeeze", axis, len(shape))
    for a in axes:
        if as_int(shape[a]) not in (1, None):
            raise ShapeMismatch(f"squeeze: dimension {a} is not 1", expected="1", found=str(shape[a]))
    return axes


def concatenate(tensors: Any, axis: int = 0) -> Any:
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


def split_points(ty_dim: Any, indices_or_sections: Any) -> list[tuple[Any, Any]]:
    """(begin, extent) of each part."""
    if isinstance(indices_or_sections, (int, IntImm)):
        n = int(indices_or_sections)
        size = simplify(ceildiv(ty_dim, int64(n)))
        return [(simplify(size * i), simplify(size if i < n - 1 else ty_dim - size * (n - 1))) for i in range(n)]
    points = [int64(0), *as_shape(indices_or_sections), ty_dim]
    return [(b, simplify(e - b)) for b, e in zip(points[:-1], points[1:], strict=True)]


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    a = normalize_axis("split", axis, x.ndim)
    return tuple(
        te.compute(
            tuple(e if d == a else s for d, s in enumerate(x.shape)),
            lambda *i, b=b: x(*(v + b if d == a else v for d, v in enumerate(i))),
            name="T_split",
        )
        for b, e in split_points(x.shape[a], indices_or_sections)
    )


def stack(tensors: Any, axis: int = 0) -> Any:
    a = normalize_axis("stack", axis, tensors[0].ndim + 1)
    widened = [view(t, (*t.shape[:a], int64(1), *t.shape[a:])) for t in tensors]
    return concatenate(widened, a)


def tile_dims(shape: Any, repeats: Any) -> tuple[list[Any], list[Any]]:
    reps = list(as_shape(repeats if isinstance(repeats, (tuple, list)) else (repeats,)))
    rank = max(len(shape), len(reps))
    return [int64(1)] * (rank - len(shape)) + list(shape), [int64(1)] * (rank - len(reps)) + reps


def tile(x: Any, repeats: Any) -> Any:
    dims, reps = tile_dims(x.shape, repeats)
    skip = len(dims) - x.ndim
    return te.compute(
        tuple(simplify(d * r) for d, r in zip(dims, reps, strict=True)),
        lambda *i: x(
            *(v if as_int(r) == 1 else floormod(v, d) for v, d, r in zip(i[skip:], x.shape, reps[skip:], strict=True))
        ),
        name="T_tile",
    )


def repeat(x: Any, repeats: int, axis: Any = None) -> Any:
    x = view(x, (product(x.shape),)) if axis is None else x
    a = normalize_axis("repeat", axis or 0, x.ndim)
    shape = tuple(simplify(d * repeats) if i == a else d for i, d in enumerate(x.shape))
    return te.compute(
        shape, lambda *i: x(*(floordiv(v, int64(repeats)) if d == a else v for d, v in enumerate(i))), name="T_repeat"
    )


def flip(x: Any, axis: int) -> Any:
    a = normalize_axis("flip", axis, x.ndim)
    return te.compute(
        x.shape, lambda *i: x(*(x.shape[a] - int64(1) - v if d == a else v for d, v in enumerate(i))), name="T_flip"
    )
