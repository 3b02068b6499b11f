"""Moving, joining and cutting tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft import error, ir, te, tir
from weft.ir import PrimExpr
from weft.spelling import also_called
from weft.tir.schedule import IndexMap
from weft.topi.shape import normalize_axes, normalize_axis, product, ravel, simplify, unravel, whole
from weft.topi.typing import Axes, Extent, Extents, Scalar, Shape, Tensors, Whole


def view(x: te.Tensor, shape: Sequence[ir.PrimExpr], name: str = "T_reshape") -> Any:
    """Read a tensor in row-major order under another shape."""
    return te.compute(tuple(shape), lambda *i: x(*unravel(ravel(i, shape), x.shape)), name=name)


def permutation(axes: Sequence[Whole] | None, ndim: int) -> tuple[int, ...]:
    """The order of dimensions; reversed when `axes` is None."""
    order = (
        tuple(reversed(range(ndim))) if axes is None else tuple(normalize_axis("permute_dims", a, ndim) for a in axes)
    )
    if sorted(order) != list(range(ndim)):
        raise error.ShapeMismatch(
            "permute_dims: axes are no permutation", expected=f"each of 0..{ndim - 1} once", found=str(order)
        )
    return order


def transpose(a: te.Tensor, axes: Sequence[Whole] | None = None) -> Any:
    """Reorder dimensions."""
    order = permutation(axes, a.ndim)
    inverse = [order.index(d) for d in range(a.ndim)]
    return te.compute(tuple(a.shape[v] for v in order), lambda *i: a(*(i[j] for j in inverse)), name="T_transpose")


def expanded_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Where the new dimensions stand in the result."""
    values = tuple(axis) if isinstance(axis, Sequence) else (whole(axis),)
    return normalize_axes("expand_dims", values, ndim + len(values))


def expanded_shape(shape: Shape, axis: Axes) -> tuple[Any, ...]:
    """The shape with dimensions of extent 1 inserted."""
    axes, rest = expanded_axes(axis, len(shape)), iter(shape)
    return tuple(ir.int64(1) if i in axes else next(rest) for i in range(len(shape) + len(axes)))


def squeezed_axes(shape: Shape, axis: Axes) -> tuple[int, ...]:
    """The dimensions of extent 1 to drop."""
    if axis is None:
        return tuple(i for i, d in enumerate(shape) if ir.as_int(d) == 1)
    if not shape:
        return ()
    axes = normalize_axes("squeeze", axis, len(shape))
    for a in axes:
        if ir.as_int(shape[a]) not in (1, None):
            raise error.ShapeMismatch(f"squeeze: dimension {a} is not 1", expected="1", found=str(shape[a]))
    return axes


def concatenate(a_tuple: Tensors, axis: int = 0) -> Any:
    """Join along an axis."""
    a = normalize_axis("concat", axis or 0, a_tuple[0].ndim)
    ends: list[Any] = []
    total: Any = ir.int64(0)
    for t in a_tuple:
        total = simplify(total + t.shape[a])
        ends.append(total)

    def element(*i: Any) -> Any:
        value = a_tuple[-1](
            *(v if d != a else v - (ends[-2] if len(ends) > 1 else ir.int64(0)) for d, v in enumerate(i))
        )
        for n in reversed(range(len(a_tuple) - 1)):
            begin = ends[n - 1] if n else ir.int64(0)
            value = ir.if_then_else(
                i[a] < ends[n], a_tuple[n](*(v if d != a else v - begin for d, v in enumerate(i))), value
            )
        return value

    return te.compute(tuple(total if d == a else e for d, e in enumerate(a_tuple[0].shape)), element, name="T_concat")


def split_points(ty_dim: ir.PrimExpr, indices_or_sections: Whole | Sequence[Extent]) -> list[tuple[Any, Any]]:
    """(begin, extent) of each part."""
    if isinstance(indices_or_sections, (int, ir.IntImm)):
        n = int(indices_or_sections)
        size = simplify(ir.ceildiv(ty_dim, ir.int64(n)))
        return [(simplify(size * i), simplify(size if i < n - 1 else ty_dim - size * (n - 1))) for i in range(n)]
    points = [ir.int64(0), *ir.as_shape(indices_or_sections), ty_dim]
    return [(b, simplify(e - b)) for b, e in itertools.pairwise(points)]


