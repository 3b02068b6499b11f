"""Draws are a function of their generator, the same in every executor, and distributed as they say."""

import numpy as np
import pytest

import weft
from weft import error, relay

R = relay.random


def run(expr, kind="debug"):
    out = relay.create_executor(kind, mod=weft.IRModule.from_expr(relay.Function([], expr))).evaluate()()
    return [o.numpy() for o in out]


def test_words_are_those_of_threefry():
    words = np.zeros(10, np.uint64)
    words[8] = 1
    published = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
    for kind in ("debug", "vm"):
        key, drawn = run(R.threefry_generate(relay.const(words, "uint64"), (2, 2)), kind)
        assert drawn.reshape(-1).tolist() == published
        assert key[7] == 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (7,), (3, 1000)])
def test_uniform_and_normal(shape, dtype):
    key = R.threefry_key(3)
    for make, mean, deviation in (
        (lambda: R.uniform(key, shape, dtype, -1.0, 3.0), 1, 4 / 12**0.5),
        (lambda: R.normal(key, shape, dtype, 1.0, 2.0), 1, 2),
    ):
        (new, one), (_, two) = run(make()), run(make(), "vm")
        assert one.shape == shape and one.dtype == dtype and not np.array_equal(new, run(R.threefry_split(key))[0])
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)
        if one.size > 1000:
            assert abs(one.mean() - mean) < 0.1 and abs(one.std() - deviation) < 0.1


def test_bounds_are_broadcast():
    low = relay.const(np.array([[0.0], [10.0]], "float32"))
    _, drawn = run(R.uniform(R.threefry_key(1), (2, 5), "float32", low, low + relay.const(1.0)))
    assert (np.floor(drawn) == [[0], [10]]).all()


def test_generators_that_were_split_draw_other_numbers():
    left, right = relay.TupleWrapper(R.threefry_split(R.threefry_key(1)), 2)  # the left one goes on as the key does
    made = [relay.TupleGetItem(R.threefry_generate(k, (16,)), 1) for k in (left, right)]
    for kind in ("debug", "vm"):
        a, b = run(relay.Tuple(made), kind)
        assert not (a == b).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: R.threefry_generate(relay.const(np.zeros(9, "uint64")), (4,)),
        lambda: R.threefry_split(relay.const(np.zeros(10, "int64"))),
        lambda: R.uniform(R.threefry_key(1), (4,), "float16"),
    ],
)
def test_mistakes(make):
    with pytest.raises(error.WeftError):
        relay.infer_type(make())
