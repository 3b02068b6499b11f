"""Residual networks of 3-D volumes; :mod:`weft.relay.testing.resnet` builds them."""

from weft.relay.expr import Function
from weft.relay.testing import resnet
from weft.relay.testing.init import workload_of


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> Function:
    """Make a residual network of volumes."""
    return resnet.get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype)


get_workload = workload_of(get_net, batch_size=1, num_classes=1000, num_layers=18)
