"""Quantised operators beside ONNX Runtime, and that all their forms reach kernels of bytes."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import weft
from tests import onnx_models
from weft import ir, tir
from weft.frontend.onnx import from_onnx
from weft.target import Target

pytestmark = pytest.mark.usefixtures("optimised")
RNG = np.random.default_rng(5)


def compare(proto, feeds, step=0.0):
    """Every output of Weft and of ONNX Runtime, equal but for `step`."""
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    for got, want in zip(weft.Session(proto).run(feeds), expected, strict=True):
        assert got.dtype == want.dtype.name
        assert np.abs(got.numpy().astype(np.float64) - want.astype(np.float64)).max() <= step


def uses_dots(proto):
    """Whether the kernels multiply groups of bytes by the machine's instructions for them."""
    target = Target("llvm")
    mod = weft.relax.get_pipeline("default", target)(from_onnx(proto))
    texts = [
        weft.target.get_source(weft.tir.schedule.default_schedule(f, target), target, "asm")
        for _, f in mod.items()
        if isinstance(f, tir.PrimFunc)
    ]
    return any(("vpdpbusd" if target.machine.adds_four_bytes else "vpmaddwd") in t for t in texts)


def has_dots():
    return any(f[0] == "uint8" for f in Target("llvm").dot_forms)


# Without an instruction for dot products ONNX Runtime adds two products in 16 bits, which saturate for greater weights.
GREATEST = 127 if Target("llvm").machine.adds_four_bytes else 63


def qlinear_conv(dtype, x_zero, w_zero=0):
    info = np.iinfo(dtype)
    weights = {
        "xs": np.float32(0.04),
        "xz": np.array(x_zero, dtype),
        "ws": RNG.uniform(0.005, 0.02, 24).astype(np.float32),
        "w": RNG.integers(-GREATEST, GREATEST + 1, (24, 5, 3, 3)).astype(np.int8),
        "wz": np.full(24, w_zero, np.int8),
        "ys": np.float32(0.3),
        "yz": np.array((info.min + info.max + 1) // 2, dtype),
        "b": RNG.integers(-900, 900, 24).astype(np.int32),
    }
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node("QLinearConv", inputs, ["y"], pads=[1, 1, 1, 1], strides=[1, 2])
    shape = ["n", 5, 9, 8]
    proto = onnx_models.model([node], {"x": (dtype, shape)}, {"y": (dtype, None)}, weights)
    return proto, {"x": RNG.integers(info.min, info.max + 1, (2, 5, 9, 8)).astype(dtype)}


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 131), ("int8", -128), ("int8", 3)])
def test_qlinear_conv(dtype, zero):
    proto, feeds = qlinear_conv(dtype, zero)
    compare(proto, feeds, 1)
    assert not has_dots() or uses_dots(proto)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_qlinear_matmul(dtype):
    info = np.iinfo(dtype)
    weights = {
        "as": np.float32(0.02),
        "az": np.array(info.min + 120, dtype),
        "bs": np.float32(0.01),
        "bz": np.int8(0),
        "b": RNG.integers(-GREATEST, GREATEST + 1, (33, 40)).astype(np.int8),
        "ys": np.float32(0.05),
        "yz": np.array(info.min + 128, dtype),
    }
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    proto = onnx_models.model([node], {"a": (dtype, ["n", 33])}, {"y": (dtype, None)}, weights)
    compare(proto, {"a": RNG.integers(info.min, info.max + 1, (7, 33)).astype(dtype)}, 1)
    assert not has_dots() or uses_dots(proto)


@pytest.mark.parametrize("b_zero", [0, 9])
@pytest.mark.parametrize("b_dtype", ["int8", "uint8"])
def test_dynamically_quantised_products(b_zero, b_dtype):
    info = np.iinfo(b_dtype)
    weights = {
        "b": RNG.integers(max(info.min, -GREATEST), min(info.max, GREATEST) + 1, (50, 37)).astype(b_dtype),
        "bz": np.array(b_zero, b_dtype),
        "bs": np.float32(0.01),
    }
    nodes = onnx_models.onnx_nodes("""
        q, s, z = DynamicQuantizeLinear(x); sums = MatMulInteger(q, b, z, bz); f = Cast <to = 1> (sums);
        unit = Mul(s, bs); y = Mul(f, unit)""")
    proto = onnx_models.model(
        nodes, {"x": ("float32", ["n", 50])}, {"y": ("float32", None), "sums": ("int32", None)}, weights
    )
    expected = {"x": RNG.standard_normal((6, 50)).astype(np.float32)}
    sums = onnxruntime.InferenceSession(proto.SerializeToString()).run(["sums"], expected)[0]
    np.testing.assert_array_equal(weft.Session(proto).run(["sums"], expected)[0].numpy(), sums)
    assert not has_dots() or uses_dots(proto)


