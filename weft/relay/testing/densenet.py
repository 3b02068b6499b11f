"""DenseNet: each layer reads what all layers of its block before it have made."""

from weft import error, ir
from weft.relay.expr import Function
from weft.relay.op import constructor, nn
from weft.relay.testing import layers
from weft.relay.testing.init import workload_of

# (channels of the first convolution, channels that each layer adds, layers of each block)
_SIZES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def _norm(data: ir.Expr, name: str) -> ir.Expr:
    return nn.relu(layers.batch_norm_infer(data, name=name))


def _layer(data: ir.Expr, growth: int, width: int, name: str) -> ir.Expr:
    inner = layers.conv2d(_norm(data, f"{name}_bn1"), channels=width * growth, kernel_size=(1, 1), name=f"{name}_conv1")
    new = layers.conv2d(
        _norm(inner, f"{name}_bn2"), channels=growth, kernel_size=(3, 3), padding=(1, 1), name=f"{name}_conv2"
    )
    return constructor("concatenate")((data, new), axis=1)


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """Make the network of 121, 161, 169 or 201 layers."""
    if densenet_size not in _SIZES:
        raise error.InvalidArgument(
            "densenet: there is no network of this depth",
            expected=", ".join(map(str, _SIZES)),
            found=str(densenet_size),
        )
    channels, growth, blocks = _SIZES[densenet_size]
    body = layers.conv2d(
        layers.data_var((batch_size, *image_shape), dtype),
        channels=channels,
        kernel_size=(7, 7),
        strides=(2, 2),
        padding=(3, 3),
        name="conv1",
    )
    body = nn.max_pool2d(_norm(body, "bn1"), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for i, count in enumerate(blocks):
        for j in range(count):
            body = _layer(body, growth, 4, f"block{i + 1}_layer{j + 1}")
        channels += count * growth
        body = _norm(body, f"block{i + 1}_bn")
        if i < len(blocks) - 1:
            channels //= 2
            body = layers.conv2d(body, channels=channels, kernel_size=(1, 1), name=f"transition{i + 1}_conv")
            body = nn.avg_pool2d(body, pool_size=(2, 2), strides=(2, 2))
    body = nn.batch_flatten(nn.global_avg_pool2d(body))
    return layers.dense_add_bias(body, units=classes, name="dense").in_function()


get_workload = workload_of(get_net)
