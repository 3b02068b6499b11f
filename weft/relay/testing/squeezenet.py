"""SqueezeNet: fire modules, which squeeze channels and expand them by two convolutions side by side."""

from __future__ import annotations

from typing import Any

from weft import error, ir
from weft.relay.expr import Function, var
from weft.relay.op import constructor, nn
from weft.relay.testing import layers
from weft.relay.testing.init import create_workload

_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_POOLED = {"1.0": (0, 3, 7), "1.1": (0, 2, 4)}  # fire modules before which there is max pooling


def _conv(data: ir.Expr, channels: int, size: int, padding: int, name: str, stride: int = 1) -> ir.Expr:
    out = layers.conv2d(
        data, channels=channels, kernel_size=(size,) * 2, strides=(stride,) * 2, padding=(padding,) * 2, name=name
    )
    return nn.relu(nn.bias_add(out, var(f"{name}_bias")))


def _fire(data: ir.Expr, squeezed: int, expanded: int, name: str) -> ir.Expr:
    inner = _conv(data, squeezed, 1, 0, f"{name}_input")
    left = _conv(inner, expanded, 1, 0, f"{name}_left")
    right = _conv(inner, expanded, 3, 1, f"{name}_right")
    return constructor("concatenate")((left, right), axis=1)


def get_net(batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str) -> Function:
    """Make the network of version ``1.0`` or ``1.1``."""
    if version not in _POOLED:
        raise error.InvalidArgument(f"squeezenet: there is no version '{version}'", expected="1.0 or 1.1")
    data = layers.data_var((batch_size, *image_shape), dtype)
    channels, size = (96, 7) if version == "1.0" else (64, 3)
    body = _conv(data, channels, size, size // 2, "conv1", stride=2)
    for i, (squeezed, expanded) in enumerate(_FIRES):
        if i in _POOLED[version]:
            body = nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2))
        body = _fire(body, squeezed, expanded, f"fire{i}")
    body = nn.global_avg_pool2d(_conv(nn.dropout(body, rate=0.5), num_classes, 1, 0, "conv_final"))
    return nn.softmax(nn.batch_flatten(body)).in_function()


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network as a typed module, and its parameters.

    Parameters
    ----------
    batch_size, num_classes : int
        Sizes of the network.
    version : str
        ``1.0`` or ``1.1``.
    image_shape : tuple of int
        (channels, height, width).
    """
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))