@pytest.mark.parametrize("x_dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 77])
@pytest.mark.parametrize(
    ("group", "w_dtype", "outs"), [(1, "int8", 18), (1, "uint8", 18), (2, "uint8", 18), (2, "int8", 64)]
)
def test_conv_integer(x_dtype, zero, group, w_dtype, outs):
    """Zero points of each output channel, a batch, and channels in groups: sums of ones are made for each group."""
    x, w = (
        RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        for dtype, shape in ((x_dtype, (2, 6, 5, 7)), (w_dtype, (outs, 6 // group, 3, 2)))
    )
    wz = RNG.integers(0, 256, outs).astype(np.uint8) if w_dtype == "uint8" else np.zeros(outs, np.int8)
    weights = {"w": w, "xz": np.array(zero, x_dtype), **({"wz": wz} if w_dtype == "uint8" else {})}
    node = helper.make_node("ConvInteger", ["x", *weights], ["y"], group=group, pads=[1, 0, 0, 1])
    proto = onnx_models.model([node], {"x": (x_dtype, [2, 6, 5, 7])}, {"y": ("int32", None)}, weights)
    padded = np.pad(x.astype(np.int32) - zero, [(0, 0), (0, 0), (1, 0), (0, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), axis=(2, 3))
    windows = windows.reshape(2, group, 6 // group, *windows.shape[2:])
    kernels = (w.astype(np.int32) - wz.astype(np.int32)[:, None, None, None]).reshape(group, -1, *w.shape[1:])
    expected = np.einsum("ngchwij,gocij->ngohw", windows, kernels)
    found = weft.Session(proto).run({"x": x})[0].numpy()
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert not has_dots() or w_dtype == "uint8" or uses_dots(proto)


@pytest.mark.parametrize("shapes", [((3, 8), (8, 5)), ((2, 3, 8), (2, 8, 5)), ((8,), (8, 5)), ((3, 8), (8,))])
def test_an_integer_product_of_two_inputs(shapes):
    a, b = (RNG.integers(0, 256, s).astype(np.uint8) for s in shapes)
    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    zeros = {"az": np.uint8(7), "bz": np.uint8(130)}
    proto = onnx_models.model(
        [node], {k: ("uint8", list(v.shape)) for k, v in (("a", a), ("b", b))}, {"y": ("int32", None)}, zeros
    )
    found = weft.Session(proto).run({"a": a, "b": b})[0].numpy()
    np.testing.assert_array_equal(found, (a.astype(np.int32) - 7) @ (b.astype(np.int32) - 130))


def test_weights_of_qdq_models_stay_bytes():
    weights = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "w": RNG.integers(-GREATEST, GREATEST + 1, (40, 48)).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, 48).astype(np.float32),
        "wz": np.zeros(48, np.int8),
    }
    nodes = onnx_models.onnx_nodes("""
        q = QuantizeLinear(x, xs, xz); d = DequantizeLinear(q, xs, xz); dw = DequantizeLinear <axis = 1> (w, ws, wz);
        y = MatMul(d, dw)""")
    proto = onnx_models.model(nodes, {"x": ("float32", ["n", 40])}, {"y": ("float32", None)}, weights)
    compare(proto, {"x": RNG.standard_normal((5, 40)).astype(np.float32)}, 1e-4)
    if has_dots():
        mod = weft.relax.get_pipeline("default", Target("llvm"))(from_onnx(proto))
        large = [a for n in ir.walk(mod["main"]) if isinstance(n, ir.Call) for a in n.args if hasattr(a, "data")]
        assert not any(a.data.dtype == "float32" and np.prod(a.data.shape) > 48 for a in large)
