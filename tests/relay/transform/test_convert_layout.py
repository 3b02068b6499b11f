"""Operators in other layouts: the same values, the layouts that were wanted, transformations only where needed."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.testing import count_ops
from weft.relay.testing.temp_op_attr import TempOpAttr
from weft.relay.transform import AlterOpLayout, CanonicalizeOps, ConvertLayout, InferType, LayoutConfig

RNG = np.random.default_rng(3)
nn = relay.nn


def var(name, *shape):
    return relay.var(name, shape=shape)


def conv(x, *, name="w", inputs=4, outputs=8, **attrs):
    return nn.conv2d(x, var(name, outputs, inputs, 3, 3), channels=outputs, kernel_size=(3, 3), padding=(1, 1), **attrs)


def check(body, change, transforms, **left):
    """Compare values, and count the transformations and operators that are left."""
    before = InferType()(weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    after = change(before)
    counts = count_ops(after["main"].body)
    assert counts["layout_transform"] == transforms, str(after)
    assert {k: counts[k] for k in left} == left
    inputs = [RNG.random([int(d) for d in p.ty.shape], "float32") for p in before["main"].params]
    found = [relay.create_executor("debug", m).evaluate()(*inputs) for m in (before, after)]
    for a, b in zip(*(f if isinstance(f, (tuple, list)) else [f] for f in found), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    return after


NHWC = {"nn.conv2d": ["NHWC", "default"]}
X = var("x", 2, 4, 5, 6)

# Each stands between a convolution and the end: with x, the weight and the result that makes 3 transformations.
FOLLOWS = {
    "relu": nn.relu,
    "cast": lambda y: relay.cast(y, "float64"),
    "add of a tensor": lambda y: relay.add(y, y),
    "max_pool2d": lambda y: nn.max_pool2d(y, pool_size=(2, 2)),
    "global_avg_pool2d": nn.global_avg_pool2d,
    "concatenate": lambda y: relay.concatenate([y, y], axis=1),
    "split": lambda y: relay.split(y, 2, axis=-3)[1],
    "sum": lambda y: relay.sum(y, axis=(1, -1), keepdims=True),
    "pad": lambda y: nn.pad(y, ((0, 0), (1, 0), (0, 2), (0, 0))),
    "strided_slice": lambda y: relay.strided_slice(y, [0, 1, 1, 0], [2, 7, 4, 6], [1, 2, 1, 3]),
    "strided_slice by lists of other lengths": lambda y: relay.strided_slice(y, [0, 1], [1, -1, 3], [1, 1, 2, 1]),
    "strided_slice without an end": lambda y: relay.strided_slice(y, [0, 1, 2], [1, 5]),
    "strided_slice of axes": lambda y: relay.strided_slice(y, [1], [3], axes=[1]),
    "batch_norm": lambda y: nn.batch_norm(y, *(var(n, 8) for n in "abcd"))[0],
    "softmax": lambda y: nn.softmax(y, axis=1),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_operators_follow_the_layout_of_their_data(name):
    check(FOLLOWS[name](conv(X)), ConvertLayout(NHWC), 3)


def test_sums_with_vectors_squeezes_and_transpositions():
    check(nn.bias_add(conv(X), var("b", 8)), ConvertLayout(NHWC), 4)
    check(relay.sum(conv(X), axis=(2, 3)), ConvertLayout(NHWC), 2)
    check(relay.squeeze(nn.global_max_pool2d(conv(X)), axis=[2, 3]), ConvertLayout(NHWC), 2)
    check(relay.transpose(conv(X), (0, 2, 3, 1)), ConvertLayout(NHWC), 2)


def test_two_convolutions_have_nothing_between_them():
    y = conv(nn.relu(conv(X)), name="v", inputs=8)
    assert str(check(y, ConvertLayout(NHWC), 4)).count('data_layout="NHWC"') == 2
    check(y, ConvertLayout({"nn.conv2d": ["NCHW", "default"]}), 0)
    check(y, ConvertLayout({}), 0)
    with LayoutConfig(skip_layers=[1]):
        assert str(ConvertLayout(NHWC)(InferType()(weft.IRModule.from_expr(y)))).count('data_layout="NHWC"') == 1


def test_users_that_know_nothing_of_layouts_get_the_one_there_was():
    y = conv(X)
    check(relay.Tuple([relay.reshape(y, (2, -1)), nn.relu(y)]), ConvertLayout(NHWC), 4)


def test_depthwise_kernels_and_unknown_layouts():
    y = nn.conv2d(var("x", 1, 4, 5, 5), var("w", 4, 1, 3, 3), groups=4, channels=4, kernel_size=(3, 3))
    assert 'kernel_layout="HWOI"' in str(check(y, ConvertLayout(NHWC), 3))
    mod = InferType()(weft.IRModule.from_expr(y))
    with pytest.raises(error.InvalidArgument, match="no default layout of kernels for 'CHWN'"):
        ConvertLayout({"nn.conv2d": ["CHWN", "default"]})(mod)
    with pytest.raises(error.InvalidArgument, match="a layout of its data and one of its kernel"):
        ConvertLayout({"nn.conv2d": ["NHWC"]})(mod)


def blocked(attrs, args, tinfos, out_type):
    changed = {**dict(attrs.items), "data_layout": "NCHW2c", "kernel_layout": "OIHW2i2o"}
    return nn.contrib_conv2d_nchwc(*args, **changed)


def test_alter_op_layout_keeps_blocks_through_what_follows():
    y = nn.max_pool2d(nn.relu(nn.bias_add(conv(X), var("b", 8))), pool_size=(2, 2))
    y = conv(y, name="v", inputs=8)
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", blocked):
        change = weft.transform.Sequential([CanonicalizeOps(), AlterOpLayout()], opt_level=0)
        with weft.transform.PassContext(opt_level=3):
            after = check(y, change, 5)
    assert 'layout="NCHW2c"' in str(after)
    assert weft.ir.structural_equal(
        AlterOpLayout()(InferType()(weft.IRModule.from_expr(y)))["main"],
        InferType()(weft.IRModule.from_expr(y))["main"],
    )


def test_what_is_registered_must_be_a_call():
    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", lambda attrs, args, tinfos, out: args[0]):
        mod = InferType()(weft.IRModule.from_expr(conv(X)))
        with pytest.raises(error.InvalidArgument, match="is a call of one"):
            AlterOpLayout()(mod)


def in_blocks(size):
    """Ask for blocks of channels."""

    def alter(attrs, args, tinfos, out_type):
        layouts = {"data_layout": f"NCHW{size}c" if size else "NCHW"}
        layouts["kernel_layout"] = f"OIHW{size}i{size}o" if size else "OIHW"
        return nn.conv2d(*args, **{**dict(attrs), **layouts})

    return TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", alter)


PACKED = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o", "channels": 8, "kernel_size": (1, 1)}

# What follows a convolution, with the transformations that are left beside those of its data and weight.
AFTER_BLOCKS = {
    "one number of two axes": (lambda y: y * var("a", 1, 1), 1),
    "a tensor that is repeated along channels": (lambda y: y + var("a", 1, 5, 6), 2),
    "a channel's number, before": (lambda y: var("a", 8, 1, 1) - y, 2),
    "a sum of channels": (lambda y: relay.sum(y, axis=1, keepdims=True), 1),
    "a mean of all but channels": (lambda y: relay.mean(y, axis=1, exclude=True), 1),
    "a variance": (lambda y: relay.variance(y, axis=(1, 3), keepdims=True), 1),
    "a slice of whole blocks": (lambda y: relay.strided_slice(y, [1, -4, 1], [2, 100, 4]), 1),
    "a slice of axes": (lambda y: relay.strided_slice(y, [4, 1], [8, 6], [1, 2], axes=[1, 3]), 1),
    "a slice across blocks": (lambda y: relay.strided_slice(y, [0, 3], [2, 8]), 1),
    "upsampling": (lambda y: nn.upsampling(y, 2, 3, method="bilinear"), 1),
    "a resized image": (lambda y: relay.image.resize2d(y, (3, 4)), 1),
}


@pytest.mark.parametrize("name", AFTER_BLOCKS)
def test_what_follows_blocks_of_channels(name):
    body, left = AFTER_BLOCKS[name]
    with in_blocks(4), weft.transform.PassContext(opt_level=3):
        check(body(conv(X)), weft.transform.Sequential([CanonicalizeOps(), AlterOpLayout()]), 2 + left)


@pytest.mark.parametrize(
    ("size", "bias", "transforms"),
    [
        (4, (1, 1, 1, 1, 4), 0),
        (4, (1, 1, 1, 1, 1), 0),
        (2, (1, 2, 1, 1, 4), 4),
        (2, (1, 1, 1, 1, 1), 3),
        (0, (6, 4), 3),
        (0, (1,), 3),
    ],
)
def test_data_that_lies_in_blocks_already(size, bias, transforms):
    y = nn.conv2d(var("x", 2, 1, 5, 6, 4), var("w", 2, 1, 1, 1, 4, 4), **PACKED) + var("b", *bias)
    with in_blocks(size):
        check(y, AlterOpLayout(), transforms)


def test_a_packed_convolution_takes_the_blocks_of_its_kernel():
    x, w = var("x", 1, 8, 5, 5), var("w", 8, 8, 3, 3)
    packed = nn.contrib_conv2d_nchwc(
        relay.layout_transform(x, "NCHW", "NCHW4c"),
        relay.layout_transform(w, "OIHW", "OIHW4i4o"),
        channels=8,
        kernel_size=(3, 3),
        data_layout="NCHW4c",
    )
    inputs = RNG.random((1, 8, 5, 5), "float32"), RNG.random((8, 8, 3, 3), "float32")
    bodies = relay.layout_transform(packed, "NCHW4c", "NCHW"), nn.conv2d(x, w, channels=8, kernel_size=(3, 3))
    a, b = (relay.create_executor("vm").evaluate(relay.Function([x, w], y))(*inputs).numpy() for y in bodies)
    np.testing.assert_allclose(a, b, rtol=1e-5)
