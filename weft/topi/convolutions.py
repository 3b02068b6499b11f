"""Convolutions under the names of ``tvm.topi.nn``, one for each layout."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import error, ir, te
from weft.spelling import named
from weft.te import Tensor
from weft.topi import conv as _conv
from weft.topi.manipulate import transpose, view
from weft.topi.shape import simplify
from weft.topi.typing import Extent, Extents, Padding, Shape


class Workload(NamedTuple):
    """What tells one 2-D convolution from another."""

    in_dtype: str
    out_dtype: str
    height: int
    width: int
    in_filter: int
    groups: int
    out_filter: int
    kernel_h: int
    kernel_w: int
    padt: int
    padl: int
    padb: int
    padr: int
    dilation_h: int
    dilation_w: int
    stride_h: int
    stride_w: int


def resolved_padding(padding: Padding, kernel: Shape, dilation: Extents, rank: int) -> Any:
    """Padding as numbers: ``"VALID"`` is none, ``"SAME"`` keeps the size at stride 1, the odd one before the data."""
    if not isinstance(padding, str):
        return padding
    if padding.upper() == "VALID":
        return 0
    if padding.upper() != "SAME":
        raise error.InvalidArgument(f"unknown padding '{padding}'", expected="numbers, 'VALID' or 'SAME'")
    total = [(ir.as_int(k) - 1) * d for k, d in zip(kernel, _conv.pair(dilation, rank), strict=True)]  # type: ignore[operator]
    return (*((t + 1) // 2 for t in total), *(t // 2 for t in total))


def get_pad_tuple(padding: Padding, kernel: Shape) -> tuple[Any, ...]:
    """Return the padding of data before each axis of a kernel, then behind each."""
    found = resolved_padding(padding, kernel, 1, n := len(kernel))
    pads = [found] * n if isinstance(found, int) else list(found)
    return (*pads[:n], *pads[-n:])


get_pad_tuple1d = get_pad_tuple3d = get_pad_tuple
_KERNEL_LAYOUTS = {True: {1: "WIO", 2: "HWIO", 3: "DHWIO"}, False: {1: "OIW", 2: "OIHW", 3: "OIDHW"}}


def conv(
    inp: te.Tensor,
    filt: te.Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Any:
    """Convolve over all spatial axes."""
    rank, last = inp.ndim - 2, _conv.channels_last(data_layout)
    layout = kernel_layout or _KERNEL_LAYOUTS[last][rank]
    kernel = _conv.weight_info(filt.shape, layout, rank, None)[1]
    pads = resolved_padding(padding, kernel, dilation, rank)
    return _conv.conv(inp, filt, stride, pads, dilation, int(groups), data_layout, layout, None, out_dtype or "")


# --- one dimension ----------------------------------------------------------------------------------------------------


def conv1d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Extents = 1,
    padding: Padding = "VALID",
    dilation: Extents = 1,
    groups: int = 1,
    data_layout: str | None = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    layout: str | None = None,
) -> Any:
    """1-D convolution; before 0.18, the layout and the output's type came where the groups are."""
    if isinstance(groups, str):
        groups, data_layout, out_dtype = 1, groups, data_layout if data_layout != "NCW" else out_dtype
    data_layout = layout or data_layout or "NCW"
    return conv(data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


def _conv1d(layout: str, kernel_layout: str) -> Any:
    def conv1d(
        data: Tensor,
        kernel: Tensor,
        strides: Extents = 1,
        padding: Padding = "VALID",
        dilation: Extents = 1,
        out_dtype: str | None = None,
    ) -> Any:
        return conv(data, kernel, strides, padding, dilation, 1, layout, kernel_layout, out_dtype)

    return named(conv1d, f"conv1d_{layout.lower()}", f"1-D convolution, {layout} and {kernel_layout}.")


def _group_conv1d(layout: str, kernel_layout: str) -> Any:
    def group_conv1d(
        data: Tensor,
        kernel: Tensor,
        strides: Extents = 1,
        padding: Padding = "VALID",
        dilation: Extents = 1,
        groups: int = 1,
        out_dtype: str | None = None,
    ) -> Any:
        return conv(data, kernel, strides, padding, dilation, groups, layout, kernel_layout, out_dtype)

    doc = f"1-D convolution in groups, {layout} and {kernel_layout}."
    return named(group_conv1d, f"group_conv1d_{layout.lower()}", doc)


conv1d_ncw, conv1d_nwc = _conv1d("NCW", "OIW"), _conv1d("NWC", "WIO")
group_conv1d_ncw, group_conv1d_nwc = _group_conv1d("NCW", "OIW"), _group_conv1d("NWC", "WIO")


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Extents,
    padding: Padding,
    dilation: Extents,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    layout: str | None = None,
) -> Any:
    """2-D convolution; before 0.18, the output's type came where the kernel's layout is."""
    if kernel_layout and not kernel_layout.isupper():
        kernel_layout, out_dtype = "", kernel_layout
    data_layout = layout or data_layout
    if data_layout == "HWCN":
        return conv2d_hwcn(input, filter, strides, padding, dilation, out_dtype)
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Extents, padding: Padding, dilation: Extents, out_dtype: str | None = None
) -> Any:
    """2-D convolution, channels first."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype)


def conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    out_dtype: str | None = None,
    **_layouts: Any,
) -> Any:
    """2-D convolution, channels last, kernel (height, width, in, out)."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype)


