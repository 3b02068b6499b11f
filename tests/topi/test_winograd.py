"""Winograd's convolutions against direct ones: exact matrices, packed weights, the choice of a tile, whole models."""

from collections import Counter

import numpy as np
import pytest

import weft
from tests.relax_models import computed, model
from tests.topi.running import evaluate
from weft import error, target
from weft.relax.transform import convert_layout
from weft.tir.schedule import default_schedule
from weft.topi import conv2d_winograd, winograd_matrices, winograd_tile, winograd_weight


@pytest.mark.parametrize("tile", [2, 4])
def test_matrices_compute_a_filter_of_three(tile):
    rng = np.random.default_rng(tile)
    b, g, a = winograd_matrices(tile)
    d, f = rng.standard_normal(tile + 2), rng.standard_normal(3)
    direct = [d[i : i + 3] @ f for i in range(tile)]
    np.testing.assert_allclose(a @ ((g @ f) * (b @ d)), direct, rtol=1e-12, atol=1e-12)


def test_other_tiles_are_refused():
    with pytest.raises(error.InvalidArgument, match="no tiles of 9 outputs"):
        winograd_matrices(9)


@pytest.mark.parametrize(
    ("shape", "channels", "padding", "tile"),
    [
        ((1, 14, 14, 32), 64, (1, 1, 1, 1), 4),
        ((2, 13, 7, 16), 32, (1, 0, 2, 1), 4),
        ((1, 9, 5, 48), 16, (0, 0, 0, 0), 2),
        ((1, 3, 3, 16), 16, (0, 0, 0, 0), 4),
        ((1, 6, 11, 20), 24, (1, 1, 1, 1), 2),
        ((0, 8, 8, 16), 16, (1, 1, 1, 1), 4),
        ((1, 9, 6, 8), 45, (1, 1, 1, 1), 4),
    ],
)
def test_scheduled_kernel_equals_direct_convolution(shape, channels, padding, tile):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape, np.float32)
    w = rng.standard_normal((channels, shape[3], 3, 3), np.float32)
    u = winograd_weight(w, tile, 32)
    y = evaluate(lambda a, b: conv2d_winograd(a, b, padding, tile, channels), x, u, target="llvm")
    expected = computed("nn.conv2d", x, w, padding=padding, data_layout="NHWC")
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels", [32, 45])
def test_what_all_tiles_compute_is_written_once(channels):
    """Tiles at a border, and channels that end inside a vector, differ in what is written only."""
    n, h, v = (weft.tir.SizeVar(name, "int64") for name in "nhw")
    data = weft.te.placeholder((n, h, v, 16), name="x")
    weight = weft.te.placeholder((6, 6, -(-channels // 16), 16, 16), name="u")
    out = conv2d_winograd(data, weight, (1, 1, 1, 1), 4, channels)
    haswell = target.Target("llvm -mcpu=haswell")
    func = default_schedule(weft.te.create_prim_func([data, weight, out]), haswell)
    body = weft.tir.pipeline.lower(func, haswell).body
    written = Counter(s.buffer.name for s in weft.ir.find(body, weft.tir.BufferStore))
    assert (written["pad"], written["winograd_rows"], written["winograd_sums"]) == (36, 36, 24)
    asked = {x.args[0] for x in weft.ir.find(body, weft.ir.CallIntrin) if x.op.name == "tir.if_then_else"}
    assert len(asked) <= 12  # each row and each column of a tile


def test_choice_follows_size():
    assert winograd_tile((1, 56, 56), (64, 64)) == 4
    assert winograd_tile((1, 14, 14), (256, 256)) == 2
    assert winograd_tile((1, 7, 7), (512, 512)) == 0  # reading 16/9 of the weights costs more than is saved
    assert winograd_tile((1, 2, 2), (16, 16)) == 0
    assert winograd_tile((1, 13, 13), (64, 256)) == 0
    assert winograd_tile((1, 13, 13), (64, 256), near=True) == 4  # weights that stay in a cache are read at little cost


@pytest.mark.parametrize("batch", [1, weft.tir.Var("n", "int64")], ids=["one", "open"])
def test_convert_layout_uses_it_unless_told_not_to(batch):
    w = weft.relax.const(np.random.default_rng(0).standard_normal((128, 32, 3, 3), np.float32))
    mod = model(lambda x: weft.relax.op.nn.conv2d(x, w, padding=1), (batch, 32, 14, 14))
    assert "conv2d_winograd" in str(convert_layout()(mod))
    assert "conv2d_winograd" not in str(convert_layout(winograd=False)(mod))


@pytest.mark.parametrize(("c", "o", "padding"), [(32, 64, (1, 1)), (16, 24, (0, 1, 2, 1)), (32, 45, (1, 1))])
def test_symbolic_sizes_are_decided_by_likely_ones(c, o, padding):
    n, h, v = (weft.tir.Var(name, "int64") for name in "nhw")
    rng = np.random.default_rng(1)
    kernel = rng.standard_normal((o, c, 3, 3), np.float32)
    convolved = lambda x: weft.relax.op.nn.conv2d(x, weft.relax.const(kernel), padding=padding)  # noqa: E731
    mod = model(lambda x: weft.relax.op.nn.relu(convolved(x)), (n, c, h, v))
    assert "conv2d_winograd" in str(convert_layout()(mod))
    vm = weft.relax.VirtualMachine(weft.relax.build(mod, target="llvm"), weft.cpu())
    for shape in ((1, c, 28, 31), (3, c, 5, 1), (2, c, 3, 9), (0, c, 8, 8), (1, c, 57, 14)):
        data = rng.standard_normal(shape, np.float32)
        around = padding * (4 // len(padding))
        if shape[2] + around[0] + around[2] < 3 or shape[3] + around[1] + around[3] < 3:
            continue
        expected = np.maximum(computed("nn.conv2d", data, kernel, padding=padding), 0)
        np.testing.assert_allclose(vm["main"](weft.runtime.tensor(data)).numpy(), expected, rtol=1e-3, atol=1e-3)


def test_deep_layers_of_symbolic_size_stay_direct():
    h = weft.tir.Var("h", "int64")
    rows = (h + 31) // 32
    w = weft.relax.const(np.zeros((512, 512, 3, 3), np.float32))
    size = weft.relax.Var("s", weft.relax.ShapeType([h]))
    mod = model(lambda _, x: weft.relax.op.nn.conv2d(x, w, padding=1), size, (1, 512, rows, rows))
    assert "conv2d_winograd" not in str(convert_layout()(mod))
