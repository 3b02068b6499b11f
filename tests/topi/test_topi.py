"""The public functions of ``topi``: names, parameter orders and broadcasting of ``tvm.topi``, run as native code."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.topi.running import check, evaluate
from weft import error, ir, te, topi

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 5)).astype("float32"), RNG.normal(size=(5,)).astype("float32")
IMAGE = RNG.normal(size=(2, 4, 6, 7)).astype("float32")

CASES = {
    "add a number": (lambda x: topi.add(x, 1), (X,), X + 1),
    "number minus tensor": (lambda x: topi.subtract(2.0, x), (X,), 2 - X),
    "operators": (lambda x, y: (x + y) * 2 - y / 4, (X, Y), (X + Y) * 2 - Y / 4),
    "compare": (lambda x, y: x < y, (X, Y), Y > X),
    "exp": (topi.exp, (X,), np.exp(X)),
    "cast": (lambda x: topi.cast(x, "int32"), (X,), X.astype("int32")),
    "identity": (topi.identity, (X,), X),
    "clip": (lambda x: topi.clip(x, -0.5, 0.5), (X,), X.clip(-0.5, 0.5)),
    "mod": (lambda x, y: topi.mod(x, y), (-7 * X, Y), np.fmod(-7 * X, Y)),
    "repeat": (lambda x: topi.repeat(x, 0, 1), (X,), X[:, :0]),
    "sum": (lambda x: topi.sum(x, axis=1, keepdims=True), (X,), X.sum(1, keepdims=True)),
    "argmax": (lambda x: topi.argmax(x, axis=1), (X,), X.argmax(1).astype("int32")),
    "topk of all": (lambda x: topi.topk(x, 0, ret_type="values"), (X,), -np.sort(-X)),
    "slice to the ends": (lambda x: topi.strided_slice(x, [0, -1], [None, None], [1, -1]), (X,), X[:, ::-1]),
    "reshape": (lambda x: topi.reshape(x, (5, 3)), (X,), X.reshape(5, 3)),
    "expand": (lambda x: topi.expand_dims(x, axis=1, num_newaxis=2), (X,), X[:, None, None]),
    "squeeze": (lambda x: topi.squeeze(x), (X[:, None],), X),
    "concatenate": (lambda x, y: topi.concatenate((x, y), axis=1), (X, X), np.concatenate((X, X), 1)),
    "split": (lambda x: topi.split(x, [2], axis=1), (X,), np.split(X, [2], 1)),
    "transpose": (lambda x: topi.transpose(x, (1, 0)), (X,), X.T),
    "broadcast": (lambda y: topi.broadcast_to(y, (2, 5)), (Y,), np.broadcast_to(Y, (2, 5))),
    "full": (lambda: topi.full((2, 3), "float32", 7), (), np.full((2, 3), 7, "float32")),
    "arange": (lambda: topi.arange(5, dtype="int32"), (), np.arange(5, dtype="int32")),
    "strided slice": (lambda x: topi.strided_slice(x, [0, 4], [2, 0], [1, -2]), (X,), X[0:2, 4:0:-2]),
    "slice by size": (lambda x: topi.strided_slice(x, [1, 1], [-1, 2], slice_mode="size"), (X,), X[1:, 1:3]),
    "take": (lambda x, i: topi.take(x, i, axis=1), (X, np.array([4, 0])), X[:, [4, 0]]),
    "take flat": (lambda x, i: topi.take(x, i), (X, np.array([14, 3])), X.reshape(-1)[[14, 3]]),
    "take of a batch": (
        lambda x, i: topi.take(x, i, axis=1, batch_dims=1),
        (X, np.array([[4], [0], [2]])),
        np.take_along_axis(X, np.array([[4], [0], [2]]), 1),
    ),
    "gather": (lambda x, i: topi.gather(x, 1, i), (X, np.array([[0], [1], [2]])), X[[0, 1, 2], [0, 1, 2]][:, None]),
    "matmul": (lambda x, y: topi.matmul(x, y, False, True), (X, X), X @ X.T),
    "einsum": (lambda x, y: topi.einsum("ij,j->i", x, y), (X, Y), X @ Y),
    "trilu": (lambda x: topi.trilu(x, 1, True), (X,), np.triu(X, 1)),
    "cumsum": (lambda x: topi.cumsum(x, 1), (X,), X.cumsum(1)),
    "cumsum of planes": (lambda x: topi.cumsum(x, 1), (IMAGE,), IMAGE.cumsum(1)),
    "topk": (lambda x: topi.topk(x, 2, 1, "values", False), (X,), -np.sort(-X, 1)[:, :2]),
    "argsort": (lambda x: topi.argsort(x, axis=1, dtype="int32"), (X,), X.argsort(1).astype("int32")),
    "softmax": (topi.nn.softmax, (X,), np.exp(X) / np.exp(X).sum(1, keepdims=True)),
    "relu": (topi.nn.relu, (X,), np.maximum(X, 0)),
    "dense": (lambda x, w: topi.nn.dense(x, w), (X, X), X @ X.T),
    "bias add": (lambda x, y: topi.nn.bias_add(x, y, axis=-1), (X, Y), X + Y),
    "flatten": (topi.nn.flatten, (IMAGE,), IMAGE.reshape(2, -1)),
    "global pool": (lambda x: topi.nn.global_pool(x, "avg"), (IMAGE,), IMAGE.mean((2, 3), keepdims=True)),
    "pad": (lambda x: topi.nn.pad(x, (1, 0), (0, 2), 5), (X,), np.pad(X, ((1, 0), (0, 2)), constant_values=5)),
    "upsampling": (lambda x: topi.nn.upsampling(x, 2, 2), (IMAGE,), IMAGE.repeat(2, 2).repeat(2, 3)),
    "batch matmul": (lambda x, y: topi.nn.batch_matmul(x, y), (IMAGE[0], IMAGE[1]), IMAGE[0] @ IMAGE[1].swapaxes(1, 2)),
    "max pool": (
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"),
        (IMAGE,),
        IMAGE[:, :, :, :6].reshape(2, 4, 3, 2, 3, 2).max((3, 5)),
    ),
    "resize": (
        lambda x: topi.image.resize2d(x, None, (12, 14), "NCHW", "nearest_neighbor", "asymmetric", "floor"),
        (IMAGE,),
        IMAGE.repeat(2, 2).repeat(2, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    check(*CASES[name])


def test_padding_keeps_the_type_of_dimensions() -> None:
    padded = topi.nn.pad(te.placeholder((3, te.var("n", "int32")), name="x"), (1, 0), (0, te.var("k", "int32")))
    assert {str(d.dtype) for d in padded.shape} == {"int32"} and "int64" not in str(padded.op.body)


def test_same_padding_keeps_the_size() -> None:
    w = RNG.normal(size=(3, 4, 3, 3)).astype("float32")
    found = evaluate(lambda x, k: topi.nn.conv2d(x, k, 1, "SAME", 1), IMAGE, w)
    assert found.shape == (2, 3, 6, 7)
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_allclose(found[0, 1, 2, 3], (padded[0, :, 2:5, 3:6] * w[1]).sum(), rtol=1e-4)


def test_depthwise_convolution() -> None:
    w = RNG.normal(size=(4, 2, 3, 3)).astype("float32")
    found = evaluate(lambda x, k: topi.nn.depthwise_conv2d_nchw(x, k, 1, 0, 1), IMAGE, w)
    np.testing.assert_allclose(found[1, 5, 1, 2], (IMAGE[1, 2, 1:4, 2:5] * w[2, 1]).sum(), rtol=1e-4)


def test_scalars_stay_scalars() -> None:
    assert isinstance(topi.add(2, 3), ir.IntImm)
    assert topi.add(2, 3).value == 5


def test_a_shape_of_other_elements_is_an_error() -> None:
    refuses(error.ShapeMismatch, "another number of elements", topi.reshape, te.placeholder((2, 3)), (5,))


def test_unknown_padding_is_an_error() -> None:
    x = te.placeholder((1, 3, 8, 8), name="x")
    refuses(error.InvalidArgument, "padding", topi.nn.conv2d, x, te.placeholder((2, 3, 3, 3)), 1, "SAMEISH", 1)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk,kl->il", [(5, 6), (6, 7), (7, 4)]),
        ("bi,ikj,bj->bk", [(3, 4), (4, 5, 6), (3, 6)]),
        ("a,b,c,a->bc", [(2,), (3,), (4,), (2,)]),
        ("ij,ij,ji", [(3, 4), (3, 4), (4, 3)]),
        ("i,j,k->", [(2,), (0,), (3,)]),
        ("...i,...ij,...j->...", [(2, 3), (1, 3, 4), (2, 4)]),
        ("ii,ij,jk,km->im", [(3, 3), (3, 5), (5, 2), (2, 9)]),
        ("bij,bjk,kk,bl->bil", [(1, 3, 4), (5, 4, 6), (6, 6), (5, 2)]),
    ],
)
def test_einsum_of_many_operands(subscripts, shapes):
    rng = np.random.default_rng(len(shapes))
    arrays = [rng.standard_normal(s, np.float32) for s in shapes]
    found = evaluate(lambda *t: topi.einsum(subscripts, *t), *arrays)
    wanted = np.einsum(subscripts, *[a.astype(np.float64) for a in arrays])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_einsum_of_many_operands_takes_the_products_that_are_few():
    """A chain of 500 x 500 matrices takes 3.75e8 products two by two, and 6.25e10 all at once."""
    arrays = [np.full((500, 500), 1 / 512, np.float32) for _ in range(3)]
    np.testing.assert_allclose(
        evaluate(lambda *t: topi.einsum("ij,jk,kl->il", *t), *arrays), 500**2 / 512**3, rtol=1e-5
    )
