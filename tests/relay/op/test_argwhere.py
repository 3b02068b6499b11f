"""Coordinates of what is not zero: how many there are is known at run time only."""

import numpy as np
import pytest

from weft import IRModule, relay


@pytest.mark.parametrize("kind", ["debug", "vm"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (0,), (3, 0)])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_argwhere(kind: str, shape: tuple[int, ...], dtype: str) -> None:
    x = relay.var("x", relay.TensorType(tuple(relay.Any() for _ in shape), dtype))
    mod = relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.argwhere(x))))
    ty = mod["main"].ret_type
    assert ty.dtype == "int32"
    assert len(ty.shape) == 2
    run = relay.create_executor(kind, mod).evaluate()
    rng = np.random.default_rng(len(shape))
    for density in (0.0, 0.4, 1.0):
        data = (rng.uniform(0.1, 1, shape) < density + 0.1 * density).astype(dtype)
        found = run(data).numpy()
        assert found.shape == np.argwhere(data).shape
        np.testing.assert_array_equal(found, np.argwhere(data))
