"""Pooling over windows of any rank, channels first or last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft import ir, te, tir
from weft.ir import DataType, PrimExpr, as_int, cast, const, floordiv, if_then_else, int64, select
from weft.topi.conv import channels_last, conv_shape, pad_spatial, paddings, pair, spatial
from weft.topi.precision import accumulator
from weft.topi.shape import simplify, whole
from weft.topi.typing import Extent, Extents, Padding, Shape


def window(
    rank: int, pool_size: Extents, strides: Extents, dilation: Extents, padding: Padding
) -> tuple[Any, Any, Any, Any, Any]:
    """Size, stride, dilation, and padding before and after, of the windows along each axis."""
    before, after = paddings(padding, rank)
    return pair(pool_size, rank), pair(strides, rank), pair(dilation, rank), before, after


def pool_size_of(size: Extents, k: int, s: int, d: int, b: int, a: int, ceil_mode: bool) -> Any:
    """The number of windows along one axis."""
    room = size + int64(b + a - (k - 1) * d - 1)
    if not ceil_mode:
        return simplify(floordiv(room, int64(s)) + int64(1))
    n = floordiv(room + int64(s - 1), int64(s)) + int64(1)
    # windows that would begin in the padding behind the tensor are left out
    return simplify(tir.min(n, floordiv(size + int64(b + s - 1), int64(s))))


def pool_shape(
    shape: Shape,
    pool_size: Extents,
    strides: Extents,
    dilation: Extents,
    padding: Padding,
    ceil_mode: bool,
    layout: str = "",
) -> Any:
    """The shape of the output."""
    k, s, d, b, a = window(len(shape) - 2, pool_size, strides, dilation, padding)
    last = channels_last(layout)
    outs = [pool_size_of(x, k[i], s[i], d[i], b[i], a[i], ceil_mode) for i, x in enumerate(spatial(shape, last))]
    return conv_shape(shape, outs, shape[-1] if last else shape[1], last)


def pool(
    kind: str,
    x: te.Tensor,
    pool_size: Extents = 1,
    strides: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "",
    out_layout: str | None = None,
) -> Any:
    """Take the maximum (`kind` "max") or the mean ("avg") of each window."""
    rank, last = x.ndim - 2, channels_last(layout)
    k, s, d, b, a = window(rank, pool_size, strides, dilation, padding)
    shape = pool_shape(x.shape, pool_size, strides, dilation, padding, ceil_mode, layout)
    wide = _summed_in(x.dtype) if kind == "avg" else x.dtype
    fill = te.lowest(x.dtype) if kind == "max" else const(0, x.dtype)
    out = pad_spatial(x, b, [a[i] + (s[i] - 1 if ceil_mode else 0) for i in range(rank)], last, fill)
    if kind == "avg" and wide != x.dtype:
        out = te.compute(out.shape, lambda *i, t=out: cast(wide, t(*i)), name="wide")
    outs = spatial(shape, last)
    for axes in _together(k, s, last, outs[-1]):
        out = _windows(kind, out, axes, outs, k, s, d, last)
    if kind == "max":
        return out

    def count(j: int, o: Any) -> Any:
        return window_count(o, spatial(x.shape, last)[j], k[j], s[j], d[j], b[j], a[j], ceil_mode, count_include_pad)

    def mean(*i: Any) -> Any:
        if shares:
            return cast(x.dtype, prod((f(o) for f, o in zip(shares, i[2:], strict=True)), start=out(*i)))
        counts = (count(j, o) for j, o in enumerate(spatial(i, last)))
        return cast(x.dtype, _mean(out(*i), prod(counts, start=int64(1))))

    unknown = not last and DataType(wide).is_float and as_int(outs[-1]) is None
    one = const(1, wide)  # where lanes count differently, what an element weighs is found once for all rows
    shares = [te.compute((outs[j],), lambda o, j=j: _mean(one, count(j, o)), "share") for j in range(rank) if unknown]
    return te.compute(shape, mean, name="T_avg_pool")


def _summed_in(dtype: str) -> str:
    """The data type of the sum of a window, which holds sums of integers, too."""
    return accumulator(dtype) if DataType(dtype).is_real else "int64"


def _mean(total: Any, count: Any) -> Any:
    """Divide the sum of a window by the number of its elements; a mean of integers is rounded towards zero."""
    n = as_int(count)
    if n is not None and DataType(total.dtype).is_real:
        return total * const(1.0 / n, total.dtype)
    return total / cast(total.dtype, tir.max(count, int64(1)))


_LARGE_WINDOW, _LONG_ROW = 15, 32
"""Elements of a window from which on it is taken along one axis after the other: all axes' sizes add up then. Windows
of a row from which on, as where they are unknown, what two passes leave behind vectors weighs little."""


def _together(k: Any, s: Any, last: bool, row: PrimExpr) -> list[tuple[int, ...]]:
    """Which axes of a window are taken at once, in order: those first that leave least, and a row's own behind them.

    Elements further than 2 apart in a row, and any apart in a long one, are picked from so many vectors.
    """
    axes = tuple(range(len(k)))
    order = [*sorted(axes[:-1], key=lambda i: -s[i]), axes[-1]]
    picked = s[-1] if not last and (s[-1] > 2 or (as_int(row) or _LONG_ROW) >= _LONG_ROW) else 1
    return [(i,) for i in order if k[i] > 1 or s[i] > 1] if prod(k) * picked >= _LARGE_WINDOW else [axes]


def _windows(kind: str, x: Any, axes: tuple[int, ...], outs: Any, k: Any, s: Any, d: Any, last: bool) -> Any:
    """Take the maximum or the sum along some axes of each window; other axes stay as they are."""
    first = 1 if last else 2
    ks = {i: te.reduce_axis((int64(0), int64(k[i])), f"k{i}") for i in axes}
    shape = list(x.shape)
    for i in axes:
        shape[first + i] = outs[i]

    def element(*o: Any) -> Any:
        at = list(o)
        for i, r in ks.items():
            at[first + i] = o[first + i] * int64(s[i]) + r.var * int64(d[i])
        return (te.max if kind == "max" else te.sum)(x(*at), axis=list(ks.values()))

    return te.compute(tuple(shape), element, name=f"T_{kind}_pool")


def window_count(
    o: ir.PrimExpr, size: ir.PrimExpr, k: int, s: int, d: int, b: int, a: int, ceil_mode: bool, include_pad: bool
) -> Any:
    """How many elements a window counts along one axis."""
    if (b == 0 and a == 0 and not ceil_mode) or (include_pad and not ceil_mode):
        return int64(k)
    start = o * int64(s) - int64(b)
    low, high = (int64(-b), size + int64(a)) if include_pad else (int64(0), size)
    first = tir.max(floordiv(low - start + int64(d - 1), int64(d)), int64(0))
    stop = tir.min(floordiv(high - start + int64(d - 1), int64(d)), int64(k))
    return stop - first


def adaptive_sizes(shape: Shape, output_size: Extents | Sequence[Extent | None] | None, layout: str) -> list[Any]:
    """The spatial sizes of an adaptive pool's output; None keeps a size."""
    sizes = spatial(shape, channels_last(layout))
    if output_size is None:
        return list(sizes)
    values = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,)
    values = values if len(values) == len(sizes) else values * len(sizes)
    return [s if v is None else int64(whole(v)) for v, s in zip(values, sizes, strict=True)]


