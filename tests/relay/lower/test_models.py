"""Small networks, lowered and run: the kernels are those that Relax makes, and the results the interpreter's."""

import numpy as np
import pytest

from tests.relay.lower.machine import check, kernels, lowered
from weft import relay
from weft.relay import nn

rng = np.random.default_rng(10)


def floats(*shape):
    return (rng.standard_normal(shape) * 0.3).astype("float32")


def weights(*shape):
    return relay.const(floats(*shape))


def linear(x, n, m):
    return nn.bias_add(nn.dense(x, weights(m, n)), weights(m))


@pytest.mark.parametrize("rows", [4, None])
def test_mlp(rows):
    x = relay.var("x", shape=(relay.Any() if rows is None else rows, 20))
    func = relay.Function([x], nn.softmax(linear(nn.relu(linear(x, 20, 33)), 33, 10)))
    assert len(kernels(lowered(func))) == 3
    check(func, *[(floats(n, 20),) for n in ([4] if rows else [1, 7, 0])])


def test_convolutions():
    x = relay.var("x", shape=(relay.Any(), 3, 12, 12))
    y = nn.relu(
        nn.bias_add(nn.conv2d(x, weights(8, 3, 3, 3), padding=(1, 1), channels=8, kernel_size=(3, 3)), weights(8))
    )
    y = nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = nn.conv2d(y, weights(8, 8, 3, 3), padding=(1, 1), channels=8, kernel_size=(3, 3))
    y = nn.batch_flatten(nn.global_avg_pool2d(nn.relu(y)))
    check(relay.Function([x], linear(y, 8, 5)), (floats(2, 3, 12, 12),), (floats(1, 3, 12, 12),))


def lstm_cell(n, m):
    x, h, c = (relay.var(name, shape=(1, k)) for name, k in (("x", n), ("h", m), ("c", m)))
    gates = relay.split(linear(x, n, 4 * m) + linear(h, m, 4 * m), 4, axis=1)
    i, f, g, o = gates[0], gates[1], gates[2], gates[3]
    new = relay.sigmoid(f) * c + relay.sigmoid(i) * relay.tanh(g)
    return relay.Function([x, h, c], relay.Tuple([relay.sigmoid(o) * relay.tanh(new), new]))


def test_lstm_cell_is_two_products_and_two_element_wise_kernels():
    func = lstm_cell(12, 20)
    names = kernels(lowered(func))
    assert len(names) == 4 and sum("matmul_packed" in n for n in names) == 2
    check(func, (floats(1, 12), floats(1, 20), floats(1, 20)))


def attention(x, mask, n, heads):
    def split(y):
        return relay.transpose(relay.reshape(y, (-1, heads, n // heads)), (1, 0, 2))

    q, k, v = (split(linear(x, n, n)) for _ in range(3))
    scores = nn.batch_matmul(q, k) * relay.const(np.float32((n // heads) ** -0.5))
    if mask is not None:
        scores = scores + mask
    out = nn.batch_matmul(nn.softmax(scores, axis=-1), relay.transpose(v, (0, 2, 1)))
    merged = relay.reshape(relay.transpose(out, (1, 0, 2)), (-1, n))
    return nn.layer_norm(linear(merged, n, n) + x, weights(n), weights(n))


def test_attention_of_any_length():
    x = relay.var("x", shape=(relay.Any(), 24))
    func = relay.Function([x], attention(x, None, 24, 3))
    names = kernels(lowered(func))
    assert sum("matmul_packed" in n for n in names) == 4 and len(names) <= 12
    check(func, *[(floats(n, 24),) for n in (1, 5, 16)])


def test_a_mask_of_another_unknown_length():
    x, mask = relay.var("x", shape=(relay.Any(), 24)), relay.var("mask", shape=(1, 1, relay.Any()))
    func = relay.Function([x, mask], attention(x, mask, 24, 3))
    check(func, (floats(5, 24), floats(1, 1, 5)), (floats(5, 24), floats(1, 1, 1)), (floats(1, 24), floats(1, 1, 1)))


def test_embeddings_and_means():
    ids, table = relay.var("ids", shape=(2, relay.Any()), dtype="int32"), weights(11, 6)
    func = relay.Function([ids], relay.mean(relay.tanh(relay.take(table, ids, axis=0)), axis=1))
    check(func, *[(rng.integers(0, 11, (2, n)).astype("int32"),) for n in (1, 9)])
