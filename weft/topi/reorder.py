"""Elements at other places: windows, diagonals, sequences, parts of tensors that are written over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import as_int, cast, const, floordiv, floormod, if_then_else, int64, select
from weft.te import Tensor
from weft.topi.broadcast import broadcast_index
from weft.topi.elementwise import cast_scalar
from weft.topi.index import clamped, from_end, whole
from weft.topi.shape import normalize_axes, normalize_axis, simplify
from weft.topi.slice import FAR
from weft.topi.typing import Axes, Bounds, Buffers, IRBuilder, Shape
from weft.topi.written import written


def _number(values: Any, d: int) -> Any:
    """One of a list of numbers, or of a vector."""
    return whole(values(d) if isinstance(values, te.Tensor) else values[d])


def _length(values: Any) -> int:
    n = as_int(values.shape[0]) if isinstance(values, te.Tensor) else len(values)
    if n is None:
        raise InvalidArgument("the length of a vector of bounds must be constant", found=str(values.shape[0]))
    return n


# --- parts of tensors -------------------------------------------------------------------------------------------------


def dynamic_strided_slice(a: te.Tensor, begin: Bounds, end: Bounds, strides: Bounds, output_shape: Shape) -> Any:
    """Take every `strides`-th element of leading axes from `begin` on, as many as `output_shape` says.

    Parameters
    ----------
    begin, end, strides : Tensor or sequence
        A number an axis.
    """

    def element(*i: Any) -> Any:
        at = list(i)
        for d in range(_length(begin)):
            at[d] = clamped(
                from_end(_number(begin, d), a.shape[d]) + cast("int64", i[d]) * _number(strides, d), a.shape[d]
            )
        return a(*at)

    return te.compute(tuple(output_shape), element, name="T_dynamic_strided_slice")


def _bounds(begin: Any, end: Any, strides: Any, d: int, extent: Any) -> tuple[Any, Any, Any]:
    """First index, stride and end of a slice by NumPy's rules, for numbers that are known at run time."""
    extent = cast("int64", extent)
    step = _number(strides, d) if strides is not None and d < _length(strides) else int64(1)
    forward = step > 0
    lowest, highest = select(forward, int64(0), int64(-1)), select(forward, extent, extent - 1)

    def bound(values: Any, missing: Any) -> Any:
        if d >= _length(values):
            return missing
        v = _number(values, d)
        return tir.max(tir.min(select(v < 0, v + extent, v), highest), lowest)

    first = bound(begin, select(forward, int64(0), extent - 1))
    return first, step, bound(end, select(forward, extent, int64(-1)))


def strided_set(a: te.Tensor, v: te.Tensor, begin: Bounds, end: Bounds, strides: Bounds | None = None) -> Any:
    """A copy of `a` in which the slice ``begin:end:strides`` of leading axes is `v`."""
    rank = max(_length(begin), _length(end))
    plan = [_bounds(begin, end, strides, d, a.shape[d]) for d in range(rank)]
    if any(isinstance(t, te.Tensor) for t in (begin, end, strides)):  # found once, not for each element
        bounds = [te.compute((1,), lambda _, p=p: p, name="bounds") for p in plan]
        plan = [tuple(part(0) for part in parts) for parts in bounds]

    def element(*i: Any) -> Any:
        inside, at = const(True, "bool"), list(i)
        for d, (first, step, stop) in enumerate(plan):
            forward, index = step > 0, cast("int64", i[d])
            size, distance = select(forward, step, -step), select(forward, index - first, first - index)
            left = select(forward, stop - index, index - stop)
            inside = tir.all(inside, distance >= 0, left > 0, floormod(distance, size).equal(int64(0)))
            at[d] = tir.max(tir.min(floordiv(distance, size), cast("int64", v.shape[d]) - 1), int64(0))
        return if_then_else(inside, v(*at), a(*i))

    return te.compute(a.shape, element, name="T_strided_set")