def adaptive_pool(
    kind: str, x: te.Tensor, output_size: Extents | None = None, layout: str = "", out_layout: str | None = None
) -> Any:
    """Divide each spatial axis into `output_size` windows, which may overlap by one, and take maximum or mean."""
    last = channels_last(layout)
    sizes, outs = spatial(x.shape, last), adaptive_sizes(x.shape, output_size, layout)

    def bounds(o: Any, j: int) -> tuple[Any, Any]:
        size, out = sizes[j], outs[j]
        return floordiv(o * size, out), floordiv((o + int64(1)) * size + out - int64(1), out)

    whole = [as_int(n) == 1 for n in outs]
    longest = [simplify(floordiv(n + out - int64(1), out) + int64(1)) for n, out in zip(sizes, outs, strict=True)]
    ks = [te.reduce_axis((int64(0), sizes[j] if whole[j] else n), f"k{j}") for j, n in enumerate(longest)]
    wide = _summed_in(x.dtype) if kind == "avg" else x.dtype
    fill = te.lowest(x.dtype) if kind == "max" else const(0, x.dtype)

    def element(*i: Any) -> Any:
        at, inside = [], const(True, "bool")
        for j, o in enumerate(spatial(i, last)):
            low, high = bounds(o, j)
            at.append(ks[j].var if whole[j] else low + ks[j].var)
            if not whole[j]:
                inside = tir.all(inside, at[-1] < high)
        value = x(i[0], *at, i[-1]) if last else x(i[0], i[1], *at)
        value = if_then_else(inside, value, fill)
        return te.max(value, axis=ks) if kind == "max" else te.sum(cast(wide, value), axis=ks)

    shape = conv_shape(x.shape, outs, x.shape[-1] if last else x.shape[1], last)
    out = te.compute(shape, element, name=f"T_adaptive_{kind}")
    if kind == "max":
        return out

    def mean(*i: Any) -> Any:
        found = (bounds(o, j) for j, o in enumerate(spatial(i, last)))
        count = prod((sizes[j] if whole[j] else high - low for j, (low, high) in enumerate(found)), start=int64(1))
        return cast(x.dtype, out(*i) / cast(wide, count))

    return te.compute(shape, mean, name="T_adaptive_mean")


