"""Slices and padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft import error, ir, te, tir
from weft.topi.shape import normalize_axis, simplify
from weft.topi.typing import Extent, Scalar, Shape, Whole

FAR = 2**31 - 1
"""A constant bound from here on means the end."""

_SHORT = 64
"""Elements behind an axis from which on they are vectors by themselves."""


def slice_bounds(
    dim: ir.PrimExpr, begin: Extent, end: Extent, stride: int, inside: bool = False
) -> tuple[ir.PrimExpr, ir.PrimExpr]:
    """Return (begin, length) of a slice by NumPy's rules.

    Parameters
    ----------
    inside : bool
        The caller knows that the bounds, once negative constants are counted from the end, lie inside of the dimension.
    """
    (b, e), size, step = ir.as_shape((begin, end)), ir.as_int(dim), int(stride)
    low, high = ir.as_int(b), ir.as_int(e)
    if low is not None and high is not None and size is not None:
        start, stop, _ = slice(low, high, step).indices(size)
        return ir.int64(start), ir.int64(len(range(start, stop, step)))
    first = _bound(dim, b, step, inside)
    stop_at = ir.int64(-1) if step < 0 and high is not None and high < -FAR else _bound(dim, e, step, inside)
    length = ir.ceildiv(stop_at - first, ir.int64(step)) if step > 0 else ir.ceildiv(first - stop_at, ir.int64(-step))
    length = simplify(length if step != 1 else stop_at - first)
    if not inside and not (step > 0 and ir.as_int(first) == 0):
        length = simplify(tir.max(length, ir.int64(0)))
    return simplify(first), length


def _bound(dim: ir.PrimExpr, value: ir.PrimExpr, step: int, inside: bool) -> ir.PrimExpr:
    """One bound as an index; a slice backwards begins at most at the last element, forwards at most behind it."""
    last = dim if step > 0 else dim - ir.int64(1)
    known = ir.as_int(value)
    if known is None:
        return value if inside else simplify(tir.min(value, last))
    if known >= FAR:
        return last
    if known < 0:
        return dim + value if inside else simplify(tir.max(dim + value, ir.int64(0 if step > 0 else -1)))
    return value if inside or (known == 0 and step > 0) else simplify(tir.min(value, last))


def slice_plan(
    shape: Sequence[ir.PrimExpr],
    axes: Sequence[Whole],
    begin: Shape,
    end: Shape,
    strides: Sequence[Whole] | None,
    inside: bool = False,
) -> dict[int, tuple[Any, Any, int]]:
    """(begin, length, stride) for each axis that is sliced."""
    steps = strides if strides is not None else [1] * len(axes)
    if not len(axes) == len(begin) == len(end) == len(steps):
        raise error.InvalidArgument(
            "strided_slice: axes, begin, end and strides differ in length",
            found=f"{len(axes)}, {len(begin)}, {len(end)}, {len(steps)}",
        )
    plan = {}
    for a, b, e, s in zip(axes, begin, end, steps, strict=True):
        axis = normalize_axis("strided_slice", int(a), len(shape))
        step = int(s)
        if step == 0:
            raise error.InvalidArgument("strided_slice: a stride is 0")
        first, length = slice_bounds(shape[axis], b, e, step, inside)
        plan[axis] = (first, length, step)
    return plan


def strided_slice(
    x: te.Tensor,
    axes: Sequence[Whole],
    begin: Shape,
    end: Shape,
    strides: Sequence[Whole] | None = None,
    assume_inbound: bool = False,
) -> Any:
    """Take a part of a tensor."""
    plan = slice_plan(x.shape, axes, begin, end, strides, assume_inbound)
    return te.compute(
        tuple(plan[i][1] if i in plan else d for i, d in enumerate(x.shape)),
        lambda *i: x(*(plan[d][0] + v * ir.int64(plan[d][2]) if d in plan else v for d, v in enumerate(i))),
        name="T_strided_slice",
    )


def pad_pairs(ndim: int, pad_width: Shape) -> list[tuple[Any, Any]]:
    """(before, after) of each axis."""
    flat = list(ir.as_shape(pad_width))
    if len(flat) != 2 * ndim:
        raise error.ShapeMismatch("nn.pad: pad_width has a wrong length", expected=str(2 * ndim), found=str(len(flat)))
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(ndim)]


def pad(
    data: te.Tensor, pad_width: Shape, pad_mode: str = "constant", pad_value: Scalar = 0.0, name: str = "T_pad"
) -> Any:
    """Pad each axis with a constant, or with elements of the tensor (reflect, edge, wrap)."""
    pairs = pad_pairs(data.ndim, pad_width)
    if pad_mode == "constant":
        return constant_pad(data, pairs, pad_value, name)
    shape = padded_shape(data.shape, pairs)

    def mapped(*i: Any) -> Any:
        """Along the last axis that is padded most elements are inside, where neighbours lie together if few are behind.

        These have no other index.
        """
        at = [v - b for v, (b, _) in zip(i, pairs, strict=True)]
        beside = [ir.as_int(b) != 0 or ir.as_int(a) != 0 for b, a in pairs]
        border = [_pad_index(j, d, pad_mode) if p else j for j, d, p in zip(at, data.shape, beside, strict=True)]
        last = max((n for n, p in enumerate(beside) if p), default=-1)
        if last < 0 or not 0 <= prod(ir.as_int(d) or _SHORT for d in shape[last + 1 :]) < _SHORT:
            return data(*border)
        inside = tir.all(at[last] >= ir.int64(0), at[last] < data.shape[last])
        return ir.if_then_else(inside, data(*border[:last], at[last], *border[last + 1 :]), data(*border))

    return te.compute(shape, mapped, name=name)


def padded_shape(shape: Shape, pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    """The shape of a tensor with (before, after) more elements along each axis."""
    return tuple(simplify(d + b + a) for d, (b, a) in zip(shape, pairs, strict=True))


def constant_pad(data: te.Tensor, pairs: Sequence[tuple[Any, Any]], pad_value: Scalar, name: str) -> Any:
    """Pad each axis with (before, after) elements of one value."""
    known = not isinstance(pad_value, ir.PrimExpr)
    fill = ir.exact_const(pad_value, data.dtype) if known else ir.cast(data.dtype, pad_value)

    def element(*i: Any) -> Any:
        inside, at = [], []
        for v, d, (b, a) in zip(i, data.shape, pairs, strict=True):
            at.append(v if ir.as_int(b) == 0 else v - b)
            inside += [] if ir.as_int(b) == 0 else [ir.cast(v.dtype, b) <= v]
            inside += [] if ir.as_int(a) == 0 else [v < simplify(d + b)]
        return ir.if_then_else(tir.all(*inside), data(*at), fill) if inside else data(*at)

    return te.compute(padded_shape(data.shape, pairs), element, name=name)


def _pad_index(j: Any, d: Any, mode: str) -> Any:
    zero, last = ir.int64(0), d - ir.int64(1)
    if mode in ("edge", "replicate"):
        return tir.max(zero, tir.min(j, last))
    if mode in ("wrap", "circular"):
        return ir.floormod(j, d)
    if mode == "symmetric":
        k = ir.floormod(j, d * ir.int64(2))
        return tir.min(k, d * ir.int64(2) - ir.int64(1) - k)
    period = tir.max(last * ir.int64(2), ir.int64(1))
    k = ir.floormod(j, period)
    return tir.min(k, period - k) if not (isinstance(last, ir.IntImm) and last.value == 0) else zero
