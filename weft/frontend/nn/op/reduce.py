"""Reductions and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.nn.op.manipulate import ones, zeros
from weft.frontend.nn.tensor import Tensor, apply
from weft.spelling import named

__all__ = ["cumsum", "group_norm", "layer_norm", "max", "mean", "min", "rms_norm", "softmax", "sum"]

Axes = int | Sequence[int] | None


def _reduction(op: str, doc: str) -> Callable[..., Tensor]:
    def operation(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = op) -> Tensor:
        return apply(op, x, axis=(axis,) if isinstance(axis, int) else axis, keepdims=keepdims, name=name)

    return named(operation, op, doc)


sum = _reduction("sum", "Add up over axes, by default all.")
mean = _reduction("mean", "Take the mean over axes, by default all.")
max = _reduction("max", "Take the greatest over axes, by default all.")
min = _reduction("min", "Take the least over axes, by default all.")


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, name: str = "cumsum"
) -> Tensor:
    """Add up what comes before each element, and the element unless `exclusive`."""
    return apply("cumsum", data, axis=axis, dtype=dtype, exclusive=bool(exclusive), name=name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """``exp(x) / sum(exp(x))`` along an axis."""
    return apply("nn.softmax", x, axis=axis, name=name)


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[Any],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Normalise over trailing dimensions of sizes `normalized_shape`, then scale and shift."""
    sizes = normalized_shape if isinstance(normalized_shape, (list, tuple)) else [normalized_shape]
    axes = tuple(range(-len(sizes), 0))
    weight = ones(sizes, x.dtype) if weight is None else weight
    bias = zeros(sizes, x.dtype) if bias is None else bias
    return apply("nn.layer_norm", x, weight, bias, axes=axes, epsilon=eps, name=name)


def rms_norm(
    x: Tensor, weight: Tensor, axes: int | Sequence[int], epsilon: float = 1e-5, name: str = "rms_norm"
) -> Tensor:
    """Divide by the root of the mean square over axes, then scale."""
    over = (axes,) if isinstance(axes, int) else tuple(axes)
    return apply("nn.rms_norm", x, weight, axes=over, epsilon=epsilon, name=name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Normalise groups of channels over the channels of the group and `axes`, by default all but the first."""
    channels = x.shape[channel_axis]
    weight = ones([channels], x.dtype) if weight is None else weight
    bias = zeros([channels], x.dtype) if bias is None else bias
    channel = channel_axis % x.ndim
    over = [d for d in range(x.ndim) if d not in (0, channel)] if axes is None else axes
    return apply(
        "nn.group_norm",
        x,
        weight,
        bias,
        num_groups=num_groups,
        channel_axis=channel_axis,
        axes=tuple(over),
        epsilon=eps,
        name=name,
    )
