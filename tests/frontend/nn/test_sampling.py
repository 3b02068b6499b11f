"""Tokens drawn in the program: by the distribution that was asked for, from any vocabulary, alike for like seeds."""

import numpy as np
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.frontend.nn.tracing import compiled, trace
from tests.refusals import refuses
from weft.frontend.nn import op
from weft.op import get_op_def

RNG = np.random.default_rng(11)
DRAWS = 20000


@pytest.fixture(scope="module")
def draw():
    """Draw tokens; parameters are for all rows, or one for each."""

    def model(logits, seed, position, heat, k, p, penalty, history):
        return op.sample_token(logits, op.uniform_at(seed, position), heat, k, p, penalty, history)

    column = {"heat": ["b", 1], "k": (["b", 1], "int64"), "p": ["b", 1], "penalty": ["b", 1]}
    places = {"seed": (["b", 1], "int64"), "position": (["b", 1], "int64")}
    mod = trace(model, logits=["b", "v"], **places, **column, history=(["b", "h"], "int64"))
    main = compiled(mod)["forward"]

    def call(logits, position, seed=3, heat=1.0, k=0, p=1.0, penalty=1.0, history=()):
        n = logits.shape[0]
        types = {"seed": "int64", "position": "int64", "heat": "float32", "k": "int64", "p": "float32"}
        given = {"seed": seed, "position": position, "heat": heat, "k": k, "p": p, "penalty": penalty}
        parts = [
            np.broadcast_to(np.asarray(v, types.get(name, "float32")).reshape(-1, 1), (n, 1)).copy()
            for name, v in given.items()
        ]
        seen = np.broadcast_to(np.asarray(history, "int64"), (n, np.shape(history)[-1])).copy()
        given = logits if isinstance(logits, weft.runtime.Tensor) else weft.runtime.tensor(logits)
        return main(given, *map(weft.runtime.tensor, [*parts, seen])).numpy()[:, 0]

    return call


def probabilities(logits, heat=1.0, k=0, p=1.0, penalty=1.0, history=()):
    x = logits.astype("float64")
    for token in set(history):
        x[token] *= 1 / penalty if x[token] > 0 else penalty
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))[: k or None]
    weights = {i: np.exp(x[i] / heat) for i in order}
    total, kept, held = sum(weights.values()), {}, 0.0
    for i in order:
        if held < p * total or not kept:
            kept[i] = weights[i]
        held += weights[i]
    return np.array([kept.get(i, 0.0) for i in range(len(x))]) / sum(kept.values())


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"heat": 0.6},
        {"k": 4},
        {"p": 0.7},
        {"k": 6, "p": 0.8, "heat": 1.4},
        {"penalty": 1.7, "history": (0, 5, 5, 3), "p": 0.95},
        {"k": 1},
        {"p": 0.0},
        {"k": 99, "p": 2.0},
    ],
)
def test_draws_have_the_distribution(draw, how):
    logits = RNG.normal(0, 1.5, 12).astype("float32")
    logits[7] = logits[2]  # the cut may fall between equal ones
    expected = probabilities(logits, **how) * DRAWS
    found = np.bincount(draw(np.tile(logits, (DRAWS, 1)), np.arange(DRAWS), **how), minlength=12)
    assert (found[expected == 0] == 0).all()
    some = expected > 0
    statistic = ((found - expected)[some] ** 2 / expected[some]).sum()
    assert statistic < some.sum() + 4 * np.sqrt(2 * some.sum())


def test_vocabularies_of_any_size(draw):
    for v, rounded in ((1, False), (2047, True), (151936, False), (40003, True)):
        logits = RNG.normal(0, 3, (6, v)).astype("float32")
        logits = logits.round(1) if rounded else logits
        logits[:, v // 2 :: 7] = -np.inf if v > 1 else 0
        k, p = np.array([0, 40, 0, 40, v, v // 2]), np.array([1, 1, 0.9, 0.95, 0.5, 1])
        found = draw(logits, np.arange(6), k=k, p=p, heat=0.8)
        u = get_op_def("uniform_at").reference(np.full((6, 1), 3), np.arange(6)[:, None])
        columns = [np.reshape(a, (6, 1)) for a in (np.full(6, np.float32(0.8)), k, p.astype("float32"))]
        np.testing.assert_array_equal(
            found, get_op_def("sample_token").reference(logits, u, *columns, dtype="int64")[:, 0]
        )


def test_numbers_are_those_of_threefry_and_lie_evenly(draw):
    first = get_op_def("uniform_at").reference(np.zeros((1, 1), "int64"), np.zeros((1, 1), "int64"))
    assert first == (0x09218EBDE6C85537 >> 12) / 2**52  # the generator's published answer for zeros
    logits = np.zeros((4096, 64), "float32")
    a = draw(logits, np.arange(4096), seed=5)
    assert (a[[9, 4095, 0]] == draw(logits[:3], [9, 4095, 0], seed=5)).all()
    b = draw(logits, np.arange(4096), seed=6)
    assert abs((a == b).mean() - 1 / 64) < 0.01 and abs((a[1:] == a[:-1]).mean() - 1 / 64) < 0.01


def test_logits_of_an_onnx_model(draw):
    weights = RNG.standard_normal((8, 33)).astype("float32")
    node, out = helper.make_node("MatMul", ["x", "w"], ["logits"]), {"logits": ("float32", ("b", 33))}
    session = weft.Session(onnx_models.model([node], {"x": ("float32", ("b", 8))}, out, {"w": weights}))
    x = RNG.standard_normal((5, 8)).astype("float32")
    found = draw(session.run({"x": x})[0], np.arange(5), heat=0)
    np.testing.assert_array_equal(found, (x @ weights).argmax(1))


def test_what_is_no_distribution(draw):
    logits = np.zeros((7, 5), "float32")
    logits[0, 3], logits[1], logits[2, 1] = np.nan, -np.inf, np.inf
    heat, p = np.array([1, 1, 1, -1, np.nan, 1, 0]), np.array([1, 1, 1, 1, 1, np.nan, 0.5])
    assert draw(logits, np.arange(7), heat=heat, p=p).tolist() == [-1] * 6 + [0]
    assert draw(np.zeros((0, 5), "float32"), np.arange(0)).shape == (0,)
    assert draw(np.array([[1e-9, 2e-9, 0]], "float32"), [0], heat=0).tolist() == [1]
    refuses(weft.error.WeftError, "history", draw, logits, np.arange(7), history=(5,))
    refuses(weft.error.WeftError, "tokens to choose from", draw, np.zeros((1, 0), "float32"), [0])


def test_wrong_arguments_are_refused():
    with pytest.raises(weft.error.WeftError, match="seeds and positions are int64"):
        trace(lambda s, q: op.uniform_at(s, q), s=(["n", 1], "int32"), q=(["n", 1], "int64"))
    refuses(weft.error.WeftError, "uniform", trace, lambda x, u: op.sample_token(x, u), x=[3, 4], u=[2, 1])
