"""Products of one operand become one product, with the same values; others stay as they are."""

import numpy as np
import pytest

from weft import IRModule, relay
from weft.relay.transform import CombineParallelBatchMatmul, CombineParallelConv2D, CombineParallelDense, InferType
from weft.relay.walk import subexpressions

nn = relay.nn


def param(name, *shape):
    return relay.var(name, shape=shape, dtype="float32")


def program(make, data, weights):
    x, ws = param("x", *data), [param(f"w{i}", *s) for i, s in enumerate(weights)]
    return InferType()(IRModule.from_expr(relay.Function([x, *ws], relay.Tuple([nn.relu(make(x, w)) for w in ws]))))


def count(mod, name):
    return sum(isinstance(e, relay.Call) and e.op.name == name for e in subexpressions(mod["main"].body))


def same(out, mod, shapes):
    """Compare what two modules compute of random arrays."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in shapes]
    results = [relay.create_executor("debug", mod=InferType()(m)).evaluate()(*args) for m in (out, mod)]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


IMAGES = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


@pytest.mark.parametrize(
    ("combine", "make", "op", "data", "weights", "left"),
    [
        (CombineParallelDense(2), nn.dense, "nn.dense", (3, 4), [(5, 4), (5, 4), (6, 4)], 1),
        (CombineParallelDense(), nn.dense, "nn.dense", (3, 4), [(5, 4), (5, 4)], 2),
        (CombineParallelDense(2, to_batch=False), nn.dense, "nn.dense", (3, 4), [(5, 4), (1, 4), (6, 4)], 1),
        (CombineParallelDense(2, to_batch=False), nn.dense, "nn.dense", (0, 4), [(5, 4), (1, 4)], 1),
        (CombineParallelDense(2), nn.dense, "nn.dense", (2, 3, 4), [(5, 4), (5, 4)], 2),
        (CombineParallelConv2D(2), nn.conv2d, "nn.conv2d", (1, 3, 6, 6), [(4, 3, 3, 3), (5, 3, 3, 3), (4, 3, 1, 1)], 2),
        (
            CombineParallelConv2D(2),
            lambda x, w: nn.conv2d(x, w, padding=1, **IMAGES),
            "nn.conv2d",
            (2, 5, 5, 3),
            [(3, 3, 3, 4), (3, 3, 3, 2)],
            1,
        ),
        (
            CombineParallelConv2D(2),
            lambda x, w: nn.conv2d(x, w, groups=3),
            "nn.conv2d",
            (1, 3, 6, 6),
            [(3, 1, 3, 3), (3, 1, 3, 3)],
            2,
        ),
        (CombineParallelBatchMatmul(2), nn.batch_matmul, "nn.batch_matmul", (2, 3, 4), [(2, 5, 4), (2, 1, 4)], 1),
    ],
)
def test_values_stay(combine, make, op, data, weights, left):
    mod = program(make, data, weights)
    out = combine(mod)
    assert count(out, op) == left and (left < len(weights) or out["main"] is mod["main"])
    same(out, mod, [data, *weights])


def test_what_depends_on_the_others_stays_behind_them():
    x, w = param("x", 4, 4), param("w", 4, 4)
    z = nn.dense(nn.dense(x, nn.relu(nn.dense(x, w))), w)
    mod = InferType()(IRModule.from_expr(relay.Function([x, w], z)))
    assert count(CombineParallelDense(2)(mod), "nn.dense") == 3


def test_products_behind_products():
    x, ws = param("x", 4, 4), [param(f"w{i}", 4, 4) for i in range(4)]
    y = nn.dense(x, ws[0]) + nn.dense(x, ws[1])
    mod = InferType()(IRModule.from_expr(relay.Function([x, *ws], nn.dense(y, ws[2]) + nn.dense(y, ws[3]))))
    assert count(CombineParallelDense(2)(mod), "nn.batch_matmul") == 2


FOLLOWING = {  # operands behind each of the two products: shapes, and whether they are joined
    "bias": (CombineParallelDense(2), (3, 4), [(5, 4), (5, 4)], [(5,), (5,)], True),
    "two dimensions": (CombineParallelDense(2), (3, 4), [(5, 4), (5, 4)], [(3, 5), (3, 5)], True),
    "scalars": (CombineParallelDense(2), (3, 4), [(5, 4), (5, 4)], [(), ()], True),
    "unlike": (CombineParallelDense(2), (3, 4), [(5, 4), (5, 4)], [(5,), (1,)], False),
    "three": (CombineParallelDense(2), (3, 4), [(5, 4), (5, 4)], [(2, 3, 5), (2, 3, 5)], False),
    "flat": (CombineParallelDense(2, to_batch=False), (3, 4), [(5, 4), (1, 4)], [(1,), (1,)], True),
    "flat scalars": (CombineParallelDense(2, to_batch=False), (3, 4), [(5, 4), (7, 4)], [(), ()], True),
    "flat and more": (CombineParallelDense(2, to_batch=False), (3, 4), [(5, 4), (7, 4)], [(2, 1, 5), (2, 1, 1)], True),
    "flat, rows": (CombineParallelDense(2, to_batch=False), (3, 4), [(5, 4), (7, 4)], [(3, 1), (1, 7)], False),
    "batch": (CombineParallelBatchMatmul(2), (2, 3, 4), [(2, 5, 4), (2, 6, 4)], [(5,), (6,)], True),
    "image": (CombineParallelConv2D(2), (1, 3, 6, 6), [(4, 3, 3, 3), (5, 3, 3, 3)], [(4, 1, 1), (5, 1, 1)], True),
    "image, columns": (CombineParallelConv2D(2), (1, 3, 6, 6), [(4, 3, 3, 3), (5, 3, 3, 3)], [(4,), (4,)], False),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_elementwise_operators_behind_all_products_are_joined(name):
    combine, data, weights, others, joined = FOLLOWING[name]
    make = {2: nn.dense, 3: nn.batch_matmul, 4: nn.conv2d}[len(data)]
    x, ws = param("x", *data), [param(f"w{i}", *s) for i, s in enumerate(weights)]
    bs = [param(f"b{i}", *s) for i, s in enumerate(others)]
    results = [nn.relu(relay.subtract(b, make(x, w))) for w, b in zip(ws, bs, strict=True)]
    mod = InferType()(IRModule.from_expr(relay.Function([x, *ws, *bs], relay.Tuple(results))))
    out = combine(mod)
    assert (count(out, "subtract"), count(out, "nn.relu")) == ((1, 1) if joined else (2, 2))
    same(out, mod, [data, *weights, *others])


def test_operands_that_need_another_of_the_results_are_not_joined():
    x, w, v = param("x", 4, 4), param("w", 4, 4), param("v", 4, 4)
    first = relay.add(nn.dense(x, w), v)
    second = relay.add(nn.dense(x, v), nn.softmax(first))
    mod = InferType()(IRModule.from_expr(relay.Function([x, w, v], second)))
    assert count(InferType()(CombineParallelDense(2)(mod)), "add") == 2


def test_batching_ops_joins_whatever_has_one_input():
    x = relay.var("x", shape=(4, 3))
    y = relay.Tuple([relay.nn.dense(x, relay.var(n, shape=(5, 3))) for n in "abc"])
    with relay.transform.build_config(opt_level=4):
        body = relay.transform.BatchingOps()(InferType()(IRModule.from_expr(y)))["main"].body
    names = [e.op.name for e in subexpressions(body) if isinstance(e, relay.Call)]
    assert names.count("nn.batch_matmul") == 1 and "nn.dense" not in names
