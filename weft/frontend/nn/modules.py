"""Modules with parameters of their own: linear layers, convolutions, normalisations, embeddings; and activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.frontend.nn import op
from weft.frontend.nn.containers import ModuleList
from weft.frontend.nn.effect import IOEffect
from weft.frontend.nn.kv_cache import KVCache
from weft.frontend.nn.module import Module
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.tensor import Tensor

__all__ = [
    "Attention",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Embedding",
    "GELU",
    "GroupNorm",
    "IOEffect",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "TimestepEmbedding",
    "Timesteps",
]


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
        self,
        in_features: Any,
        out_features: Any,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
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
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if ir.as_int(channels) is not None and channels % groups:
                raise error.InvalidArgument(
                    f"{what} is no multiple of groups", expected=f"a multiple of {groups}", found=str(channels)
                )
        sizes = list(kernel_size) if isinstance(kernel_size, (list, tuple)) else [kernel_size] * self._rank
        if len(sizes) != self._rank:
            raise error.InvalidArgument(
                f"{type(self).__name__}: kernel_size has a size for each spatial dimension",
                expected=str(self._rank),
                found=str(len(sizes)),
            )
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
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv2d(x, self.weight, self.bias, **self._options(), data_layout=self.data_layout)


class Conv3D(_Conv):
    """Convolution of volumes, whose dimensions `data_layout` names."""

    _rank = 3

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ) -> None:
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
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype)
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.conv1d_transpose(x, self.weight, self.bias, output_padding=self.output_padding, **self._options())


class LayerNorm(Module):
    """Normalisation over the last dimension, or over trailing ones where `normalized_shape` is a list."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
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
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
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
            raise error.InvalidArgument(
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


class Timesteps(Module):
    """Sinusoidal embeddings of time steps; see ``op.get_timestep_embedding``."""

    def __init__(self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1) -> None:
        self.num_channels, self.flip_sin_to_cos = num_channels, flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        """Embed steps, (n,) to (n, num_channels)."""
        return op.get_timestep_embedding(
            x,
            embedding_dim=self.num_channels,
            flip_sin_to_cos=self.flip_sin_to_cos,
            downscale_freq_shift=self.downscale_freq_shift,
        )


class TimestepEmbedding(Module):
    """Two linear layers with a SiLU between them, for embeddings of time steps.

    Parameters
    ----------
    in_channels, time_embed_dim : int
        Sizes before the first layer and after it.
    act_fn, post_act_fn : str
        ``"silu"``: the function between the layers, and the one after them, by default none.
    out_dim : int, optional
        The size after the second layer, by default `time_embed_dim`.
    cond_proj_dim : int, optional
        The size of a condition, a linear layer of which is added to the input.
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        if act_fn != "silu" or post_act_fn not in (None, "silu"):
            raise error.InvalidArgument("act_fn and post_act_fn are 'silu'", found=f"{act_fn!r}, {post_act_fn!r}")
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = Linear(cond_proj_dim, in_channels, bias=False) if cond_proj_dim is not None else None
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, time_embed_dim if out_dim is None else out_dim)
        self.post_act = SiLU() if post_act_fn else None

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """Apply the layers to (n, in_channels)."""
        if condition is not None:
            if self.cond_proj is None:
                raise error.InvalidArgument("there is a condition, and no layer for it", help="pass cond_proj_dim")
            sample = sample + self.cond_proj(condition)
        sample = self.linear_2(self.act(self.linear_1(sample)))
        return sample if self.post_act is None else self.post_act(sample)


class Attention(Module):
    """Attention of a sequence over another one, or over itself.

    Parameters
    ----------
    query_dim, cross_attention_dim : int
        Sizes of the elements of both; by default the same.
    heads, dim_head : int
        How many heads there are, and their size.
    bias, out_bias : bool
        Whether queries, keys and values have biases, and whether the result has.
    norm_num_groups : int, optional
        Groups of channels of the first sequence that are normalised, by default none.
    scale_qk : bool
        Whether scores are divided by the root of `dim_head`.
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.heads, self.dim_head, self.scale = heads, dim_head, None if scale_qk else 1.0
        other_dim, inner_dim = cross_attention_dim or query_dim, heads * dim_head
        self.to_q = Linear(query_dim, inner_dim, bias=bias)
        self.to_k = Linear(other_dim, inner_dim, bias=bias)
        self.to_v = Linear(other_dim, inner_dim, bias=bias)
        self.group_norm = GroupNorm(norm_num_groups, query_dim) if norm_num_groups is not None else None
        self.to_out = ModuleList([Linear(inner_dim, query_dim, bias=out_bias)])

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Attend from (batch, n, query_dim) over (batch, m, cross_attention_dim): (batch, n, query_dim)."""
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        other = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = self.to_q(hidden_states), self.to_k(other), self.to_v(other)
        q, k, v = (op.reshape(t, (*t.shape[:2], self.heads, self.dim_head)) for t in (q, k, v))
        out = op.scaled_dot_product_attention(q, k, v, attention_mask, is_causal=False, scale=self.scale)
        return self.to_out[0](op.reshape(out, (*out.shape[:2], self.heads * self.dim_head)))