def slice_scatter(input_tensor: te.Tensor, src: te.Tensor, start: int, end: int, step: int, axis: int) -> Any:
    """A copy of `input_tensor` in which the slice ``start:end:step`` of an axis is `src`, in a list."""
    axis = normalize_axis("slice_scatter", axis, input_tensor.ndim)
    return [strided_set(input_tensor, src, [*[0] * axis, start], [*[FAR] * axis, end], [*[1] * axis, step])]


def sliding_window(data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The windows that move over the axes from `axis` on, as new last axes."""
    first = normalize_axis("sliding_window", axis, data.ndim)
    rank = data.ndim - first
    if len(window_shape) != rank or len(strides) != rank:
        raise ShapeMismatch("sliding_window: one extent and one stride an axis", expected=str(rank))
    sizes, steps = [int(w) for w in window_shape], [int(s) for s in strides]
    places = [simplify(floordiv(d - w, s) + 1) for d, w, s in zip(data.shape[first:], sizes, steps, strict=True)]

    def element(*i: Any) -> Any:
        moved = [i[first + d] * steps[d] + i[first + rank + d] for d in range(rank)]
        return data(*i[:first], *moved)

    return te.compute((*data.shape[:first], *places, *sizes), element, name="T_sliding_window")


# --- repeating and summing --------------------------------------------------------------------------------------------


def expand_like(a: te.Tensor, shape_like: te.Tensor, axis: Axes) -> Any:
    """Repeat `a` along new axes until it has the shape of another tensor."""
    rank = shape_like.ndim
    axes = normalize_axes("expand_like", () if axis is None else (axis,) if isinstance(axis, int) else axis, rank)
    if a.ndim + len(axes) != rank:
        if a.ndim == 1 and len(axes) == rank:
            return te.compute(shape_like.shape, lambda *_: a(0), name="T_expand_like")
        raise ShapeMismatch("expand_like: ranks do not fit", expected=str(rank), found=f"{a.ndim} + {len(axes)}")
    kept = [d for d in range(rank) if d not in axes]
    shape = tuple(shape_like.shape[d] for d in kept)

    def element(*i: Any) -> Any:
        return a(*broadcast_index(a.shape, shape, [i[d] for d in kept]))

    return te.compute(shape_like.shape, element, name="T_expand_like")


def dyn_tile(a: te.Tensor, new_shape: Shape, rdim: int) -> Any:
    """Repeat the whole tensor until it fills a shape; `rdim` is the number of repetitions that were asked for."""
    skip = len(new_shape) - a.ndim

    def element(*i: Any) -> Any:
        return a(*(floormod(v, d) for v, d in zip(i[skip:], a.shape, strict=True)))

    return te.compute(tuple(new_shape), element, name="T_dyn_tile")


def tensordot(a: te.Tensor, b: te.Tensor, axes: int | Sequence[int | Sequence[int]]) -> Any:
    """Sum the products over axes of both: the last `axes` of one and the first of the other, or pairs of lists."""
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([*v] if isinstance(v, Sequence) else [v] for v in axes)
        left = [normalize_axis("tensordot", v, a.ndim) for v in left]
        right = [normalize_axis("tensordot", v, b.ndim) for v in right]
    if len(left) != len(right):
        raise ShapeMismatch("tensordot: as many axes of both", found=f"{len(left)}, {len(right)}")
    ks = [te.reduce_axis((0, a.shape[v]), f"k{n}") for n, v in enumerate(left)]
    free_a, free_b = [d for d in range(a.ndim) if d not in left], [d for d in range(b.ndim) if d not in right]

    def element(*i: Any) -> Any:
        outer_a, outer_b = iter(i[: len(free_a)]), iter(i[len(free_a) :])
        x = a(*(ks[left.index(d)].var if d in left else next(outer_a) for d in range(a.ndim)))
        y = b(*(ks[right.index(d)].var if d in right else next(outer_b) for d in range(b.ndim)))
        return te.sum(x * y, axis=ks) if ks else x * y

    shape = (*(a.shape[d] for d in free_a), *(b.shape[d] for d in free_b))
    return te.compute(shape, element, name="T_tensordot")


# --- by index ---------------------------------------------------------------------------------------------------------


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Any:
    """Put `mask_value` where a position along `axis`, 0 or 1, lies behind the length of its sequence."""
    if axis not in (0, 1):
        raise InvalidArgument("sequence_mask: the axis of positions is the first or second", found=str(axis))
    fill = const(mask_value, data.dtype)

    def element(*i: Any) -> Any:
        return if_then_else(cast("int64", i[axis]) < whole(valid_length(i[1 - axis])), data(*i), fill)

    return te.compute(data.shape, element, name="T_sequence_mask")


def unravel_index(indices: Tensor, shape: Shape) -> Any:
    """The coordinates of elements from their positions in row-major order, as a new first axis."""
    rank = _length(shape)
    extents = [_number(shape, d) for d in range(rank)]

    def element(*i: Any) -> Any:
        rest = whole(indices(*i[1:]))  # a narrow type of indices may not hold an extent
        parts: list[Any] = []
        for d in reversed(extents):
            parts.append(cast(indices.dtype, floormod(rest, d)))
            rest = floordiv(rest, d)
        value = parts[0]
        for n, part in enumerate(parts[1:], 2):
            value = if_then_else(i[0].equal(rank - n), part, value)
        return value

    return te.compute((rank, *indices.shape), element, name="T_unravel_index")


def invert_permutation(data: Tensor) -> Any:
    """The permutation that undoes one."""

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, found = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, data.shape[0]) as i:
            found[i] = const(0, data.dtype)
        with ib.for_range(0, data.shape[0]) as i:
            found[clamped(given[i], data.shape[0])] = cast(data.dtype, i)

    return written(data.shape, [data], body, name="invert_permutation", dtype=data.dtype)


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: int = 0, align: str = "RIGHT_LEFT") -> Any:
    """Put diagonals into matrices.

    Parameters
    ----------
    diagonal : Tensor
        (..., n) for one diagonal, (..., diagonals, n) for several, the topmost first.
    k : int or pair
        The diagonal, or the lowest and the topmost.
    align : str
        Where shorter diagonals above and below the main one stand in their rows: ``RIGHT_LEFT`` and so on.
    """
    low, high = (int(k), int(k)) if not isinstance(k, (list, tuple)) else (int(k[0]), int(k[-1]))
    above, _, below = align.partition("_")
    rows, columns = data.shape[-2:]
    one_rank = low == high and diagonal.ndim == data.ndim - 1

    def element(*i: Any) -> Any:
        row, column = i[-2], i[-1]
        d = column - row
        length = tir.min(rows + tir.min(d, 0), columns - tir.max(d, 0))
        shift = diagonal.shape[-1] - length
        shift = select(d >= 0, shift if above == "RIGHT" else shift * 0, shift if below == "RIGHT" else shift * 0)
        place = tir.min(row, column) + (shift if low != high else 0)
        value = diagonal(*i[:-2], place) if one_rank else diagonal(*i[:-2], high - d, place)
        return if_then_else(tir.all(d >= low, d <= high), value, data(*i))

    return te.compute(data.shape, element, name="T_matrix_set_diag")


# --- sizes ------------------------------------------------------------------------------------------------------------


def tensor_size(array: Tensor, dtype: str = "int32") -> Any:
    """The number of elements, as a tensor without axes."""
    total: Any = const(1, dtype)
    for d in array.shape:
        total = total * cast_scalar(d, dtype)
    return te.compute((), lambda: total, name="T_tensor_size")


def ndarray_size(array: Tensor, dtype: str = "int32") -> Any:
    """The number of elements, as a tensor without axes: the older name of :func:`tensor_size`."""
    return tensor_size(array, dtype)
