"""Residual networks of 3-D volumes; :mod:`weft.relay.testing.resnet` builds them."""

from __future__ import annotations

from typing import Any

from weft.ir import IRModule
from weft.relay.expr import Function
from weft.relay.testing import resnet
from weft.relay.testing.init import create_workload


def get_net(
    batch_size: int, num_classes: int, num_layers: int = 50, image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW", dtype: str = "float32",
) -> Function:  # fmt: skip
    """Make a residual network of volumes."""
    return resnet.get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype)


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 16, 112, 112), layout: str = "NCDHW", dtype: str = "float32", **kwargs: Any,
) -> tuple[IRModule, dict[str, Any]]:  # fmt: skip
    """Make a residual network of volumes as a typed module, and its parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
