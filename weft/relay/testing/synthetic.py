"""A small network of one layer of each kind, for fast tests."""

from weft.relay.expr import Function, var
from weft.relay.op import constructor, nn
from weft.relay.testing.init import workload_of


def get_net(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> Function:
    """Make the network: a dense layer over rows, added to the image, a convolution, a bias, and relu."""
    wtype = wtype or dtype
    _, channels, _, width = input_shape
    data = var("data", shape=input_shape, dtype=dtype)
    dense_weight = var("dense_weight", shape=(width, width), dtype=wtype)
    conv_weight = var("conv_weight", shape=(3 * channels, channels, 3, 3), dtype=wtype)
    conv_bias = var("conv_bias", shape=(3 * channels,), dtype=wtype)
    rows = nn.dense(constructor("reshape")(data, (-1, width)), dense_weight, out_dtype=dtype)
    image = constructor("add")(constructor("reshape_like")(rows, data), data)
    conv = nn.conv2d(image, conv_weight, channels=3 * channels, kernel_size=(3, 3), padding=(1, 1), out_dtype=dtype)
    bias = constructor("cast")(conv_bias, dtype) if wtype != dtype else conv_bias
    out = nn.relu(nn.bias_add(conv, bias))
    return Function((data, dense_weight, conv_weight, conv_bias), out)


get_workload = workload_of(get_net)
