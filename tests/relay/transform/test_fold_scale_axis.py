"""Factors of channels in weights: the same values, and no factor left where it can go."""

import numpy as np
import pytest

import weft
from weft import relay
from weft.relay.transform import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis, InferType

RNG = np.random.default_rng(1)


def const(*shape, positive=True):
    numbers = RNG.random(shape, "float32") + 0.5
    return relay.const(numbers if positive else -numbers)


def typed(body):
    return InferType()(weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))


def check(body, fold, moved):
    before = typed(body)
    with weft.transform.PassContext(opt_level=3):
        after = fold(before)
    assert weft.ir.structural_equal(before, after) != moved
    inputs = [RNG.standard_normal([int(d) for d in p.ty.shape], "float32") for p in before["main"].params]
    values = [relay.create_executor("debug", m).evaluate()(*inputs).numpy() for m in (before, after)]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
    return after


def conv(x, weight, **attrs):
    return relay.nn.conv2d(x, weight, channels=6, kernel_size=(3, 3), padding=(1, 1), **attrs)


X, W = relay.var("x", shape=(2, 4, 5, 5)), const(6, 4, 3, 3)


@pytest.mark.parametrize(
    ("positive", "rectified", "moved"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_forward(positive, rectified, moved):
    x = relay.multiply(X, const(4, 1, 1, positive=positive))
    x = relay.add(relay.nn.relu(x) if rectified else x, const(4, 1, 1))
    check(conv(x, W), ForwardFoldScaleAxis(), moved)


@pytest.mark.parametrize(("positive", "moved"), [(True, True), (False, False)])
def test_backward(positive, moved):
    y = relay.nn.relu(relay.nn.bias_add(conv(X, W), const(6)))
    check(relay.multiply(y, const(6, 1, 1, positive=positive)), BackwardFoldScaleAxis(), moved)


def test_a_value_with_another_user_keeps_its_factor():
    y = conv(X, W)
    check(relay.add(relay.multiply(y, const(6, 1, 1)), relay.nn.relu(y)), BackwardFoldScaleAxis(), False)
    x = relay.multiply(X, const(4, 1, 1))
    check(relay.add(conv(x, W), relay.sum(relay.exp(x))), ForwardFoldScaleAxis(), False)


def test_layouts_groups_and_layers():
    depthwise = relay.nn.conv2d(
        relay.multiply(relay.var("x", shape=(2, 5, 5, 4)), const(4)),
        const(3, 3, 1, 4),
        channels=4,
        kernel_size=(3, 3),
        groups=4,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    check(relay.multiply(depthwise, const(4)), FoldScaleAxis(), True)
    blocked = relay.var("x", shape=(1, 2, 5, 5, 2))
    y = relay.nn.conv2d(
        blocked, const(3, 2, 3, 3, 2, 2), channels=6, kernel_size=(3, 3), data_layout="NCHW2c", kernel_layout="OIHW2i2o"
    )
    check(relay.multiply(y, const(1, 3, 1, 1, 2)), BackwardFoldScaleAxis(), True)
    x = relay.var("x", shape=(3, 4))
    y = relay.multiply(relay.nn.dense(relay.multiply(x, const(4)), const(6, 4)), const(6))
    assert "multiply" not in str(check(y, FoldScaleAxis(), True))


def test_legalize_asks_the_function_of_an_operator():
    y = relay.nn.relu(relay.negative(X))
    with relay.testing.temp_op_attr.TempOpAttr(
        "nn.relu", "FTVMLegalize", lambda attrs, args, types: relay.maximum(args[0], relay.const(0, types[0].dtype))
    ):
        after = relay.transform.Legalize()(typed(y))
    expected = typed(relay.maximum(relay.negative(X), relay.const(0, "float32")))
    weft.ir.assert_structural_equal(after["main"], expected["main"])
    assert weft.ir.structural_equal(relay.transform.Legalize()(typed(y)), typed(y))
