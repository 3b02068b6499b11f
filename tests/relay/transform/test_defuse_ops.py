"""What was fused is the same program when it is taken apart again."""

import numpy as np

import weft
from weft import ir, relay


def test_fused_groups_come_apart():
    x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(4, 5))
    y = relay.squeeze(relay.exp(relay.nn.relu(relay.nn.dense(x, w)) + relay.const(1.0)))
    mod = relay.transform.InferType()(weft.IRModule.from_expr(relay.Function([x, w], relay.Tuple([y, relay.tanh(y)]))))
    fused = relay.transform.FuseOps(2)(mod)
    assert "Primitive" in str(fused)
    ir.assert_structural_equal(relay.transform.InferType()(relay.transform.DefuseOps()(fused)), mod)


def test_functions_that_lets_bind_are_found():
    mod = relay.parse("""#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32]) {
  let %f = fn (%p: Tensor[(2), float32], Primitive=1) { exp(negative(%p)) };
  let %y = %f(%x);
  add(%f(%y), %y)
}""")
    after = relay.transform.DefuseOps()(mod)
    x = np.array([0.5, -1.0], "float32")
    one, two = (relay.create_executor("debug", mod=m).evaluate()(x).numpy() for m in (mod, after))
    np.testing.assert_allclose(two, one)
    assert "%f(" not in str(after)
