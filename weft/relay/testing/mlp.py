"""A network of three dense layers."""

from weft.relay.expr import Function
from weft.relay.op import nn
from weft.relay.testing.init import workload_of
from weft.relay.testing.layers import data_var, dense_add_bias


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """Make the network: layers of 128, 64 and `num_classes`, and softmax."""
    body = nn.batch_flatten(data_var((batch_size, *image_shape), dtype))
    for i, units in enumerate((128, 64), 1):
        body = nn.relu(dense_add_bias(body, units=units, name=f"fc{i}"))
    return nn.softmax(dense_add_bias(body, units=num_classes, name="fc3")).in_function()


get_workload = workload_of(get_net)
