"""Convolutions between batches of pixels become convolutions with dilation, with the same values."""

import numpy as np
import pytest

from weft import IRModule, relay
from weft.relay.walk import subexpressions

X = np.random.default_rng(0).standard_normal((1, 6, 6, 2)).astype("float32")
W = relay.const(np.random.default_rng(1).standard_normal((3, 3, 2, 4)).astype("float32"))


def atrous(block, pads, crops, pad_value=0, **attrs):
    x = relay.var("x", shape=X.shape, dtype="float32")
    batches = relay.nn.space_to_batch_nd(x, [block] * 2, [pads] * 2, pad_value)
    attrs = {"kernel_size": (3, 3), "channels": 4, "data_layout": "NHWC", "kernel_layout": "HWIO", **attrs}
    y = relay.nn.batch_to_space_nd(relay.nn.conv2d(batches, W, **attrs), [block] * 2, [crops] * 2)
    return relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.nn.relu(y))))


def names(mod):
    return [e.op.name for e in subexpressions(mod["main"].body) if isinstance(e, relay.Call)]


@pytest.mark.parametrize(
    ("block", "pads", "crops", "attrs", "flat"),
    [
        (2, (2, 2), (0, 0), {}, True),
        (2, (3, 3), (1, 0), {}, True),
        (3, (3, 6), (0, 2), {}, True),
        (2, (1, 1), (0, 1), {"padding": (1, 1)}, True),
        (2, (2, 4), (1, 1), {"dilation": (2, 2), "padding": (1, 1)}, True),
        (2, (2, 2), (3, 0), {}, False),  # more is cut off than was padded
        (2, (4, 4), (0, 0), {"strides": (2, 2)}, False),
        (2, (2, 2), (0, 0), {"pad_value": 1}, False),
    ],
)
def test_values_stay(block, pads, crops, attrs, flat):
    mod = atrous(block, pads, crops, **attrs)
    out = relay.transform.FlattenAtrousConv()(mod)
    assert names(out) == (["nn.relu", "nn.conv2d"] if flat else names(mod))
    assert flat or out["main"] is mod["main"]
    run = lambda m: relay.create_executor("debug", mod=m).evaluate()(X).numpy()  # noqa: E731
    np.testing.assert_allclose(run(relay.transform.InferType()(out)), run(mod), rtol=1e-4, atol=1e-5)


def test_quantized_zeros_are_padded():
    x = relay.var("x", shape=(1, 6, 6, 2), dtype="int8")
    w = relay.const(np.ones((3, 3, 2, 4), "int8"))
    for zero, flat in ((5, True), (4, False)):
        batches = relay.nn.space_to_batch_nd(x, [2, 2], [(2, 2)] * 2, 5)
        points = [relay.const(zero), relay.const(0), relay.const(0.5), relay.const(1.0)]
        y = relay.qnn.op.conv2d(batches, w, *points, (3, 3), 4, data_layout="NHWC", kernel_layout="HWIO")
        mod = IRModule.from_expr(relay.Function([x], relay.nn.batch_to_space_nd(y, [2, 2], [(0, 0)] * 2)))
        out = relay.transform.FlattenAtrousConv()(relay.transform.InferType()(mod))
        assert ("qnn.conv2d" == names(out)[0]) is flat


def test_operators_have_tvms_other_names():
    assert relay.qnn.conv2d is relay.qnn.op.conv2d and callable(relay.qnn.requantize)
    x = relay.var("x", shape=(2,))
    marked = relay.annotation.compiler_end(relay.exp(relay.annotation.compiler_begin(x, "own")), "own")
    assert marked.attrs.compiler == "own"
    value = relay.create_executor("graph").evaluate(relay.Function([x], marked))(np.zeros(2, "float32"))
    assert value.numpy().tolist() == [1.0, 1.0]
