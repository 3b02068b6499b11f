"""MobileNet: depthwise convolutions, each followed by a pointwise one."""

from __future__ import annotations

from typing import Any

from weft.ir import Expr, IRModule
from weft.relay.expr import Function
from weft.relay.op import nn
from weft.relay.testing import layers
from weft.relay.testing.init import create_workload

# (channels of the pointwise convolution, stride of the depthwise one)
_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def conv_block(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    groups: int = 1,
) -> Expr:
    """Convolve, normalise, and limit to what is positive."""
    conv = layers.conv2d(
        data,
        channels=channels,
        kernel_size=kernel_size,
        strides=strides,
        padding=padding,
        groups=groups,
        data_layout=layout,
        kernel_layout=layers.conv_kernel_layout(layout, groups > 1),
        name=f"{name}_conv",
    )
    return nn.relu(layers.batch_norm_infer(conv, epsilon=epsilon, axis=layout.index("C"), name=f"{name}_bn"))


def separable_conv_block(
    data: Expr,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    downsample: bool = False,
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Expr:
    """Convolve each channel alone, then across channels."""
    strides = (2, 2) if downsample else (1, 1)
    shape = (depthwise_channels, kernel_size, strides, padding, epsilon, layout, depthwise_channels)
    wide = conv_block(data, f"{name}_depthwise", *shape)
    return conv_block(wide, f"{name}_pointwise", pointwise_channels, (1, 1), (1, 1), (0, 0), epsilon, layout)


def mobile_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """Make the network, with `alpha` times the channels; the shallow one leaves out five equal blocks."""
    body = conv_block(
        layers.data_var(data_shape, dtype), "conv_block_1", int(32 * alpha), strides=(2, 2), layout=layout
    )
    channels = int(32 * alpha)
    blocks = [*_BLOCKS[:6], *_BLOCKS[11:]] if is_shallow else _BLOCKS
    for i, (out, stride) in enumerate(blocks):
        body = separable_conv_block(
            body,
            f"separable_conv_block_{i + 1}",
            channels,
            int(out * alpha),
            downsample=stride == 2,
            layout=layout,
            dtype=dtype,
        )
        channels = int(out * alpha)
    body = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    return nn.softmax(layers.dense_add_bias(body, units=num_classes, name="fc")).in_function()


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, Any]]:
    """Make the network as a typed module, and its parameters.

    Parameters
    ----------
    batch_size, num_classes : int
        Sizes of the network.
    image_shape : tuple of int
        The shape of an image, in `layout` without the batch.
    """
    return create_workload(mobile_net(num_classes, (batch_size, *image_shape), dtype, layout=layout))
