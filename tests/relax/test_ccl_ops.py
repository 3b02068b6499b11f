"""Collective operators: their types, and what one worker does."""

import numpy as np
import pytest

from tests.relax_models import model
from weft import error, relax, tir
from weft.relax.op import ccl

X = np.arange(12, dtype="float32").reshape(4, 3)


def infer(call):
    return relax.BlockBuilder().normalize(call).ty


def test_types():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float16"))
    assert infer(ccl.allreduce(x)) is x.ty and infer(ccl.broadcast_from_worker0(x)) is x.ty
    assert str(infer(ccl.allgather(x, 3)).shape[0]) == str(n * 3)
    assert [int(d) for d in infer(ccl.scatter_from_worker0(x, 2, axis=1)).shape[1:]] == [2]
    assert infer(ccl.allgather(relax.Var("x", relax.TensorType(None, "int8", 3)), 2)).ndim == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: ccl.allreduce(x, "mean"),
        lambda x: ccl.allgather(x, 0),
        lambda x: ccl.scatter_from_worker0(x, 3),
        lambda x: ccl.scatter_from_worker0(x, 2, axis=5),
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises((error.InvalidArgument, error.ShapeMismatch)):
        infer(wrong(relax.Var("x", relax.TensorType((4, 3), "float32"))))


def run(fn, legalize):
    mod = model(fn, (4, 3))
    mod = relax.transform.LegalizeOps()(mod) if legalize else mod
    return relax.VirtualMachine(relax.build(mod))["main"](X).numpy()


@pytest.mark.parametrize("legalize", [False, True])
def test_one_worker_has_all(legalize):
    whole = run(lambda x: ccl.broadcast_from_worker0(ccl.allgather(ccl.allreduce(x, "max"), 1)), legalize)
    np.testing.assert_array_equal(whole, X)
    np.testing.assert_array_equal(run(lambda x: ccl.scatter_from_worker0(x, 1, axis=1), legalize), X)


def test_several_workers_are_refused():
    with pytest.raises(error.WeftError, match="there is one worker"):
        run(lambda x: ccl.allgather(x, 2), False)
