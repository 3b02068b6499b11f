"""Convolutions of data whose channels lie in blocks: NCHW16c and the like."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.error import InvalidArgument
from weft.ir import PrimExpr, as_int, cast, const, floordiv, floormod
from weft.topi.conv import conv_size, pad_spatial, paddings, pair
from weft.topi.convolutions import resolved_padding
from weft.topi.shape import simplify
from weft.topi.typing import Extents, Padding


class _Window:
    """Where the windows of a blocked convolution lie: padded data, strides, extents of kernel and output."""

    def __init__(self, data: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
        if any(as_int(d) is None for d in (*data.shape[1:], *kernel.shape)):
            raise InvalidArgument("a blocked convolution needs known extents", found=f"{data.shape}, {kernel.shape}")
        self.strides, self.dilation = pair(stride, 2), pair(dilation, 2)
        self.kernel = kernel.shape[2:4]
        before, after = paddings(resolved_padding(padding, self.kernel, self.dilation, 2), 2)
        self.size = [
            conv_size(data.shape[2 + d], self.kernel[d], self.strides[d], self.dilation[d], before[d], after[d])
            for d in range(2)
        ]
        # the block of channels is one more axis behind the two spatial ones
        self.data = pad_spatial(data, (*before, 0), (*after, 0), False, const(0, data.dtype), "data_pad")
        self.block, self.chunks = as_int(data.shape[4]) or 1, as_int(data.shape[1]) or 1

    def taps(self) -> list[Any]:
        return [te.reduce_axis((0, self.kernel[d]), name) for d, name in enumerate(("kh", "kw"))]

    def at(self, n: Any, channel: Any, y: PrimExpr, x: Any, taps: list[Any]) -> Any:
        """The data of a channel under a tap of the window that makes output (y, x)."""
        rows = [o * self.strides[d] + taps[d].var * self.dilation[d] for d, o in enumerate((y, x))]
        return self.data(n, floordiv(channel, self.block), *rows, floormod(channel, self.block))


def _convolve(window: _Window, kernel: Any, per_group: int, weight: Any, out_dtype: str, name: str) -> Any:
    """Sum over taps and the channels of a group; ``weight(chunk, channel, taps, place)`` reads the kernel."""
    chunks, block = as_int(kernel.shape[0]) or 1, _output_block(kernel)
    groups = window.chunks * window.block // per_group
    outputs = chunks * block // groups
    taps, c = window.taps(), te.reduce_axis((0, per_group), "ic")

    def element(n: PrimExpr, chunk: PrimExpr, y: PrimExpr, x: PrimExpr, place: PrimExpr) -> Any:
        first = floordiv(chunk * block + place, outputs) * per_group if groups > 1 else 0
        value = window.at(n, first + c.var, y, x, taps)
        factor = weight(chunk, c.var, [t.var for t in taps], place)
        return te.sum(cast(out_dtype, value) * cast(out_dtype, factor), axis=[c, *taps])

    return te.compute((window.data.shape[0], chunks, *window.size, block), element, name=name)


def _output_block(kernel: Any) -> int:
    return as_int(kernel.shape[5 if kernel.ndim > 5 else 4]) or 1


def conv2d_NCHWc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = "float32",
) -> Any:
    """2-D convolution of blocked data.

    Parameters
    ----------
    data : Tensor
        (batch, chunks, height, width, block).
    kernel : Tensor
        (output chunks, chunks of a group, height, width, block, output block).

    Returns
    -------
    Tensor
        (batch, output chunks, height, width, output block).
    """
    window = _Window(data, kernel, stride, padding, dilation)
    block = as_int(kernel.shape[4]) or 1

    def weight(chunk: PrimExpr, c: PrimExpr, taps: list[Any], place: PrimExpr) -> Any:
        return kernel(chunk, floordiv(c, block), *taps, floormod(c, block), place)

    per_group = (as_int(kernel.shape[1]) or 1) * block
    return _convolve(window, kernel, per_group, weight, out_dtype or data.dtype, "conv2d_NCHWc")


def conv2d_NCHWc_OIHWo(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = "float32",
) -> Any:
    """2-D convolution of blocked data with kernels (output chunks, input channels, height, width, output block)."""
    if kernel.ndim != 5:
        return conv2d_NCHWc(data, kernel, stride, padding, dilation, layout, out_layout, out_dtype)
    window = _Window(data, kernel, stride, padding, dilation)

    def weight(chunk: PrimExpr, c: PrimExpr, taps: list[Any], place: PrimExpr) -> Any:
        return kernel(chunk, c, *taps, place)

    per_group = as_int(kernel.shape[1]) or 1
    return _convolve(window, kernel, per_group, weight, out_dtype or data.dtype, "conv2d_NCHWc_OIHWo")


def conv2d_NCHWc_int8(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = "int32",
    n_elems: int = 4,
) -> Any:
    """2-D convolution of blocked 8-bit data.

    The kernel's input channels lie in groups of `n_elems` behind its output channels: (output chunks, chunks of a
    group, height, width, block / n_elems, output block, n_elems).
    """
    window = _Window(data, kernel, stride, padding, dilation)
    block = (as_int(kernel.shape[4]) or 1) * n_elems

    def weight(chunk: PrimExpr, c: PrimExpr, taps: list[Any], place: PrimExpr) -> Any:
        inner = floormod(c, block)
        return kernel(chunk, floordiv(c, block), *taps, floordiv(inner, n_elems), place, floormod(inner, n_elems))

    per_group = (as_int(kernel.shape[1]) or 1) * block
    return _convolve(window, kernel, per_group, weight, out_dtype or "int32", "conv2d_NCHWc_int8")


def depthwise_conv2d_NCHWc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
) -> Any:
    """Depthwise convolution of blocked data with kernels (output chunks, 1, height, width, 1, output block)."""
    window, dtype = _Window(Input, Filter, stride, padding, dilation), out_dtype or Input.dtype
    chunks, block = as_int(Filter.shape[0]) or 1, _output_block(Filter)
    multiplier = chunks * block // (window.chunks * window.block)
    taps = window.taps()

    def element(n: PrimExpr, chunk: PrimExpr, y: PrimExpr, x: PrimExpr, place: PrimExpr) -> Any:
        value = window.at(n, floordiv(chunk * block + place, multiplier), y, x, taps)
        factor = Filter(chunk, 0, *(t.var for t in taps), 0, place)
        return te.sum(cast(dtype, value) * cast(dtype, factor), axis=taps)

    return te.compute((Input.shape[0], chunks, *window.size, block), element, name="depthwise_conv2d_NCHWc")


def unpack_NCHWc_to_nchw(packed_out: te.Tensor, out_dtype: str) -> Any:
    """Blocked channels (batch, chunks, height, width, block) as (batch, channels, height, width)."""
    n, chunks, h, w, block = packed_out.shape

    def element(b: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> Any:
        return cast(out_dtype, packed_out(b, floordiv(c, block), y, x, floormod(c, block)))

    return te.compute((n, simplify(chunks * block), h, w), element, name="output_unpack")
