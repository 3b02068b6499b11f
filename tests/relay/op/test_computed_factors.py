"""Upsampling by factors that run time tells, and bits as another data type."""

import numpy as np
import pytest
from weft.topi.testing import resize2d_python

import weft as tvm
from weft import relay


@pytest.mark.parametrize("kind", ["debug", "vm"])
@pytest.mark.parametrize(
    ("layout", "method", "corners", "factors"),
    [
        ("NCHW", "nearest_neighbor", False, (3.0, 2.0)),
        ("NHWC", "bilinear", True, (1.5, 5.0)),
        ("NCHW", "nearest_neighbor", False, (0.0, 1.0)),
    ],
)
def test_upsampling_by_computed_factors(kind, layout, method, corners, factors):
    shape = (1, 3, 4, 6) if layout == "NCHW" else (1, 4, 6, 3)
    x, h = relay.var("x", shape=shape), relay.var("h", shape=(), dtype="float32")
    out = relay.nn.upsampling(x, h, factors[1], layout=layout, method=method, align_corners=corners)
    data = np.random.default_rng(0).normal(size=shape).astype("float32")
    mod = tvm.IRModule.from_expr(relay.Function([x, h], out))
    got = relay.create_executor(kind, mod=mod).evaluate()(data, np.float32(factors[0])).numpy()
    if factors[0] == 0:
        assert got.shape == (1, 3, 0, 6)
        return
    mode = "align_corners" if corners else "asymmetric"
    wanted = resize2d_python(data, factors, layout, "linear" if corners else method, mode)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_volumes_and_factors_that_are_constants():
    x, d = relay.var("x", shape=(1, 2, 2, 3, 2)), relay.var("d", shape=(), dtype="float32")
    data = np.arange(24, dtype="float32").reshape(1, 2, 2, 3, 2)
    mode = {"coordinate_transformation_mode": "asymmetric"}
    out = relay.nn.upsampling3d(x, d, relay.const(2.0), 1, **mode)
    got = relay.create_executor("debug").evaluate(relay.Function([x, d], out))(data, np.float32(3)).numpy()
    np.testing.assert_array_equal(got, data.repeat(3, 2).repeat(2, 3))
    known = relay.nn.upsampling3d(x, relay.const(3.0), 2, 1, **mode)
    assert known.op.name == "nn.upsampling3d"
    got = relay.create_executor("debug").evaluate(relay.Function([x], known))(data).numpy()
    np.testing.assert_array_equal(got, data.repeat(3, 2).repeat(2, 3))


def test_reinterpret():
    x = relay.var("x", shape=(3,))
    data = np.array([1.0, -0.0, np.nan], "float32")
    got = relay.create_executor("vm").evaluate(relay.Function([x], relay.reinterpret(x, "uint32")))(data).numpy()
    np.testing.assert_array_equal(got, data.view("uint32"))
    with pytest.raises(tvm.error.TypeInferenceError, match="different sizes"):
        relay.transform.InferTypeLocal(relay.reinterpret(x, "uint8"))


@pytest.mark.parametrize(
    "order", [("NHWC", "nearest_neighbor", "asymmetric"), (None, "NHWC", "nearest_neighbor", "asymmetric")]
)
def test_sizes_with_and_without_a_region(order):
    """TVM 0.8 has the layout where 0.9 has a region."""
    x = relay.var("x", shape=(1, 3, 4, 2))
    found = relay.image.resize2d(x, (6, 8), *order)
    named = relay.image.resize2d(
        x, (6, 8), layout="NHWC", method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
    )
    assert tvm.ir.structural_equal(found, named)
