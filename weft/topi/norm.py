"""Softmax and normalisations, written as stages that one kernel can fuse."""

from math import prod
from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import DataType, IntImm, PrimExpr, cast, const, floordiv, int64, select
from weft.te import Tensor
from weft.topi.elementwise import BINARY
from weft.topi.precision import narrowed, widened
from weft.topi.reduce import reduce
from weft.topi.shape import normalize_axes, normalize_axis, product, simplify
from weft.topi.typing import Axes


def _at(i: Any, axes: Any) -> list[Any]:
    """Indices with zeros on the reduced axes."""
    return [const(0, v.dtype) if d in axes else v for d, v in enumerate(i)]


def _top(x: Any, axes: Any, identity: Any = te.lowest) -> Any:
    """The greatest element along axes, which stay as extents of 1.

    NaN need not win: it comes back through the exponentials, and so through their sum.
    """
    k = te.reduce_axis((int64(0), x.shape[axes[0]]), f"k{axes[0]}")
    larger = tir.max if DataType(x.dtype).is_custom else lambda a, b: select(a > b, a, b)
    greatest = te.comm_reducer(larger, identity, name="greatest")
    shape = [int64(1) if d in axes else n for d, n in enumerate(x.shape)]
    return te.compute(
        shape,
        lambda *i: greatest(x(*(k.var if d in axes else v for d, v in enumerate(i))), axis=k),
        name="T_softmax_max",
    )


def _below(x: Any, top: Any, axes: Any) -> Any:
    """``x - top``, at most 0 however `x` is rounded.

    Where `x` is a product, it and the difference may become one instruction that does not round as the greatest element
    was: of a score of 1e12 thousands would be left.
    """
    compares = not DataType(x.dtype).is_custom

    def element(*i: PrimExpr) -> Any:
        value, most = x(*i), top(*_at(i, axes))
        return (select(value > most, most, value) if compares else value) - most

    return element


def softmax(x: Tensor, axis: int = -1, unseen: str = "nan") -> Any:
    """``exp(x) / sum(exp(x))`` along an axis, shifted by the maximum.

    Where there is nothing but minus infinity, it is NaN, or 0 if `unseen` is ``"zero"``.
    """
    axes = (normalize_axis("nn.softmax", axis, x.ndim),)
    dtype, x = x.dtype, widened(x)
    zero, one = const(0.0, x.dtype), const(1.0, x.dtype)
    # a maximum from which minus infinity can be subtracted, where that is to be seen
    least = te.lowest if unseen == "nan" else lambda dtype: const(float(np.finfo(dtype).min), dtype)
    top = _top(x, axes, least)
    below = _below(x, top, axes)
    e = te.compute(x.shape, lambda *i: tir.exp(below(*i)), name="T_softmax_exp")
    total = reduce("sum", e, axes, True, name="T_softmax_sum")

    def inverse_of(*i: Any) -> Any:
        return one / total(*i) if unseen == "nan" else select(total(*i).equal(zero), zero, one / total(*i))

    # one division a row: a vector division costs as much as a dozen products
    inverse = te.compute(total.shape, inverse_of, name="T_softmax_inverse")
    return narrowed(te.compute(x.shape, lambda *i: e(*i) * inverse(*_at(i, axes)), name="T_softmax_norm"), dtype)


def log_softmax(x: Tensor, axis: int = -1) -> Any:
    """The logarithm of softmax."""
    axes = (normalize_axis("nn.log_softmax", axis, x.ndim),)
    dtype, x = x.dtype, widened(x)
    below = _below(x, _top(x, axes), axes)
    e = te.compute(x.shape, lambda *i: tir.exp(below(*i)), name="T_softmax_exp")
    total = reduce("sum", e, axes, True, name="T_softmax_sum")
    log_total = te.compute(total.shape, lambda *i: tir.log(total(*i)), name="T_softmax_log")
    found = te.compute(x.shape, lambda *i: below(*i) - log_total(*_at(i, axes)), name="T_log_softmax")
    return narrowed(found, dtype)


def _moments(x: Any, axes: Any, epsilon: float, prefix: str) -> tuple[Any, Any]:
    """Mean and reciprocal standard deviation over axes, which stay as extents of 1."""
    n = prod((x.shape[a] for a in axes), start=int64(1))
    scale = (
        const(1.0, x.dtype) / cast(x.dtype, n) if not isinstance(n, IntImm) else const(1.0 / max(n.value, 1), x.dtype)
    )
    total = reduce("sum", x, axes, True, name=prefix + "_sum")
    mean = te.compute(total.shape, lambda *i: total(*i) * scale, name=prefix + "_mean")
    square = _reduce_centred(x, mean, axes, prefix)
    inverse = te.compute(
        total.shape, lambda *i: tir.rsqrt(square(*i) * scale + const(epsilon, x.dtype)), name=prefix + "_rstd"
    )
    return mean, inverse


def _reduce_centred(x: Any, mean: Any, axes: Any, prefix: str) -> Any:
    """Sum of squared differences from the mean."""
    ks = {a: te.reduce_axis((int64(0), x.shape[a]), f"k{a}") for a in axes}

    def element(*i: Any) -> Any:
        at = [ks[d].var if d in ks else v for d, v in enumerate(i)]
        d = x(*at) - mean(*i)
        return te.sum(d * d, axis=list(ks.values()))

    return te.compute(mean.shape, element, name=prefix + "_var")