def max_pool_with_indices(
    x: te.Tensor,
    pool_size: Extents = 1,
    strides: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> Any:
    """Take the maximum of each window (channels first), and the flat index at which it stands."""
    rank = x.ndim - 2
    k, s, d, b, _ = window(rank, pool_size, strides, dilation, padding)
    shape = pool_shape(x.shape, pool_size, strides, dilation, padding, ceil_mode)
    ks = [te.reduce_axis((int64(0), int64(k[i])), f"k{i}") for i in range(rank)]

    def combine(lhs: Any, rhs: Any) -> Any:
        better = tir.any(rhs[1] > lhs[1], tir.all(lhs[0] < int64(0), rhs[0] >= int64(0)))
        return select(better, rhs[0], lhs[0]), select(better, rhs[1], lhs[1])

    reducer = te.comm_reducer(combine, lambda t0, t1: (const(-1, t0), te.lowest(t1)), name="argmax_pool")
    order = list(range(rank)) if storage_order == 0 else list(reversed(range(rank)))

    def element(n: PrimExpr, c: PrimExpr, *o: Any) -> Any:
        at = [o[j] * int64(s[j]) + ks[j].var * int64(d[j]) - int64(b[j]) for j in range(rank)]
        inside = tir.all(*(tir.all(p >= int64(0), p < x.shape[2 + j]) for j, p in enumerate(at)))
        flat: Any = prod(x.shape[2:], start=n * x.shape[1] + c)
        inner: Any = int64(0)
        for j in order:
            inner = inner * x.shape[2 + j] + at[j]
        index = select(inside, flat + inner, int64(-1))
        return reducer((index, if_then_else(inside, x(n, c, *at), te.lowest(x.dtype))), axis=ks)

    index, value = te.compute(shape, element, name="max_pool_indices")
    return value, index


_TERMS = 16
"""Tensors up to which their sum is one expression, not a loop."""


def overlap_add(x: te.Tensor, hop: int) -> te.Tensor:
    """Add tensors, each `hop` places further along an axis than the one before.

    Parameters
    ----------
    x : Tensor
        ``(rows, parts, middle, length, inner)``: `parts` are added, shifted along `length`.
    hop : int

    Returns
    -------
    Tensor
        ``(rows, middle, length + (parts - 1) * hop, inner)``; there is nothing where there are no parts.
    """
    rows, parts, middle, length, inner = x.shape
    zero, count = const(0, x.dtype), as_int(parts)

    def term(r: PrimExpr, a: Any, m: PrimExpr, y: PrimExpr, i: PrimExpr) -> Any:
        inside = tir.all(y >= a * hop, y < a * hop + length)
        return if_then_else(inside, x[r, a, m, y - a * hop, i], zero)

    def element(r: PrimExpr, m: PrimExpr, y: PrimExpr, i: PrimExpr) -> Any:
        if count is None or count > _TERMS:
            a = te.reduce_axis((0, parts), name="a")
            return te.sum(term(r, a, m, y, i), a)
        return sum((term(r, int64(a), m, y, i) for a in range(count)), zero)

    whole = simplify(tir.max(length + (parts - 1) * hop, 0))
    return te.compute((rows, middle, whole, inner), element, name="T_overlap_add")
