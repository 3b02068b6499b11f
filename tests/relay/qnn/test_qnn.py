"""Quantized operators, against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.qnn import op as qnn

RNG = np.random.default_rng(0)


def run(expr, *arrays, canonical=True):
    mod = relay.transform.InferType()(weft.IRModule.from_expr(relay.Function(relay.analysis.free_vars(expr), expr)))
    before = relay.create_executor("debug", mod).evaluate()(*arrays).numpy()
    mod = relay.qnn.transform.CanonicalizeOps()(mod)
    assert "qnn." not in str(mod)
    after = relay.create_executor("graph", mod).evaluate()(*arrays).numpy()
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)
    return after


def exact(q, in_scale, in_zero, out_scale, out_zero, rounding, dtype):
    info, out = np.iinfo(dtype), []
    for v, s in zip(q.flat, np.broadcast_to(in_scale, q.shape).flat, strict=True):
        real = (int(v) - in_zero) * Fraction(float(s)) / Fraction(float(out_scale))
        if rounding == "UPWARD":
            whole = (real + Fraction(1, 2)).__floor__()
        else:
            whole = int(abs(real) + Fraction(1, 2)) * (1 if real >= 0 else -1)
        out.append(min(max(whole + out_zero, info.min), info.max))
    return np.array(out, dtype).reshape(q.shape)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
@pytest.mark.parametrize("computed_in", ["int64", "float64"])
def test_requantize_is_exact_rounding(shape, rounding, computed_in):
    q = RNG.integers(-(2**20), 2**20, shape, "int32")
    scales, to = (np.float32(0.25), np.float32(0.5)) if computed_in == "int64" else (np.float32(0.3), np.float32(0.7))
    y = qnn.requantize(
        relay.var("q", shape=shape, dtype="int32"),
        relay.const(scales),
        relay.const(np.int32(3)),
        relay.const(to),
        relay.const(np.int32(-2)),
        axis=-1,
        rounding=rounding,
        compute_dtype=computed_in,
        out_dtype="int32",
    )
    np.testing.assert_array_equal(run(y, q), exact(q, scales, 3, to, -2, rounding, "int32"))


def test_requantize_by_channels_and_configuration():
    q = RNG.integers(-1000, 1000, (3, 4), "int32")
    scales = np.array([0.5, 1.0, 0.125], "float32")

    def made():
        return qnn.requantize(
            relay.var("q", shape=(3, 4), dtype="int32"),
            relay.const(scales),
            relay.const(np.int32(0)),
            relay.const(np.float32(2)),
            relay.const(np.int32(0)),
            axis=0,
            out_dtype="int8",
        )

    np.testing.assert_array_equal(run(made(), q), exact(q, scales[:, None], 0, 2, 0, "UPWARD", "int8"))
    with qnn.requantize_config(rounding="TONEAREST"):
        np.testing.assert_array_equal(run(made(), q), exact(q, scales[:, None], 0, 2, 0, "TONEAREST", "int8"))
    with pytest.raises(error.InvalidArgument, match="unknown rounding"), qnn.requantize_config(rounding="DOWN"):
        pass


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_quantize_and_back(dtype):
    x = np.linspace(-40, 90, 21, dtype="float32").reshape(7, 3)
    scale, zero = np.array([0.5, 0.25, 1], "float32"), np.array([3, 0, 7], "int32")
    q = run(qnn.quantize(relay.var("x", shape=(7, 3)), relay.const(scale), relay.const(zero), out_dtype=dtype), x)
    info = np.iinfo(dtype)
    np.testing.assert_array_equal(q, np.clip(np.round(x / scale + zero), info.min, info.max).astype(dtype))
    y = qnn.dequantize(relay.var("q", shape=(7, 3), dtype=dtype), relay.const(scale), relay.const(zero))
    np.testing.assert_allclose(run(y, q), (q.astype("float64") - zero) * scale, rtol=1e-6)


@pytest.mark.parametrize(("name", "meaning"), [("add", np.add), ("subtract", np.subtract), ("mul", np.multiply)])
def test_elementwise_operators_are_within_one_of_exact(name, meaning):
    a, b = (RNG.integers(0, 256, s, "uint8") for s in ((2, 5), (5,)))
    numbers = [np.float32(0.5), np.int32(120), np.float32(0.25), np.int32(7), np.float32(2), np.int32(100)]
    y = getattr(qnn, name)(
        *(relay.var(n, shape=x.shape, dtype="uint8") for n, x in (("a", a), ("b", b))), *map(relay.const, numbers)
    )
    sa, za, sb, zb, so, zo = map(float, numbers)
    real = meaning((a - za) * sa, (b - zb) * sb) / so + zo
    assert np.abs(run(y, a, b).astype("float64") - np.clip(real, 0, 255)).max() <= 1


@pytest.mark.parametrize(("a_zero", "b_zero"), [(0, 0), (5, -3)])
def test_products_are_those_of_integers(a_zero, b_zero):
    consts = [relay.const(np.int32(a_zero)), relay.const(np.int32(b_zero)), *[relay.const(np.float32(1))] * 2]
    a, w = RNG.integers(-128, 128, (3, 7), "int8"), RNG.integers(-128, 128, (4, 7), "int8")
    wide = (a.astype("int64") - a_zero, w.astype("int64") - b_zero)
    y = qnn.dense(relay.var("a", shape=a.shape, dtype="int8"), relay.var("w", shape=w.shape, dtype="int8"), *consts, 4)
    np.testing.assert_array_equal(run(y, a, w), wide[0] @ wide[1].T)
    x, k = RNG.integers(-128, 128, (1, 3, 6, 5), "int8"), RNG.integers(-128, 128, (2, 3, 3, 3), "int8")
    y = qnn.conv2d(
        relay.var("x", shape=x.shape, dtype="int8"),
        relay.var("k", shape=k.shape, dtype="int8"),
        *consts,
        kernel_size=(3, 3),
        channels=2,
        padding=(1, 1),
    )
    expected = weft.topi.testing.conv2d_nchw_python(x.astype("int64") - a_zero, k.astype("int64") - b_zero, 1, 1)
    np.testing.assert_array_equal(run(y, x, k), expected)


def test_concatenate_brings_operands_to_one_scale():
    a, b = (RNG.integers(-100, 100, (2, n), "int32") for n in (3, 1))
    scales = [relay.const(np.float32(s)) for s in (1, 2)]
    zeros = [relay.const(np.int32(z)) for z in (0, 4)]
    y = qnn.concatenate(
        [relay.var(n, shape=x.shape, dtype="int32") for n, x in (("a", a), ("b", b))],
        scales,
        zeros,
        scales[0],
        zeros[0],
        axis=1,
    )
    np.testing.assert_array_equal(run(y, a, b), np.concatenate([a, (b - 4) * 2], 1))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_fields_of_what_a_call_returns(scale):
    a = RNG.integers(-9, 9, 6, "int8")
    one, zero = relay.const(1.0), relay.const(0)
    halves = relay.split(relay.var("a", shape=(6,), dtype="int8"), 2)
    y = qnn.concatenate(halves, [one, relay.const(np.float32(scale))], [zero, zero], one, zero, axis=0)
    expected = a * np.repeat([1, int(scale)], 3)
    np.testing.assert_array_equal(run(y, a), expected)
    func = relay.Function(relay.analysis.free_vars(y), y)
    for kind in ("graph", "vm"):  # as it is written, too
        found = relay.create_executor(kind, weft.IRModule.from_expr(func)).evaluate()(a)
        np.testing.assert_array_equal(found.numpy(), expected)


def test_scales_must_be_constants_where_they_become_integers():
    y = qnn.requantize(
        relay.var("q", shape=(2,), dtype="int32"),
        relay.var("s", shape=()),
        relay.const(np.int32(0)),
        relay.const(np.float32(1)),
        relay.const(np.int32(0)),
    )
    mod = relay.transform.InferType()(weft.IRModule.from_expr(y))
    assert mod["main"].ret_type == relay.TensorType((2,), "int8")
    with pytest.raises(error.InvalidArgument, match="'input_scale' must be a constant"):
        relay.qnn.transform.CanonicalizeOps()(mod)
