"""Adjoints are the same without the zeros and ones with which they begin."""

import numpy as np
import pytest

import weft
from weft import relay
from weft.relay import transform


@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
def test_gradients_stay(mode):
    x, y = relay.var("x", shape=(3, 4)), relay.var("y", shape=(4,))
    func = transform.gradient(relay.infer_type(relay.Function([x, y], x * y + x)), mode=mode)
    mod = weft.IRModule.from_expr(func)
    after = transform.LazyGradientInit()(mod)
    assert relay.transform.InferType()(after)["main"].checked_type == transform.InferType()(mod)["main"].checked_type
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 4), "float32"), rng.random(4, "float32")
    for m in (mod, after):
        out, (dx, dy) = relay.create_executor("debug", mod=m).evaluate()(a, b)
        np.testing.assert_allclose(out.numpy(), a * b + a, rtol=1e-6)
        np.testing.assert_allclose(dx.numpy(), np.broadcast_to(b + 1, (3, 4)), rtol=1e-6)
        np.testing.assert_allclose(dy.numpy(), a.sum(0), rtol=1e-6)


def test_only_what_has_the_shape_of_the_result_is_left_out():
    x = relay.var("x", shape=(3,))
    wide = x + relay.zeros((2, 3), "float32")
    after = transform.LazyGradientInit()(weft.IRModule.from_expr(relay.Function([x], wide)))
    assert "zeros" in str(after)
    gone = transform.LazyGradientInit()(weft.IRModule.from_expr(relay.Function([x], x * relay.ones_like(x))))
    assert "ones" not in str(gone)
