"""Padding that operators do themselves is the padding that a program spelt out."""

import numpy as np
import pytest

import weft
from weft import relay
from weft.relay.transform import FoldExplicitPadding


def both(body, *arrays, folded=True):
    """Run a program before and after the pass."""
    mod = weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    after = FoldExplicitPadding()(mod)
    assert ("nn.pad" in str(after)) != folded
    before, now = (relay.create_executor("debug", mod=m).evaluate()(*arrays).numpy() for m in (mod, after))
    np.testing.assert_allclose(now, before, rtol=1e-5, atol=1e-5)


def padded(shape, widths, value=0.0, mode="constant", dtype="float32"):
    x = relay.var("x", shape=shape, dtype=dtype)
    return relay.nn.pad(x, widths, relay.const(value, dtype), mode)


@pytest.mark.parametrize(
    ("value", "mode", "folded"), [(0, "constant", True), (1, "constant", False), (0, "edge", False)]
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions(layout, value, mode, folded):
    rng = np.random.default_rng(0)
    shape = [1, 2, 5, 4] if layout == "NCHW" else [1, 5, 4, 2]
    widths = [[2, 1] if a == "H" else [0, 3] if a == "W" else [0, 0] for a in layout]
    kernel = (3, 2, 3, 3) if layout == "NCHW" else (3, 3, 2, 3)
    conv = relay.nn.conv2d(
        padded(shape, widths, value, mode),
        relay.var("w", shape=kernel),
        padding=(1, 0),
        kernel_size=(3, 3),
        channels=3,
        data_layout=layout,
        kernel_layout="OIHW" if layout == "NCHW" else "HWIO",
    )
    both(conv, rng.random(shape, "float32"), rng.random(kernel, "float32"), folded=folded)


@pytest.mark.parametrize(
    ("dtype", "value", "window", "folded"),
    [
        ("float32", -np.inf, 2, True),
        ("float32", np.finfo("float32").min, 3, True),
        ("uint8", 0, 2, True),
        ("float32", np.finfo("float32").min, 1, False),
        ("float32", 0, 2, False),
        ("int8", 0, 2, False),
    ],
)
def test_maximum_pools(dtype, value, window, folded):
    data = padded([1, 1, 6, 5], [[0, 0], [0, 0], [1, 0], [1, 1]], value, dtype=dtype)
    x = np.random.default_rng(1).integers(0, 9, (1, 1, 6, 5)).astype(dtype)
    both(relay.nn.max_pool2d(data, pool_size=(window, window)), x, folded=folded)


@pytest.mark.parametrize(
    ("padding", "counts", "folded"), [((0, 0), False, True), ((1, 1), True, True), ((1, 1), False, False)]
)
def test_average_pools(padding, counts, folded):
    data = padded([1, 1, 6, 5], [[0, 0], [0, 0], [1, 0], [1, 1]])
    x = np.random.default_rng(1).random((1, 1, 6, 5), "float32")
    both(relay.nn.avg_pool2d(data, (2, 2), padding=padding, count_include_pad=counts), x, folded=folded)
