"""VGG: stacks of 3x3 convolutions, then three dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.relay.expr import Function, var
from weft.relay.op import nn
from weft.relay.testing import layers
from weft.relay.testing.init import create_workload

_STACKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_CHANNELS = (64, 128, 256, 512, 512)


def get_feature(
    internal_layer: ir.Expr, stacks: Sequence[int], filters: Sequence[int], batch_norm: bool = False
) -> ir.Expr:
    """Make the convolutions: stacks of them, each followed by max pooling."""
    body = internal_layer
    for i, count in enumerate(stacks):
        for j in range(count):
            name = f"{i + 1}_{j + 1}"
            body = layers.conv2d(body, kernel_size=(3, 3), padding=(1, 1), channels=filters[i], name=f"conv{name}")
            body = nn.bias_add(body, var(f"conv{name}_bias"))
            if batch_norm:
                body = layers.batch_norm_infer(body, name=f"bn{name}")
            body = nn.relu(body)
        body = nn.max_pool2d(body, pool_size=(2, 2), strides=(2, 2))
    return body


def get_classifier(input_data: ir.Expr, num_classes: int) -> ir.Expr:
    """Make the dense layers."""
    body = nn.batch_flatten(input_data)
    for i in (6, 7):
        body = nn.dropout(nn.relu(layers.dense_add_bias(body, units=4096, name=f"fc{i}")), rate=0.5)
    return layers.dense_add_bias(body, units=num_classes, name="fc8")


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> Function:
    """Make the network of 11, 13, 16 or 19 layers."""
    if num_layers not in _STACKS:
        raise error.InvalidArgument(
            "vgg: there is no network of this depth", expected=", ".join(map(str, _STACKS)), found=str(num_layers)
        )
    data = layers.data_var((batch_size, *image_shape), dtype)
    feature = get_feature(data, _STACKS[num_layers], _CHANNELS, batch_norm)
    return nn.softmax(get_classifier(feature, num_classes)).in_function()


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network as a typed module, and its parameters.

    Parameters
    ----------
    batch_size, num_classes, num_layers : int
        Sizes of the network.
    image_shape : tuple of int
        (channels, height, width).
    dtype : str
        The data type.
    batch_norm : bool
        Whether each convolution is followed by a normalisation.
    """
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm))
