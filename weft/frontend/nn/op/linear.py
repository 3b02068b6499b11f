"""Products: matrices, convolutions, attention; and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.frontend.nn.op.elementwise import astype, where
from weft.frontend.nn.tensor import Tensor, apply, caller

__all__ = ["conv1d", "conv1d_transpose", "conv2d", "conv3d", "interpolate", "matmul", "scaled_dot_product_attention"]


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Multiply matrices; leading dimensions broadcast."""
    return apply("matmul", a, b, out_dtype=out_dtype, name=name)


def _conv(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    name: str,
) -> Tensor:
    if isinstance(padding, str):
        padding = _named_padding(rank, weight, stride, padding, dilation)
    out = apply(
        f"nn.conv{rank}d",
        x,
        weight,
        strides=_each(stride, rank),
        padding=_pads(padding, rank),
        dilation=_each(dilation, rank),
        groups=groups,
        data_layout=layout,
        out_layout=layout,
        name=name,
    )
    return out if bias is None else _biased(out, bias, layout, name)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each spatial dimension."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * rank


def _pads(value: Any, rank: int) -> tuple[int, ...]:
    """The pads before all spatial dimensions, then those after; a pad for a dimension stands for both."""
    pads = _each(value, rank)
    return pads * 2 if len(pads) == rank else pads


def _biased(out: Tensor, bias: Tensor, layout: str, name: str) -> Tensor:
    shape = [bias.shape[0] if letter == "C" else 1 for letter in layout]
    return apply("add", out, apply("reshape", bias, tuple(shape)), name=name)


def _named_padding(rank: int, weight: Tensor, stride: Any, padding: str, dilation: Any) -> list[int]:
    """The pads of "valid" and of "same", which keeps sizes and therefore wants a stride of 1."""
    if padding == "valid":
        return [0] * (2 * rank)
    strides = stride if isinstance(stride, (list, tuple)) else [stride]
    if padding != "same" or any(s != 1 for s in strides):
        raise error.InvalidArgument(
            f"conv{rank}d: padding cannot be '{padding}'",
            expected="pads, 'valid', or 'same' where the stride is 1",
            found=f"stride {stride}",
            where=caller(),
        )
    steps = list(dilation) if isinstance(dilation, (list, tuple)) else [dilation] * rank
    totals = [step * (size - 1) for step, size in zip(steps, weight.shape[2:], strict=True)]
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """Convolve (batch, channels, width) with (out channels, channels of a group, width)."""
    return _conv(1, x, weight, bias, stride, padding, dilation, groups, "NCW", name)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """Convolve images with (out channels, channels of a group, height, width)."""
    return _conv(2, x, weight, bias, stride, padding, dilation, groups, data_layout, name)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """Convolve volumes with (out channels, channels of a group, depth, height, width)."""
    return _conv(3, x, weight, bias, stride, padding, dilation, groups, data_layout, name)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """Convolve backwards, with a weight of (channels, out channels of a group, width)."""
    out = apply(
        "nn.conv1d_transpose",
        x,
        weight,
        strides=_each(stride, 1),
        padding=_pads(padding, 1),
        output_padding=_each(output_padding, 1),
        dilation=_each(dilation, 1),
        groups=groups,
        kernel_layout="IOW",
        out_layout="NCW",
        name=name,
    )
    return out if bias is None else _biased(out, bias, "NCW", name)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """Attend over (batch, sequence, heads, size).

    Keys and values may have fewer heads, each of which serves several query heads.

    Parameters
    ----------
    attn_mask : Tensor, optional
        Broadcasts to (batch, heads, queries, keys): bools say what is seen, numbers are added to the scores.
    is_causal : bool
        Whether query i sees the keys 0 to i only.
    scale : float, optional
        Factor of the scores, by default 1 / sqrt(size).
    """
    if attn_mask is not None and attn_mask.dtype == "bool":
        attn_mask = where(
            attn_mask, Tensor.from_scalar(0.0, query.dtype), Tensor.from_scalar(-float("inf"), query.dtype)
        )
    args = [query, key, value] + ([] if attn_mask is None else [astype(attn_mask, query.dtype)])
    factor = None if scale is None else ir.const(scale, "float32")
    return apply("nn.attention", *args, scale=factor, causal_mask="TopLeft" if is_causal else None, name=name)


def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Resize images, to a size or by factors, as PyTorch does.

    Parameters
    ----------
    mode : str
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
    """
    methods = {"nearest": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    if mode not in methods or antialias or (size is None) == (scale_factor is None):
        raise error.InvalidArgument(
            "interpolate: unsupported arguments",
            expected=f"mode one of {', '.join(methods)}, no antialias, and either size or scale_factor",
            found=f"mode='{mode}', antialias={antialias}, size={size}, scale_factor={scale_factor}",
            where=caller(),
        )
    scales = None
    if scale_factor is not None:
        factors: list[Any] = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * 2
        dims = [x.shape[data_layout.index(letter)] for letter in "HW"]
        size = [_scaled(d, f) for d, f in zip(dims, factors, strict=True)]
        scales = None if recompute_scale_factor else tuple(float(f) for f in factors)
    sizes = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    return apply(
        "image.resize2d",
        x,
        sizes,
        scales=None if align_corners else scales,
        layout=data_layout,
        method=methods[mode],
        coordinate_transformation_mode=coordinates,
        rounding_method="floor" if mode == "nearest" else "",
        name=name,
    )


def _scaled(size: Any, factor: float) -> Any:
    if ir.as_int(size) is not None:
        return int(size * factor)
    if float(factor).is_integer():
        return size * int(factor)
    raise error.InvalidArgument(
        "interpolate: a symbolic size is multiplied by whole numbers only", found=str(factor), where=caller()
    )