def split(ary: te.Tensor, indices_or_sections: Whole | Sequence[Extent], axis: int = 0) -> Any:
    """Cut along an axis."""
    a = normalize_axis("split", axis, ary.ndim)
    return tuple(
        te.compute(
            tuple(e if d == a else s for d, s in enumerate(ary.shape)),
            lambda *i, b=b: ary(*(v + b if d == a else v for d, v in enumerate(i))),
            name="T_split",
        )
        for b, e in split_points(ary.shape[a], indices_or_sections)
    )


@also_called(a="tensors")
def stack(tensors: Tensors, axis: int = 0) -> Any:
    """Join along a new axis."""
    a = normalize_axis("stack", axis, tensors[0].ndim + 1)
    widened = [view(t, (*t.shape[:a], ir.int64(1), *t.shape[a:])) for t in tensors]
    return concatenate(widened, a)


def tile_dims(shape: Shape, repeats: Extents) -> tuple[list[Any], list[Any]]:
    """Dimensions and repetitions, brought to one rank."""
    reps = list(ir.as_shape(repeats if isinstance(repeats, (tuple, list)) else (repeats,)))
    rank = max(len(shape), len(reps))
    return [ir.int64(1)] * (rank - len(shape)) + list(shape), [ir.int64(1)] * (rank - len(reps)) + reps


def tile(x: te.Tensor, repeats: Extents) -> Any:
    """Repeat the whole tensor along each axis."""
    dims, reps = tile_dims(x.shape, repeats)
    skip = len(dims) - x.ndim
    return te.compute(
        tuple(simplify(d * r) for d, r in zip(dims, reps, strict=True)),
        lambda *i: x(
            *(
                v if ir.as_int(r) == 1 or ir.as_int(d) == 0 else ir.floormod(v, d)
                for v, d, r in zip(i[skip:], x.shape, reps[skip:], strict=True)
            )
        ),
        name="T_tile",
    )


def repeat(a: te.Tensor, repeats: int, axis: int | None = None) -> Any:
    """Repeat each element along an axis."""
    a = view(a, (product(a.shape),)) if axis is None else a
    along = normalize_axis("repeat", axis or 0, a.ndim)
    shape = tuple(simplify(d * repeats) if i == along else d for i, d in enumerate(a.shape))
    return te.compute(
        shape,
        lambda *i: a(*(ir.floordiv(v, ir.int64(max(repeats, 1))) if d == along else v for d, v in enumerate(i))),
        name="T_repeat",
    )


def flip(a: te.Tensor, axis: int = 0) -> Any:
    """Reverse along an axis."""
    along = normalize_axis("flip", axis, a.ndim)
    return te.compute(
        a.shape,
        lambda *i: a(*(a.shape[along] - v - ir.int64(1) if d == along else v for d, v in enumerate(i))),
        name="T_flip",
    )


def reshape(a: te.Tensor, newshape: Shape) -> Any:
    """The same elements in row-major order under another shape; a ShapeMismatch where it is of other elements."""
    shape = ir.as_shape(newshape)
    had, has = (ir.as_int(product(s)) for s in (a.shape, shape))
    if had is not None and has is not None and had != has:
        raise error.ShapeMismatch("reshape: another number of elements", expected=str(had), found=f"{has} of {shape}")
    return view(a, shape)


def expand_dims(a: te.Tensor, axis: Axes, num_newaxis: int = 1) -> Any:
    """Insert dimensions of extent 1."""
    axes = tuple(axis + i for i in range(num_newaxis)) if isinstance(axis, int) and num_newaxis != 1 else axis
    new = expanded_axes(axes, a.ndim)
    inside = lambda *i: a(*(v for d, v in enumerate(i) if d not in new))  # noqa: E731
    return te.compute(expanded_shape(a.shape, axes), inside, name="T_expand_dims")


