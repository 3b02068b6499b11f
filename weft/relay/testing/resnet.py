"""Residual networks with pre-activation, of 2-D images and 3-D volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Expr
from weft.relay.expr import Function
from weft.relay.op import constructor, nn
from weft.relay.testing import layers
from weft.relay.testing.init import workload_of

_add = constructor("add")

# Units of each of the four stages, by the number of layers.
_DEEP = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}


def _axes(layout: str) -> tuple[int, int, Any]:
    """The rank of space, the axis of channels, and the convolution of a layout."""
    rank = len(layout) - 2
    return rank, layout.index("C"), {2: layers.conv2d, 3: layers.conv3d}[rank]


def _conv(data: Expr, channels: int, size: int, stride: int, name: str, layout: str) -> Expr:
    rank, _, conv = _axes(layout)
    return conv(
        data,
        channels=channels,
        kernel_size=(size,) * rank,
        strides=(stride,) * rank,
        padding=(size // 2,) * rank,
        data_layout=layout,
        kernel_layout=layers.conv_kernel_layout(layout),
        name=name,
    )


def _norm(data: Expr, name: str, layout: str, relu: bool = True, **options: Any) -> Expr:
    out = layers.batch_norm_infer(data, epsilon=2e-5, axis=_axes(layout)[1], name=name, **options)
    return nn.relu(out) if relu else out


def residual_unit(
    data: Expr, num_filter: int, stride: int, dim_match: bool, name: str, bottle_neck: bool = True, layout: str = "NCHW"
) -> Expr:
    """Make a residual unit: two convolutions, or three where it has a bottleneck, beside a shortcut.

    Parameters
    ----------
    data : Expr
        The input.
    num_filter : int
        The number of output channels.
    stride : int
        The stride of the unit.
    dim_match : bool
        Whether input and output have the same shape, so that the shortcut is the input.
    name : str
        The prefix of the parameters' names.
    """
    first = _norm(data, f"{name}_bn1", layout)
    if bottle_neck:
        out = _conv(first, num_filter // 4, 1, stride, f"{name}_conv1", layout)
        out = _conv(_norm(out, f"{name}_bn2", layout), num_filter // 4, 3, 1, f"{name}_conv2", layout)
        out = _conv(_norm(out, f"{name}_bn3", layout), num_filter, 1, 1, f"{name}_conv3", layout)
    else:
        out = _conv(first, num_filter, 3, stride, f"{name}_conv1", layout)
        out = _conv(_norm(out, f"{name}_bn2", layout), num_filter, 3, 1, f"{name}_conv2", layout)
    return _add(out, data if dim_match else _conv(first, num_filter, 1, stride, f"{name}_sc", layout))


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: tuple[int, ...],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Make a residual network.

    Parameters
    ----------
    units : sequence of int
        The number of units of each stage.
    num_stages : int
        The number of stages.
    filter_list : sequence of int
        The channels of the first convolution and of each stage.
    num_classes : int
        The number of outputs.
    data_shape : tuple of int
        The shape of the input, in `layout`.
    """
    rank = _axes(layout)[0]
    small = data_shape[layout.index("H")] <= 32
    body = _norm(layers.data_var(data_shape, dtype), "bn_data", layout, relu=False, scale=False)
    if small:
        body = _conv(body, filter_list[0], 3, 1, "conv0", layout)
    else:
        body = _norm(_conv(body, filter_list[0], 7, 2, "conv0", layout), "bn0", layout)
        pool = {2: nn.max_pool2d, 3: nn.max_pool3d}[rank]
        body = pool(body, pool_size=(3,) * rank, strides=(2,) * rank, padding=(1,) * rank, layout=layout)
    for i in range(num_stages):
        for j in range(units[i]):
            stride = 2 if i > 0 and j == 0 else 1
            body = residual_unit(
                body, filter_list[i + 1], stride, j > 0, f"stage{i + 1}_unit{j + 1}", bottle_neck, layout
            )
    body = _norm(body, "bn1", layout)
    pool = {2: nn.global_avg_pool2d, 3: nn.global_avg_pool3d}[rank]
    body = nn.batch_flatten(pool(body, layout=layout))
    return nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc1")).in_function()


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Make a residual network of a known depth: 18, 34, 50, 101, 152, 200 or 269 layers.

    For images of at most 28 pixels, depths 6n + 2, or 9n + 2 from 164 on.
    """
    height = image_shape["".join(c for c in layout if c != "N").index("H")]
    if height <= 28:
        narrow = (num_layers - 2) % 9 == 0 and num_layers >= 164
        if not narrow and (num_layers - 2) % 6:
            raise InvalidArgument(
                "resnet: no network of small images has this depth", expected="6n + 2", found=str(num_layers)
            )
        filters = (16, 64, 128, 256) if narrow else (16, 16, 32, 64)
        units: tuple[int, ...] = ((num_layers - 2) // (9 if narrow else 6),) * 3
        bottle_neck = narrow
    else:
        if num_layers not in _DEEP:
            raise InvalidArgument(
                "resnet: no network of large images has this depth",
                expected=", ".join(map(str, _DEEP)),
                found=str(num_layers),
            )
        bottle_neck, units = num_layers >= 50, _DEEP[num_layers]
        filters = (64, 256, 512, 1024, 2048) if bottle_neck else (64, 64, 128, 256, 512)
    return resnet(units, len(units), filters, num_classes, (batch_size, *image_shape), bottle_neck, layout, dtype)


get_workload = workload_of(get_net, batch_size=1, num_classes=1000, num_layers=18)
