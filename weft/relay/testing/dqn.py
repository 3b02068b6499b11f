"""A deep Q network: three convolutions and two dense layers."""

from typing import Any

from weft.relay.expr import Function, var
from weft.relay.op import nn
from weft.relay.testing import layers
from weft.relay.testing.init import workload_of


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """Make the network, from frames to the value of each action."""
    body: Any = layers.data_var((batch_size, *image_shape), dtype)
    for i, (channels, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        body = layers.conv2d(
            body,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(0, 0),
            data_layout=layout,
            kernel_layout=layers.conv_kernel_layout(layout),
            name=f"conv{i}",
        )
        body = nn.relu(nn.bias_add(body, var(f"conv{i}_bias"), axis=layout.index("C")))
    body = nn.relu(layers.dense_add_bias(nn.batch_flatten(body), units=512, name="dense1"))
    return layers.dense_add_bias(body, units=num_actions, name="dense2").in_function()


get_workload = workload_of(get_net)