def squeeze(a: te.Tensor, axis: int | None = None) -> Any:
    """Drop dimensions of extent 1."""
    dropped = squeezed_axes(a.shape, axis)

    def inside(*i: Any) -> Any:
        left = iter(i)
        return a(*(ir.int64(0) if d in dropped else next(left) for d in range(a.ndim)))

    return te.compute([d for i, d in enumerate(a.shape) if i not in dropped], inside, name="T_squeeze")


def space_to_depth(x: te.Tensor, block_size: int) -> Any:
    """Move blocks of the two spatial axes (channels first) into channels, the block's position before the channel."""
    n, c, h, w = x.shape
    b = ir.int64(block_size)
    shape = (n, simplify(c * b * b), simplify(ir.floordiv(h, b)), simplify(ir.floordiv(w, b)))

    def element(i: PrimExpr, k: PrimExpr, y: PrimExpr, z: PrimExpr) -> Any:
        block = ir.floordiv(k, c)
        return x(i, ir.floormod(k, c), y * b + ir.floordiv(block, b), z * b + ir.floormod(block, b))

    return te.compute(shape, element, name="T_space_to_depth")


def depth_to_space(x: te.Tensor, block_size: int, mode: str = "DCR") -> Any:
    """Move channels into blocks of the two spatial axes (channels first).

    ``DCR``: the block's position stands before the channel.
    """
    *lead, c, h, w = x.shape
    b = ir.int64(block_size)
    depth = simplify(ir.floordiv(c, b * b))

    def element(*at: PrimExpr) -> Any:
        *i, k, y, z = at
        block = ir.floormod(y, b) * b + ir.floormod(z, b)
        channel = block * depth + k if mode == "DCR" else k * (b * b) + block
        return x(*i, channel, ir.floordiv(y, b), ir.floordiv(z, b))

    return te.compute((*lead, depth, simplify(h * b), simplify(w * b)), element, name="T_depth_to_space")


def meshgrid(a_tuple: Tensors, indexing: str = "ij") -> Any:
    """Repeat vectors over the grid that they span, one tensor for each."""
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = tuple(a_tuple[o].shape[0] for o in order)
    return tuple(
        te.compute(shape, lambda *i, t=t, n=n: t(i[order.index(n)]), name="T_meshgrid") for n, t in enumerate(a_tuple)
    )


def _moved(array: te.Tensor, index_map: Any, pad: Any) -> Any:
    back, outside = index_map.non_surjective_inverse(array.shape)

    def element(*i: Any) -> Any:
        places = {v: ir.cast(v.dtype, x) for v, x in zip(back.initial_indices, i, strict=True)}
        value = array(*[ir.substitute(e, places) for e in back.final_indices])
        empty = ir.substitute(outside, places)
        return value if isinstance(empty, ir.IntImm) else ir.if_then_else(empty, pad, value)

    return te.compute(index_map.map_shape(array.shape), element, name="T_layout_trans")


def layout_shape(shape: Shape, src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """The shape of a tensor in another layout."""
    return tir.BijectiveLayout(src_layout, dst_layout).forward_shape(shape)


@also_called(tensor="array", current_layout="src_layout", desired_layout="dst_layout")
def layout_transform(
    array: te.Tensor,
    src_layout: str = "",
    dst_layout: str = "",
    index_map: IndexMap | None = None,
    pad_value: Scalar | None = None,
) -> Any:
    """Bring a tensor into another layout, which may block axes; or where an index map says.

    Places that no element goes to, since a block is longer than what is left of a dimension, hold `pad_value` or 0.
    """
    if index_map is not None:
        return _moved(array, index_map, ir.const(pad_value or 0, array.dtype))
    way = tir.BijectiveLayout(src_layout, dst_layout)
    return te.compute(way.forward_shape(array.shape), lambda *i: array(*way.backward_index(i)), name="T_layout_trans")