def conv2d_hwcn(
    Input: Tensor, Filter: Tensor, stride: Extents, padding: Padding, dilation: Extents, out_dtype: str | None = None
) -> Any:
    """2-D convolution of (height, width, channels, batch), kernel (height, width, in, out)."""
    found = conv2d_nhwc(transpose(Input, (3, 0, 1, 2)), Filter, stride, padding, dilation, out_dtype)
    return transpose(found, (1, 2, 3, 0))


def _group_conv2d(layout: str, kernel_layout: str) -> Any:
    def group_conv2d(
        Input: Tensor,
        Filter: Tensor,
        stride: Extents,
        padding: Padding,
        dilation: Extents,
        groups: int,
        out_dtype: str | None = None,
    ) -> Any:
        return conv(Input, Filter, stride, padding, dilation, groups, layout, kernel_layout, out_dtype)

    doc = f"2-D convolution in groups, {layout} and {kernel_layout}."
    return named(group_conv2d, f"group_conv2d_{layout.lower()}", doc)


group_conv2d_nchw, group_conv2d_nhwc = _group_conv2d("NCHW", "OIHW"), _group_conv2d("NHWC", "HWIO")


def depthwise_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Extents, padding: Padding, dilation: Extents, out_dtype: str | None = None
) -> Any:
    """Depthwise convolution, channels first, kernel (channels, multiplier, height, width)."""
    c, m, *size = Filter.shape
    kernel = view(Filter, (simplify(c * m), ir.int64(1), *size), "T_filter")
    pads = resolved_padding(padding, size, dilation, 2)
    return _conv.conv(Input, kernel, stride, pads, dilation, ir.as_int(c) or 1, "NCHW", "OIHW", None, out_dtype or "")


def depthwise_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Any:
    """Depthwise convolution, channels last, kernel (height, width, channels, multiplier) or, ``HWIO``, turned."""
    if kernel_layout not in ("HWOI", "HWIO"):  # before 0.18 the output's type stood here
        kernel_layout, out_dtype = "HWOI", kernel_layout
    if kernel_layout == "HWIO":
        Filter = transpose(Filter, (0, 1, 3, 2))
    h, w, c, m = Filter.shape
    kernel = view(Filter, (h, w, simplify(c * m)), "T_filter")
    pads = resolved_padding(padding, (h, w), dilation, 2)
    return _conv.conv(Input, kernel, stride, pads, dilation, ir.as_int(c) or 1, "NHWC", "HWC", None, out_dtype or "")


# --- three dimensions -------------------------------------------------------------------------------------------------


def _groups_and_dtype(groups: Any, out_dtype: str | None) -> tuple[int, str | None]:
    """Before 0.9, 3-D convolutions had no groups, and the output's type came in their place."""
    return (1, groups) if groups is None or isinstance(groups, str) else (int(groups), out_dtype)


def conv3d_ncdhw(
    Input: Tensor,
    Filter: Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    groups: Extent = 1,
    out_dtype: str | None = None,
) -> Any:
    """3-D convolution, channels first."""
    groups, out_dtype = _groups_and_dtype(groups, out_dtype)
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Extents,
    padding: Padding,
    dilation: Extents,
    groups: Extent = 1,
    out_dtype: str | None = None,
    **_layouts: Any,
) -> Any:
    """3-D convolution, channels last, kernel (depth, height, width, in, out)."""
    groups, out_dtype = _groups_and_dtype(groups, out_dtype)
    return conv(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


# --- transposed -------------------------------------------------------------------------------------------------------


def _transposed(
    data: Any, kernel: Any, strides: Any, padding: Any, out_dtype: str | None, output_padding: Any, groups: int = 1
) -> Any:
    """Transposed convolution, channels first, kernel (in, out / groups, ...)."""
    pads = resolved_padding(padding, kernel.shape[2:], 1, data.ndim - 2)
    dtype = out_dtype or data.dtype
    return _conv.conv_transpose(data, kernel, strides, pads, output_padding, 1, int(groups), out_dtype=dtype)


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Extents, padding: Padding, out_dtype: str | None, output_padding: Extents
) -> Any:
    """Transposed 1-D convolution, channels first, kernel (in, out, width)."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding)


def _grouped_transpose(name: str, rank: int) -> Any:
    def transposed(
        data: Tensor,
        kernel: Tensor,
        stride: Extents,
        padding: Padding,
        out_dtype: str | None,
        output_padding: Extents,
        groups: int,
    ) -> Any:
        return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups)

    return named(transposed, name, f"Transposed {rank}-D convolution in groups.")


group_conv1d_transpose_ncw = _grouped_transpose("group_conv1d_transpose_ncw", 1)
group_conv2d_transpose_nchw = _grouped_transpose("group_conv2d_transpose_nchw", 2)


def conv2d_transpose_nchw(
    Input: Tensor, Filter: Tensor, strides: Extents, padding: Padding, out_dtype: str | None, output_padding: Extents
) -> Any:
    """Transposed 2-D convolution, channels first, kernel (in, out, height, width)."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding)


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Extents, padding: Padding, out_dtype: str | None, output_padding: Extents
) -> Any:
    """Transposed 3-D convolution, channels first, kernel (in, out, depth, height, width)."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding)


def group_conv3d_transpose_ncdhw(
    data: Tensor,
    kernel: Tensor,
    strides: Extents,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Extents,
    groups: int,
) -> Any:
    """Transposed 3-D convolution in groups."""
    return _transposed(data, kernel, strides, padding, out_dtype, output_padding, groups)
