"""The generator of a deep convolutional generative adversarial network."""

from __future__ import annotations

from typing import Any

from weft import error, ir
from weft.ir import Expr
from weft.relay.expr import Function
from weft.relay.op import constructor, nn
from weft.relay.testing import layers
from weft.relay.testing.init import create_workload


def deconv2d(
    data: ir.Expr,
    ishape: tuple[int, ...],
    oshape: tuple[int, ...],
    kshape: tuple[int, int],
    layout: str,
    name: str,
    stride: tuple[int, int] = (2, 2),
) -> ir.Expr:
    """Convolve transposed, so that (channels, height, width) `ishape` becomes `oshape`."""
    after = [(s[0] if layout == "NHWC" else s[1], s[1] if layout == "NHWC" else s[2]) for s in (ishape, oshape)]
    over = [(o + 2 * ((k - 1) // 2) - k - (i - 1) * s) for i, o, k, s in zip(*after, kshape, stride, strict=True)]
    return layers.conv2d_transpose(
        data,
        channels=oshape[-1] if layout == "NHWC" else oshape[0],
        kernel_size=kshape,
        strides=stride,
        padding=tuple((k - 1) // 2 for k in kshape),
        output_padding=tuple(over),
        data_layout=layout,
        kernel_layout="IOHW",
        name=name,
    )


def deconv2d_bn_relu(data: ir.Expr, prefix: str, **kwargs: Any) -> ir.Expr:
    """Convolve transposed, normalise, and limit to what is positive."""
    out = deconv2d(data, name=f"{prefix}_deconv", **kwargs)
    return nn.relu(
        layers.batch_norm_infer(
            out, epsilon=1e-5 + 1e-12, axis=kwargs["layout"].index("C"), name=f"{prefix}_batch_norm"
        )
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: Expr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Make the generator of images of 64 by 64 pixels from random vectors."""
    channels, height, width = (oshape[2], *oshape[:2]) if layout == "NHWC" else oshape
    if (height, width) != (64, 64):
        raise error.InvalidArgument("dcgan: images have 64 by 64 pixels", found=f"{height} by {width}")

    def shape(c: int, n: int) -> tuple[int, int, int]:
        return (n, n, c) if layout == "NHWC" else (c, n, n)

    data = layers.data_var((batch_size, random_len), dtype) if code is None else code
    body = layers.dense_without_bias(data, units=4 * 4 * ngf * 8, name="dense1")
    body = nn.relu(constructor("reshape")(body, (-1, *shape(ngf * 8, 4))))
    for i, (c, n) in enumerate(((8, 4), (4, 8), (2, 16))):
        body = deconv2d_bn_relu(
            body, f"g{i + 2}", ishape=shape(ngf * c, n), oshape=shape(ngf * c // 2, 2 * n), kshape=(4, 4), layout=layout
        )
    body = deconv2d(body, shape(ngf, 32), shape(channels, 64), (4, 4), layout, "g5_deconv")
    return constructor("tanh")(body).in_function()


def get_workload(
    batch_size: int,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the generator as a typed module, and its parameters.

    Parameters
    ----------
    batch_size : int
        The number of images.
    oshape : tuple of int
        The shape of an image, in `layout` without the batch.
    ngf : int
        The number of channels of the last hidden layer.
    random_len : int
        The length of the random vectors.
    """
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype))
