"""Normalisations with the parameter orders of ``tvm.topi.nn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir, te, tir
from weft.te import Tensor
from weft.topi import norm as _norm
from weft.topi.reduce import mean, variance
from weft.topi.shape import normalize_axes, normalize_axis
from weft.topi.typing import Axes


def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor, axis: Axes, epsilon: float = 1e-5) -> Any:
    """Normalise over axes to mean 0 and variance 1, then scale and shift element by element."""
    return _norm.layer_norm(data, gamma, beta, axis, epsilon)


def rms_norm(data: Tensor, weight: Tensor, axis: Axes, epsilon: float = 1e-5) -> Any:
    """Divide by the root of the mean square over axes, then scale."""
    return _norm.rms_norm(data, weight, axis, epsilon)


def group_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, num_groups: int, channel_axis: int, axes: Axes, epsilon: float = 1e-5
) -> Any:
    """Normalise groups of channels, over the channels of a group and over `axes`."""
    return _norm.group_norm(data, gamma, beta, num_groups, channel_axis, axes, epsilon)


def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int | Sequence[int],
    axis: Axes = None,
    epsilon: float = 1e-5,
) -> Any:
    """Normalise each channel of each sample over `axis`.

    In 0.18 there was no `channel_axis`: what comes in its place, a list, is `axis`, and the channels are the second.
    """
    if isinstance(channel_axis, Sequence):
        last: Any = axis
        channel_axis, axis, epsilon = 1, channel_axis, epsilon if last is None else last
    channel, over = (
        normalize_axis("nn.instance_norm", channel_axis, data.ndim),
        normalize_axes("nn.instance_norm", axis, data.ndim),
    )
    middle, spread = mean(data, over, True), variance(data, over, True)

    def element(*i: Any) -> Any:
        at = [ir.const(0, v.dtype) if d in over else v for d, v in enumerate(i)]
        scale = tir.rsqrt(spread(*at) + ir.const(epsilon, data.dtype))
        return (data(*i) - middle(*at)) * scale * gamma(i[channel]) + beta(i[channel])

    return te.compute(data.shape, element, name="T_instance_norm")


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> Any:
    """Normalise each channel by the given mean and variance or, in training, by those of the batch.

    Returns
    -------
    list of Tensor
        The result, and mean and variance, which training moves towards the batch's by `momentum` (0.1).
    """
    a = normalize_axis("nn.batch_norm", 1 if axis is None else axis, data.ndim)
    eps, share = 1e-5 if epsilon is None else epsilon, 0.1 if momentum is None else momentum
    flags = [True if f is None else bool(f) for f in (center, scale)]
    if not training:
        return list(_norm.batch_norm(data, gamma, beta, moving_mean, moving_var, a, eps, *flags))
    over = [d for d in range(data.ndim) if d != a]
    found = mean(data, over), variance(data, over)
    out = _norm.batch_norm(data, gamma, beta, *found, a, eps, *flags)[0]

    def moved(old: Any, new: Any) -> Any:
        f = ir.const(share, old.dtype)
        return te.compute(
            old.shape, lambda i: (ir.const(1.0, old.dtype) - f) * old(i) + f * ir.cast(old.dtype, new(i)), name="moved"
        )

    return [out, moved(moving_mean, found[0]), moved(moving_var, found[1])]


def lrn(data: Tensor, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 2) -> Any:
    """Divide by a power of the squares in a window of channels."""
    return _norm.lrn(data, size, axis, bias, alpha, beta)
