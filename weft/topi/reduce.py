"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import te, tir
from weft.ir import DataType, PrimExpr, as_int, cast, const, int64, logical_and, logical_or, select
from weft.te import Tensor, compute
from weft.topi.known_values import is_target
from weft.topi.precision import accumulator, narrowed, widened
from weft.topi.shape import normalize_axes, product, unravel
from weft.topi.typing import Axes


def reduced_shape(shape: Sequence[PrimExpr], axes: Sequence[int], keepdims: bool) -> tuple[PrimExpr, ...]:
    """The shape after a reduction."""
    one = int64(1)
    return tuple(one if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


def reduced_index(
    indices: Sequence[Any], inner: Sequence[Any], axes: Sequence[int], ndim: int, keepdims: bool
) -> list[Any]:
    """Put output indices and reduction variables together into input indices."""
    outer = iter([i for d, i in enumerate(indices) if d not in axes] if keepdims else indices)
    reduction = iter(inner)
    return [next(reduction) if d in axes else next(outer) for d in range(ndim)]


_REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": te.sum,
    "prod": te.prod,
    "max": te.max,
    "min": te.min,
    "all": te.comm_reducer(logical_and, lambda t: const(True, "bool"), name="all"),
    "any": te.comm_reducer(logical_or, lambda t: const(False, "bool"), name="any"),
}


def reduce(
    kind: str,
    x: Tensor,
    axes: Sequence[int],
    keepdims: bool = False,
    fn: Callable[[Any], Any] = lambda v: v,
    name: str | None = None,
) -> Tensor:
    """Reduce ``fn(x)`` over `axes` (sorted, non-negative) by `kind`: sum, prod, max, min, all, any.

    Sums and products of 16-bit floats are taken in float32.
    """
    name = name or f"T_{kind}"
    kind = "all" if kind == "prod" and x.dtype == "bool" else kind
    if not axes:
        return compute(x.shape, lambda *i: fn(x(*i)), name=name)
    if kind in ("sum", "prod") and accumulator(x.dtype) != x.dtype:
        return narrowed(reduce(kind, widened(x), axes, keepdims, fn, name), x.dtype)
    ks = [te.reduce_axis((int64(0), x.shape[a]), f"k{a}") for a in axes]
    inner = [k.var for k in ks]
    return compute(
        reduced_shape(x.shape, axes, keepdims),
        lambda *i: _REDUCERS[kind](fn(x(*reduced_index(i, inner, axes, x.ndim, keepdims))), axis=ks),
        name=name,
    )


def arg_reduce(
    kind: str, x: Tensor, axis: int | None, keepdims: bool = False, select_last: bool = False, dtype: str = "int64"
) -> Tensor:
    """The index of the greatest (``kind="max"``) or least element; the first of equals, or the last."""
    if axis is None:
        flat = compute((product(x.shape),), lambda i: x(*unravel(i, x.shape)), name="flat")
        result = arg_reduce(kind, flat, 0, False, select_last, dtype)
        return compute((int64(1),) * x.ndim, lambda *_: result(), name="argreduce") if keepdims else result
    extent = as_int(x.shape[axis])
    short = _narrowest() == DataType(x.dtype).bits == 16  # whose lanes are as many as those of the elements
    wide = (
        "int16"
        if short and extent is not None and extent < 2**15
        else "int32"
        if extent is not None and extent < 2**31
        else "int64"
    )
    best = reduce(kind, x, (axis,), True, lambda v: _ordered(v, kind), "best")
    k = te.reduce_axis((int64(0), x.shape[axis]), "k")

    def element(*i: Any) -> Any:
        at = reduced_index(i, [k.var], (axis,), x.ndim, keepdims)
        found = _ordered(x(*at), kind).equal(best(*(int64(0) if d == axis else v for d, v in enumerate(at))))
        place = cast(wide, k.var)
        if select_last:
            return te.max(select(found, place, const(-1, wide)), axis=k)
        return te.min(select(found, place, te.highest(wide)), axis=k)

    where = compute(reduced_shape(x.shape, (axis,), keepdims), element, name="arg" + kind)
    return compute(where.shape, lambda *i: cast(dtype, where(*i)), name="index")


def _narrowest() -> int:
    """Bits of the narrowest integers that are compared as they are: languages of devices may have none of 16."""
    return 32 if is_target("gpu") else 16


def _ordered(value: Any, kind: str) -> Any:
    """A number that compares as the value does, and is equal to itself: NaN comes before all others, as in NumPy."""
    dt = DataType(value.dtype)
    if dt == "bool":
        return cast("int8", value)
    if not dt.is_float:
        return value
    if dt.bits < _narrowest():
        dt, value = DataType("float32"), cast("float32", value)
    dtype, infinite = f"int{dt.bits}", tir.reinterpret(f"int{dt.bits}", const(math.inf, dt))
    raw = tir.reinterpret(dtype, value)
    size = raw & te.highest(dtype)
    ordered = select(raw < const(0, dtype), -size, size)  # negative ones stand the other way round, 0 is as great as -0
    return select(size > infinite, te.highest(dtype) if kind == "max" else te.lowest(dtype), ordered)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over axes; integers are summed in 64 bits and the quotient rounds towards zero."""
    axes = normalize_axes("mean", axis, x.ndim)
    count = product([x.shape[a] for a in axes])
    if not DataType(x.dtype).is_real:
        wide = "uint64" if x.dtype == "uint64" else "int64"
        total, count = reduce("sum", x, axes, keepdims, lambda v: cast(wide, v)), cast(wide, tir.max(count, int64(1)))
        return compute(total.shape, lambda *i: cast(x.dtype, tir.truncdiv(total(*i), count)), name="T_mean")
    wide = accumulator(x.dtype)
    total = reduce("sum", widened(x), axes, keepdims)
    return compute(total.shape, lambda *i: cast(x.dtype, total(*i) / cast(wide, count)), name="T_mean")


def variance(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of squared differences from the mean."""
    wide = accumulator(x.dtype) if DataType(x.dtype).is_real else "float64"
    axes = normalize_axes("variance", axis, x.ndim)
    y = x if wide == x.dtype else compute(x.shape, lambda *i: cast(wide, x(*i)), name="wide")
    middle = mean(y, axes, True)

    def apart(*i: Any) -> Any:
        return y(*i) - middle(*[const(0, v.dtype) if n in axes else v for n, v in enumerate(i)])

    d = compute(x.shape, apart, name="T_subtract")
    squared = compute(x.shape, lambda *i: d(*i) * d(*i), name="T_multiply")
    return narrowed(mean(squared, axes, keepdims), x.dtype)


def std(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The square root of the variance."""
    v = variance(x, axis, keepdims)
    wide = v.dtype if DataType(v.dtype).is_real else "float64"
    return compute(v.shape, lambda *i: cast(v.dtype, tir.sqrt(cast(wide, v(*i)))), name="T_std")
