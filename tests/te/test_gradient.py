"""te.gradient against finite differences in float64, on odd and empty sizes."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import build, error, te, tir, topi


def dense(*shape, name="x"):
    return te.placeholder(shape, "float64", name)


def matmul():
    a, b, k = dense(3, 5), dense(5, 7, name="b"), te.reduce_axis((0, 5), "k")
    return te.compute((3, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k)), [a, b]


def conv():
    x, w = dense(1, 2, 7, 6), dense(3, 2, 3, 3, name="w")
    return topi.nn.conv2d(x, w, 2, 1, 1), [x, w]


def functions():
    x = dense(11)
    steps = (te.exp, te.tanh, te.sigmoid, te.sin, te.cos, te.erf, te.atan, te.sinh, te.log1p, te.rsqrt, te.sqrt)

    def element(i):
        near = 0.5 + te.sigmoid(x[i])  # in the domain of all of them
        value = near
        for f in steps:
            value = value + f(near)
        return value + te.power(near, 1.5) + te.abs(x[i]) / near + te.floor(x[i])

    return te.compute((11,), element), [x]


def diagonal():
    x = dense(4, 4)
    return te.compute((4,), lambda i: x[i, i] * x[3 - i, i] + x[te.min(i + 1, 3), 0]), [x]


def pool():
    x = dense(1, 2, 5, 7)
    return topi.nn.pool2d(x, [2, 3], [2, 1], [1, 1], [0, 1, 1, 0], "max"), [x]


def product():
    x, k = dense(3, 4), te.reduce_axis((0, 4), "k")
    prod = te.comm_reducer(lambda a, b: a * b, lambda t: tir.const(1, t), name="prod")
    return te.compute((3,), lambda i: prod(x[i, k] + 1.0, axis=k)), [x]


def softmax():
    x, w = dense(3, 5), dense(5, 5, name="w")
    return topi.nn.log_softmax(topi.nn.dense(topi.reshape(x, (3, 5)), w)), [x, w]


def parts():
    x, y = dense(2, 3), dense(2, 5, name="y")
    left, right = topi.split(topi.concatenate((x, y), 1), 2, 1)
    return topi.add(left, topi.multiply(right, right)), [x, y]


def masked():
    x, k = dense(6, 6), te.reduce_axis((0, 6), "k")
    return te.compute((6,), lambda i: te.sum(x[i, k] * x[k, i], axis=k, where=k.var > i, init=x[i, 0])), [x]


def empty():
    x = dense(0, 3)
    return topi.exp(x), [x]


GRAPHS = [matmul, conv, functions, diagonal, pool, product, softmax, parts, masked, empty]


def shape_of(t):
    return tuple(int(d) for d in t.shape)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_against_differences(graph):
    out, inputs = graph()
    head = te.placeholder(out.shape, "float64", "head")
    grads = te.gradient(out, inputs, head)
    rng = np.random.default_rng(0)
    values = [rng.uniform(-1, 1, shape_of(t)) for t in inputs]
    weights = rng.uniform(-1, 1, shape_of(out))
    found = [np.full(shape_of(t), np.nan) for t in inputs]
    build(te.create_prim_func([*inputs, head, *grads]))["main"](*values, weights, *found)
    forward, result = build(te.create_prim_func([*inputs, out]))["main"], np.empty(shape_of(out))

    def loss():
        forward(*values, result)
        return float((result * weights).sum())

    for value, grad in zip(values, found, strict=True):
        for index in np.ndindex(value.shape):
            at, ends = value[index], []
            for step in (1e-6, -1e-6):
                value[index] = at + step
                ends.append(loss())
            value[index] = at
            assert grad[index] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_jacobian_and_a_head_with_a_prefix():
    a, k = dense(2, 3), te.reduce_axis((0, 3), "k")
    out = te.compute((2,), lambda i: te.sum(a[i, k] * a[i, k], axis=k))
    (jacobian,) = te.gradient(out, a)
    head = te.placeholder((4, 2), "float64", "head")
    (rows,) = te.gradient(out, [a], head)
    x, h = np.random.default_rng(1).uniform(-1, 1, (2, 3)), np.random.default_rng(2).uniform(-1, 1, (4, 2))
    full, several = np.empty((2, 2, 3)), np.empty((4, 2, 3))
    build(te.create_prim_func([a, head, jacobian, rows]))["main"](x, h, full, several)
    expected = np.einsum("ij,ik->ijk", np.eye(2), 2 * x)
    np.testing.assert_allclose(full, expected)
    np.testing.assert_allclose(several, np.einsum("pi,ijk->pjk", h, expected))


def test_what_is_not_reached_has_no_gradient():
    a, b = dense(3), dense(4, name="b")
    for out in (te.compute((3,), lambda i: a[i] * 2), te.compute((3,), lambda i: te.floor(b[i]) + a[i])):
        (grad,) = te.gradient(out, b, te.placeholder((3,), "float64"))
        assert shape_of(grad) == (4,) and grad.op.name == "zeros"


def test_a_matrix_product_s_gradient_sums_over_one_axis():
    out, inputs = matmul()
    for grad in te.gradient(out, inputs, te.placeholder(out.shape, "float64")):
        assert len(grad.op.reduce_axis) == 1


def test_refusals():
    a = dense(3)
    with pytest.raises(error.UnsupportedForm, match="'copysign' has no derivative"):
        te.gradient(te.compute((3,), lambda i: te.copysign(a[i], a[i] * 2)), a)
    refuses(error.InvalidArgument, "head", te.gradient, te.compute((3,), lambda i: a[i]), a, dense(4))
    filled = te.extern((3,), [a], lambda ins, outs: tir.call_packed("f", ins[0], outs[0]), dtype="float64")
    refuses(error.UnsupportedForm, "no te.compute", te.gradient, filled, a)
