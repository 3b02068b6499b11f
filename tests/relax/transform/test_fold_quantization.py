"""Products of quantised tensors on integers: against the QDQ arithmetic taken literally, in float64."""

import numpy as np
import pytest

import weft
from tests.relax_models import computing
from weft import ir, relax
from weft.relax.analysis import well_formed
from weft.relax.rewriter import all_bindings
from weft.relax.transform import FoldQuantization

FORMS = (("uint8", "int8", "int32", 16),)
STEP = np.float32(0.05)


class Literal:
    """A QDQ network, built and computed at the same time."""

    def __init__(self, activations, seed=0):
        self.rng = np.random.default_rng(seed)
        self.dtype = activations
        self.info = np.iinfo(activations)
        self.bb = relax.BlockBuilder()

    def quantize(self, x, scale, zero):
        """Quantise and dequantise a pair of an expression and its value."""
        expr, value = x
        zero += int(self.info.min)
        args = relax.const(np.float32(scale)), relax.const(np.array(zero, self.dtype))
        q = self.bb.emit(relax.op.quantize(expr, *args, axis=0, out_dtype=self.dtype))
        scaled = np.clip(np.rint(value / np.float32(scale)) + zero, self.info.min, self.info.max)
        return self.bb.emit(relax.op.dequantize(q, *args, axis=0)), (scaled - zero) * np.float32(scale)

    def weights(self, *shape, axis=0, per_channel=True, dtype="int8"):
        w = self.rng.integers(-127, 128, shape).astype("int8")
        n = shape[axis] if per_channel else ()
        scale = (self.rng.uniform(0.5, 1.0, n) * 0.02 / np.sqrt(np.prod(shape) / shape[axis])).astype(np.float32)
        zero = 0 if dtype == "int8" else 128
        zeros = relax.const(np.full(n, zero, dtype))
        stored = w if dtype == "int8" else (w.astype(np.int16) + 128).astype(np.uint8)
        expr = self.bb.emit(relax.op.dequantize(relax.const(stored), relax.const(scale), zeros, axis=axis))
        spread = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if per_channel else scale
        return expr, w * spread.astype(np.float64)

    def bias(self, n, rank=4):
        v = (self.rng.standard_normal(n) * 0.3).astype(np.float32).reshape((1, n, 1, 1) if rank == 4 else (n,))
        return relax.const(v), v

    def emit(self, x):
        return self.bb.emit(x)


def conv(x, w, stride=1, padding=0):
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def residual_network(activations, batch, dtype="int8", per_channel=True):
    """A padded stem, a block with a shortcut, pooling, and a head: as quantisers write it."""
    n = Literal(activations)
    op = relax.op
    size = 2 if isinstance(batch, str) else batch
    value = n.rng.standard_normal((size, 3, 13, 11)).astype(np.float32)
    dims = [weft.tir.Var(batch, "int64") if isinstance(batch, str) else batch, 3, 13, 11]
    x = relax.Var("x", relax.TensorType(dims, "float32"))
    kind = {"dtype": dtype, "per_channel": per_channel}

    def convolution(a, o, c, k, stride=1, padding=0, relu=False):
        (we, wv), (be, bv) = n.weights(o, c, k, k, **kind), n.bias(o)
        e = n.emit(op.add(n.emit(op.nn.conv2d(a[0], we, strides=stride, padding=padding)), be))
        v = conv(a[1], wv, stride, padding) + bv
        return (n.emit(op.nn.relu(e)), np.maximum(v, 0)) if relu else (e, v)

    with n.bb.function("main", [x]), n.bb.dataflow():
        a = n.quantize((x, value), 0.03, 131)
        a = n.quantize(convolution(a, 24, 3, 3, 2, 1), 0.02, 0)  # no ReLU: the zero point is one
        pooled = n.emit(op.nn.max_pool2d(a[0], (3, 3), (1, 1), (1, 1)))
        v = np.pad(a[1], [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
        v = np.lib.stride_tricks.sliding_window_view(v, (3, 3), axis=(2, 3)).max(axis=(4, 5))
        a = n.quantize((pooled, v), 0.02, 0)
        b = n.quantize(convolution(a, 10, 24, 1, relu=True), 0.015, 7)
        b = n.quantize(convolution(b, 24, 10, 3, padding=1), 0.04, 120)
        c = n.quantize(convolution(a, 24, 24, 1), 0.03, 140)
        a = n.quantize((n.emit(op.nn.relu(n.emit(op.add(b[0], c[0])))), np.maximum(b[1] + c[1], 0)), 0.02, 0)
        b = n.quantize(convolution(a, 24, 24, 1), 0.04, 120)
        a = n.quantize((n.emit(op.add(b[0], a[0])), b[1] + a[1]), 0.025, 0)
        a = n.quantize((n.emit(op.mean(a[0], (2, 3))), a[1].mean((2, 3))), 0.02, 0)
        (we, wv), (be, bv) = n.weights(7, 24, axis=0, **kind), n.bias(7, 1)
        e = n.emit(op.add(n.emit(op.matmul(a[0], n.emit(op.permute_dims(we)))), be))
        e, v = n.quantize((e, a[1] @ wv.T + bv), STEP, 100)
        n.bb.emit_func_output(n.bb.emit_output(e))
    return n.bb.get(), value, v


def run(mod, x, target="llvm"):
    return computing(mod, target)(x)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_networks_are_as_near_as_a_step(activations, batch):
    mod, x, expected = residual_network(activations, batch)
    found = run(mod, x)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= 1.5 * STEP
    assert (np.abs(found - expected) > 0.5 * STEP).mean() < 0.2  # sums that fall on the border of a step


@pytest.mark.parametrize(("dtype", "per_channel"), [("uint8", True), ("int8", False)])
def test_weights_of_other_kinds(dtype, per_channel):
    mod, x, expected = residual_network("uint8", 1, dtype, per_channel)
    assert np.abs(run(mod, x) - expected).max() <= 1.5 * STEP


def test_targets_without_dot_products_compute_in_floats():
    mod, x, expected = residual_network("int8", 1)
    assert FoldQuantization()(mod)["main"] is mod["main"]
    assert np.abs(run(mod, x, "llvm -mcpu=x86-64-v3") - expected).max() <= 1.5 * STEP


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_and_what_lies_between_are_integers(activations):
    mod, _, _ = residual_network(activations, 1)
    new = FoldQuantization(dot_forms=FORMS)(mod)
    well_formed(new)
    values = {}
    for b in all_bindings(new["main"]):
        if isinstance(b.value, ir.Call):
            values.setdefault(b.value.op.name.removeprefix("relax."), []).append(b)
    convolutions = values["nn.conv2d"]
    assert len(convolutions) == 5
    for b in [*convolutions, *values["matmul"]]:
        assert [a.ty.dtype for a in b.value.args] == ["uint8", "int8"] and b.var.ty.dtype == "int32"
    assert convolutions[0].value.attrs.get("pad_value") == 131
    assert [b.var.ty.dtype for b in values["nn.max_pool2d"]] == ["uint8"]
    assert not any(b.var.ty.dtype == "int8" for bs in values.values() for b in bs)
