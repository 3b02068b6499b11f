"""Modules with parameters of their own: linear layers, convolutions, normalisations, embeddings; and activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.frontend.nn import op
from weft.frontend.nn.effect import IOEffect
from weft.frontend.nn.kv_cache import KVCache
from weft.frontend.nn.module import Module
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.tensor import Tensor
from weft.ir import as_int

__all__ = [
    "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Embedding", "GELU", "GroupNorm", "IOEffect", "Identity",
    "KVCache", "LayerNorm", "Linear", "RMSNorm", "ReLU", "SiLU",
]  # fmt: skip


class Identity(Module):
    """Its argument."""

    def forward(self, x: Any) -> Any:
        """Return it."""
        return x


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.relu(x)


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.silu(x)


class GELU(Module):
    """``x`` times the normal distribution's function of `x`."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.gelu(x)


class Linear(Module):
    """``x @ weight.T + bias``, with a weight of (out_features, in_features).

    Parameters
    ----------
    in_features, out_features : int, str or PrimExpr
        Sizes of the last dimension before and after.
    bias : bool
        Whether there is a bias.
    dtype : str, optional
        The data type of the parameters.
    out_dtype : str, optional
        The data type of the result, and of the bias; by default that of the weight.
    """

    def __init__(
        self, in_features: Any, out_features: Any, bias: bool = True, dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype if out_dtype is None else out_dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a tensor of any rank."""
        x = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return x if self.bias is None else x + self.bias

    def to(self, dtype: str | None = None) -> None:
        """Change the data type of the parameters; a bias of an `out_dtype` of its own keeps it."""
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)


class _Conv(Module):
    """What convolutions share; `_rank` and `_transposed` say which it is."""

    _rank = 0
    _transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if as_int(channels) is not None and channels % groups:
                raise InvalidArgument(
                    f"{what} is no multiple of groups", expected=f"a multiple of {groups}", found=str(channels)
                )
        sizes = list(kernel_size) if isinstance(kernel_size, (list, tuple)) else [kernel_size] * self._rank
        if len(sizes) != self._rank:
            raise InvalidArgument(
                f"{type(self).__name__}: kernel_size has a size for each spatial dimension",
                expected=str(self._rank), found=str(len(sizes)),
            )  # fmt: skip
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        first, second = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self.weight = Parameter((first, second // groups, *sizes), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def _options(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}


class Conv1D(_Conv):
    """Convolution of (batch, channels, width)."""

    _rank = 1

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv1d(x, self.weight, self.bias, **self._options())


class Conv2D(_Conv):
    """Convolution of images, whose dimensions `data_layout` names."""

    _rank = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: str | None = None, data_layout: str = "NCHW",
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv2d(x, self.weight, self.bias, **self._options(), data_layout=self.data_layout)


class Conv3D(_Conv):
    """Convolution of volumes, whose dimensions `data_layout` names."""

    _rank = 3

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: str | None = None, data_layout: str = "NCDHW",
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv3d(x, self.weight, self.bias, **self._options(), data_layout=self.data_layout)


class ConvTranspose1D(_Conv):
    """Transposed convolution of (batch, channels, width)."""

    _rank = 1
    _transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0,
        output_padding: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv1d_transpose(x, self.weight, self.bias, output_padding=self.output_padding, **self._options())


class LayerNorm(Module):
    """Normalisation over the last dimension, or over trailing ones where `normalized_shape` is a list."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = 1e-5, elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps, self.elementwise_affine = normalized_shape, eps, elementwise_affine
        sizes = tuple(normalized_shape) if isinstance(normalized_shape, (list, tuple)) else (normalized_shape,)
        self.weight = Parameter(sizes, dtype) if elementwise_affine else None
        self.bias = Parameter(sizes, dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        eps = 1e-5 if self.eps is None else self.eps
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, eps)


class RMSNorm(Module):
    """Division by the root of the mean square over axes, a scale, and a shift where there is a bias."""

    def __init__(
        self, hidden_size: int, axes: int | Sequence[int], epsilon: float = 1e-5, bias: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.axes = epsilon, axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else out + self.bias


class GroupNorm(Module):
    """Normalisation of groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ) -> None:
        if num_channels % num_groups:
            raise InvalidArgument(
                "num_channels is no multiple of num_groups",
                expected=f"a multiple of {num_groups}",
                found=str(num_channels),
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None) -> Tensor:
        """Apply it."""
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class Embedding(Module):
    """A table of vectors, of which integers choose some.

    Parameters
    ----------
    num, dim : int, str or PrimExpr
        How many vectors there are, and their size.
    """

    def __init__(self, num: Any, dim: Any, dtype: str | None = None) -> None:
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Append a dimension: one vector for each integer."""
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        rows = op.take(self.weight, op.reshape(x, (-1,)), axis=0)
        return op.reshape(rows, [*x.shape, *self.weight.shape[1:]])