def layer_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    axes: Axes = (-1,),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    """Normalize over axes to mean 0 and variance 1, then scale and shift element by element."""
    over = normalize_axes("nn.layer_norm", axes, x.ndim)
    dtype, x = x.dtype, widened(x)
    mean, inverse = _moments(x, over, epsilon, "T_layer_norm")

    def element(*i: Any) -> Any:
        at, inner = _at(i, over), [i[a] for a in over]
        y = (x(*i) - mean(*at)) * inverse(*at)
        y = y * cast(x.dtype, gamma(*inner)) if scale else y
        return y + cast(x.dtype, beta(*inner)) if center and beta is not None else y

    return narrowed(te.compute(x.shape, element, name="T_layer_norm"), dtype)


def rms_norm(x: Tensor, weight: Tensor, axes: Axes = (-1,), epsilon: float = 1e-5) -> Any:
    """Divide by the root of the mean square over axes, then scale."""
    over = normalize_axes("nn.rms_norm", axes, x.ndim)
    dtype, x = x.dtype, widened(x)
    n: Any = product([x.shape[a] for a in over])
    total = reduce("sum", x, over, True, lambda v: v * v, name="T_rms_norm_sum")
    inverse = te.compute(
        total.shape,
        lambda *i: tir.rsqrt(total(*i) / cast(x.dtype, n) + const(epsilon, x.dtype)),
        name="T_rms_norm_rstd",
    )
    y = te.compute(
        x.shape,
        lambda *i: x(*i) * inverse(*_at(i, over)) * cast(x.dtype, weight(*[i[a] for a in over])),
        name="T_rms_norm",
    )
    return narrowed(y, dtype)


def instance_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5) -> Any:
    """Normalise each channel of each sample over its spatial axes."""
    over = tuple(range(2, x.ndim))
    dtype, x = x.dtype, widened(x)
    mean, inverse = _moments(x, over, epsilon, "T_instance_norm")
    y = te.compute(
        x.shape,
        lambda *i: (
            (x(*i) - mean(*_at(i, over))) * inverse(*_at(i, over)) * cast(x.dtype, gamma(i[1]))
            + cast(x.dtype, beta(i[1]))
        ),
        name="T_instance_norm",
    )
    return narrowed(y, dtype)


def group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int = 1,
    channel_axis: int = 1,
    axes: Axes = None,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    """Normalise groups of channels, over the channels of a group and over `axes` (None: all axes but the first).

    `scale` and `center` say whether `gamma` and `beta` count.
    """
    channel = normalize_axis("nn.group_norm", channel_axis, x.ndim)
    rest = [a for a in range(x.ndim) if a not in (0, channel)]
    chosen = rest if axes is None else [a for a in normalize_axes("nn.group_norm", axes, x.ndim) if a in rest]
    dtype, x = x.dtype, widened(x)
    groups = int64(int(num_groups))
    size = simplify(floordiv(x.shape[channel], groups))

    def grouped(b: PrimExpr, g: PrimExpr, k: PrimExpr, *i: Any) -> Any:
        others = iter(i)
        return x(*(b if a == 0 else g * size + k if a == channel else next(others) for a in range(x.ndim)))

    view = te.compute((x.shape[0], groups, size, *(x.shape[a] for a in rest)), grouped, name="grouped")
    over = (2, *(3 + n for n, a in enumerate(rest) if a in chosen))
    mean, inverse = _moments(view, over, epsilon, "T_group_norm")

    def element(*i: Any) -> Any:
        c = i[channel]
        at = (i[0], floordiv(c, size), int64(0), *(int64(0) if a in chosen else i[a] for a in rest))
        y = (x(*i) - mean(*at)) * inverse(*at)
        y = y * cast(x.dtype, gamma(c)) if scale else y
        return y + cast(x.dtype, beta(c)) if center else y

    return narrowed(te.compute(x.shape, element, name="T_group_norm"), dtype)


def batch_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    **_: Any,
) -> Any:
    """Normalize each channel by the given mean and variance, then scale and shift; return these two as well."""
    a, dtype, x = normalize_axis("nn.batch_norm", axis, x.ndim), x.dtype, widened(x)

    def element(*i: Any) -> Any:
        c = i[a]
        y = (x(*i) - cast(x.dtype, mean(c))) * tir.rsqrt(cast(x.dtype, var(c)) + const(epsilon, x.dtype))
        y = y * cast(x.dtype, gamma(c)) if scale else y
        return y + cast(x.dtype, beta(c)) if center else y

    return (
        narrowed(te.compute(x.shape, element, name="T_batch_norm"), dtype),
        te.compute(mean.shape, lambda i: mean(i), name="mean"),
        te.compute(var.shape, lambda i: var(i), name="var"),
    )


def lrn(x: Tensor, size: int = 5, axis: int = 1, bias: float = 1.0, alpha: float = 1e-4, beta: float = 0.75) -> Any:
    """Divide by a power of the squares in a window of channels."""
    a = normalize_axis("nn.lrn", axis, x.ndim)
    before = (size - 1) // 2
    k = te.reduce_axis((int64(0), int64(size)), "k")

    def windowed(*i: Any) -> Any:
        j = i[a] + k.var - int64(before)
        inside = tir.all(j >= int64(0), j < x.shape[a])
        value = x(*(j if d == a else v for d, v in enumerate(i)))
        return te.sum(tir.if_then_else(inside, value * value, const(0, x.dtype)), axis=k)

    total = te.compute(x.shape, windowed, name="T_lrn_sum")
    base, scale, exponent = (const(v, x.dtype) for v in (bias, alpha / size, beta))
    return te.compute(x.shape, lambda *i: x(*i) / BINARY["power"](base + scale * total(*i), exponent), name="T_lrn")
