"""Weights of layers as rows of blocks, and transposed for good: programs compute what they did."""

import numpy as np
import pytest

import weft
from weft import relay
from weft.relay import data_dep_optimization as ddo
from weft.runtime import tensor

RNG = np.random.default_rng(5)


def value(func: relay.Function, x: np.ndarray, params: dict) -> np.ndarray:
    mod = weft.IRModule.from_expr(func)
    given = {p.name_hint: params[p.name_hint] for p in mod["main"].params[1:]}
    return relay.create_executor("graph", mod=mod).evaluate()(x, **given).numpy()


@pytest.mark.parametrize("block", [(4, 1), (1, 1), (2, 4), (3, 1)])
@pytest.mark.parametrize("shared", [False, True])
def test_layers(block: tuple[int, int], shared: bool) -> None:
    x, first, second = (relay.var(n, shape=s) for n, s in (("x", (2, 8)), ("first", (8, 20)), ("second", (6, 20))))
    hidden = relay.nn.relu(relay.nn.dense(x, relay.transpose(first)))
    out = relay.nn.dense(hidden, second) + (relay.sum(first) if shared else relay.const(1.0))
    kept = np.kron(RNG.permutation(40).reshape(2, 20) % 5 == 0, np.ones((4, 1)))
    params = {
        "first": tensor((RNG.normal(size=(8, 20)) * kept).astype("float32")),
        "second": tensor(np.ones((6, 20), "f")),
    }
    data = RNG.normal(size=(2, 8)).astype("float32")
    func = relay.Function([x, first, second], out)
    expected = value(func, data, params)
    func, params = ddo.simplify_fc_transpose.convert(func, params)
    assert set(params) == {"first.T", "second"} | ({"first"} if shared else set())
    func, params = ddo.bsr_dense.convert(func, params, block, 0.5)
    stored = {"first.T"} if block[0] == 3 else {"first.T.data", "first.T.indices", "first.T.indptr"}
    assert set(params) == stored | {"second"} | ({"first"} if shared else set())
    np.testing.assert_allclose(value(func, data, params), expected, rtol=1e-5, atol=1e-5)
