"""FoldBatchNorm: what it folds, and what it must leave."""

import numpy as np
import pytest

from tests.relax_models import model
from weft import ir, relax
from weft.relax.transform import dead_code_elimination, fold_batch_norm


def network(use_twice=False, whole=False, axis=1):
    """A convolution with a batch normalisation after it; `whole` returns the statistics too."""
    rng = np.random.default_rng(0)
    params = [relax.constant(rng.random(4, np.float32) + 0.5) for _ in range(4)]

    def layers(x):
        c = relax.op.nn.conv2d(x, relax.constant(rng.random((4, 3, 3, 3), np.float32)), padding=1)
        normal = relax.op.nn.batch_norm(c, *params, axis=axis)
        first = normal if whole else relax.TupleGetItem(normal, 0)
        return relax.op.add(first, c) if use_twice else first

    return model(layers, ("n", 3, 8, 8))


def operators(mod):
    return [c.op.name.removeprefix("relax.") for c in ir.walk(mod["main"]) if isinstance(c, relax.Call)]


@pytest.mark.parametrize(("use_twice", "scaled"), [(False, []), (True, ["add", "multiply"])])
def test_the_weights_take_the_scale_where_the_convolution_is_used_once(use_twice, scaled):
    mod = dead_code_elimination()(fold_batch_norm()(network(use_twice)))
    assert sorted(operators(mod)) == ["add", *scaled, "nn.conv2d"]


def test_statistics_that_are_returned_stay():
    mod = network(whole=True)
    assert fold_batch_norm()(mod)["main"] is mod["main"]


@pytest.mark.parametrize("use_twice", [False, True])
def test_a_second_run_changes_nothing(use_twice):
    once = fold_batch_norm()(network(use_twice))
    assert fold_batch_norm()(once)["main"] is once["main"]
