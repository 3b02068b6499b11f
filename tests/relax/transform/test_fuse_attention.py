"""Attention as exporters write it becomes one operator, with the same results."""

import itertools

import numpy as np
import pytest

import weft
from tests.relax_models import computing, written
from weft import relax
from weft.relax.analysis import well_formed
from weft.relax.interpreter import evaluate
from weft.relax.rewriter import all_bindings
from weft.relax.transform import FuseAttention, dead_code_elimination


def operators(mod):
    fused = dead_code_elimination()(FuseAttention()(mod))
    well_formed(fused)
    return [b.value.op.name.removeprefix("relax.") for b in all_bindings(fused["main"]) if hasattr(b.value, "op")]


def same(mod, *shapes):
    """The compiled program's result is what its operators mean."""
    rng = np.random.default_rng(0)
    args = [
        rng.random(s) < 0.7 if kind == "bool" else rng.standard_normal(s).astype("float32") * 2 for s, kind in shapes
    ]
    np.testing.assert_allclose(computing(mod)(*args), *evaluate(mod, *args), rtol=1e-4, atol=1e-5)


F32 = "float32"
BERT = """
q4 = R.permute_dims(R.reshape(q, (b, n, 3, 16)), axes=[0, 2, 1, 3])
kt = R.permute_dims(R.reshape(k, (b, n, 3, 16)), axes=[0, 2, 3, 1])
v4 = R.permute_dims(R.reshape(v, (b, n, 3, 16)), axes=[0, 2, 1, 3])
s = R.add(R.divide(R.matmul(q4, kt), R.const(4.0, "float32")), mask)
o = R.matmul(R.nn.softmax(s, axis=-1), v4)
out = R.reshape(R.permute_dims(o, axes=[0, 2, 1, 3]), (b, n, 48))
"""
ROWS = ", ".join(f"{x}: (b, n, 48)" for x in "qkv")


@pytest.mark.parametrize("n", [0, 1, 3, 16, 17, 40])
def test_rows_of_heads_with_a_mask(n):
    mod = written(ROWS + ", mask: (b, 1, 1, n)", BERT)
    assert operators(mod) == ["nn.attention_heads", "reshape"]
    same(mod, *[((2, n, 48), F32)] * 3, ((2, 1, 1, n), F32))


def test_without_a_mask_it_is_what_float64_says():
    body = BERT.replace("R.add(", "(").replace(", mask)", ")")
    mod = written(ROWS, body)
    assert operators(mod) == ["nn.attention_heads", "reshape"]
    same(mod, *[((2, 21, 48), F32)] * 3)


JOINT = """
p = R.split(x, 3, axis=2)
q4 = R.permute_dims(R.reshape(p[0], (1, n, 2, 8)), axes=[0, 2, 1, 3])
k4 = R.permute_dims(R.reshape(p[1], (1, n, 2, 8)), axes=[0, 2, 1, 3])
v4 = R.permute_dims(R.reshape(p[2], (1, n, 2, 8)), axes=[0, 2, 1, 3])
k5 = R.concat((past, k4), axis=2)
kt = R.permute_dims(k5, axes=[0, 1, 3, 2])
s = R.multiply(R.matmul(R.multiply(q4, R.const(0.5, "float32")), kt), R.const(0.25, "float32"))
w = R.nn.softmax(R.add(mask, s), axis=3)
o = R.matmul(w, R.concat((past, v4), axis=2))
out = R.permute_dims(o, axes=[0, 2, 1, 3])
"""


@pytest.mark.parametrize(("n", "past"), [(1, 0), (1, 30), (5, 0), (19, 45)])
def test_one_product_of_three_and_a_past(n, past):
    mod = written("x: (1, n, 48), past: (1, 2, m, 8), mask: (n, m + n)", JOINT)
    names = operators(mod)
    assert names.count("nn.attention_past") == 1 and "matmul" not in names and "nn.softmax" not in names
    same(mod, ((1, n, 48), F32), ((1, 2, past, 8), F32), ((n, n + past), F32))


@pytest.mark.parametrize(
    "masked",
    [
        'R.where(keep, s, R.const(-3.4e38, "float32"))',
        'R.where(keep, R.const(-3.4e38, "float32"), s)',
        'R.where(keep, s, R.const(-5.0, "float32"))',
        'R.where(keep, R.const(-5.0, "float32"), s)',
        'R.add(R.where(keep, s, R.const(-3.4e38, "float32")), more)',
        "R.add(R.add(s, more), more)",
    ],
)
def test_masks(masked):
    body = f"""
s = R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2]))
t = {masked}
out = R.matmul(R.nn.softmax(t, axis=-1), v)
"""
    params = "q: (2, 2, 9, 16), k: (2, 2, 20, 16), v: (2, 2, 20, 8), keep: (9, 20) bool, more: (2, 1, 9, 20)"
    mod = written(params, body)
    names = operators(mod)
    assert "nn.attention_heads" in names and "matmul" not in names
    shapes = [(2, 2, 9, 16), (2, 2, 20, 16), (2, 2, 20, 8)]
    same(mod, *[(s, F32) for s in shapes], ((9, 20), "bool"), ((2, 1, 9, 20), F32))


@pytest.mark.parametrize(
    "repeated",
    [
        "R.repeat({0}, 3, axis=1)",
        "R.reshape(R.broadcast_to(R.expand_dims({0}, axis=[2]), (1, 2, 3, 12, 16)), (1, 6, 12, 16))",
    ],
)
def test_shared_heads(repeated):
    body = f"""
k6 = {repeated.format("k")}
v6 = {repeated.format("v")}
s = R.matmul(q, R.permute_dims(k6, axes=[0, 1, 3, 2]))
out = R.matmul(R.nn.softmax(s, axis=-1), v6)
"""
    mod = written("q: (1, 6, 18, 16), k: (1, 2, 12, 16), v: (1, 2, 12, 16)", body)
    assert operators(mod) == ["nn.attention_heads", "permute_dims"]
    same(mod, ((1, 6, 18, 16), F32), ((1, 2, 12, 16), F32), ((1, 2, 12, 16), F32))


def test_parts_first():
    body = """
parts = R.permute_dims(R.reshape(x, (2, n, 3, 4, 8)), axes=[2, 0, 3, 1, 4])
q = R.take(parts, R.const(0, "int64"), axis=0)
k = R.take(parts, R.const(1, "int64"), axis=0)
v = R.take(parts, R.const(2, "int64"), axis=0)
s = R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2]))
o = R.matmul(R.nn.softmax(s, axis=-1), v)
out = R.reshape(R.permute_dims(o, axes=[0, 2, 1, 3]), (2, n, 32))
"""
    mod = written("x: (2, n, 96)", body)
    assert operators(mod) == ["nn.attention_heads", "reshape"]
    same(mod, ((2, 19, 96), F32))


def test_without_a_dimension_for_heads():
    body = """
s = R.add(R.matmul(q, R.permute_dims(k, axes=[0, 2, 1])), bias)
out = R.matmul(R.nn.softmax(s, axis=2), v)
"""
    mod = written("q: (6, 10, 16), k: (6, 33, 16), v: (6, 33, 24), bias: (6, 10, 33)", body)
    assert "nn.attention_heads" in operators(mod)
    same(mod, ((6, 10, 16), F32), ((6, 33, 16), F32), ((6, 33, 24), F32), ((6, 10, 33), F32))


@pytest.mark.parametrize(
    "body",
    [
        # the weights are used twice
        "w = R.nn.softmax(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), axis=-1)\n"
        "out = R.add(R.matmul(w, v), R.sum(w, axis=[-1], keepdims=True))",
        # another axis
        "w = R.nn.softmax(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), axis=2)\nout = R.matmul(w, v)",
        # a mask that is scaled
        "s = R.add(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), m)\n"
        'w = R.nn.softmax(R.multiply(s, R.const(2.0, "float32")), axis=-1)\nout = R.matmul(w, v)',
        # a mask that makes more of the scores
        "s = R.add(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), wide)\n"
        "w = R.nn.softmax(s, axis=-1)\nout = R.matmul(w, v)",
        # keys that are not transposed
        "w = R.nn.softmax(R.matmul(q, k), axis=-1)\nout = R.matmul(w, v)",
    ],
)
def test_left_alone(body):
    four = "(1, 2, 5, 5)"
    mod = written(f"q: {four}, k: {four}, v: {four}, m: {four}, wide: (3, 2, 5, 5)", body)
    assert FuseAttention()(mod)["main"] is mod["main"]


def test_large_scores_and_rows_without_keys():
    """Scores of thousands; a row that is masked by minus infinity alone has no number, as everywhere else."""
    body = """
s = R.add(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), mask)
out = R.matmul(R.nn.softmax(s, axis=-1), v)
"""
    four = "(1, 2, 20, 16)"
    mod = written(f"q: {four}, k: {four}, v: {four}, mask: (20, 20)", body)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 20, 16)).astype("float32") for _ in range(3))
    mask = np.where(np.tri(20, dtype=bool), 0, -np.inf).astype("float32")
    mask[3] = -np.inf
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())
    got = vm["main"](*map(weft.runtime.tensor, (q * 40, k * 40, v, mask))).numpy()
    s = (q.astype("float64") * 40) @ (k.astype("float64") * 40).swapaxes(2, 3) + mask
    with np.errstate(invalid="ignore"):
        w = np.exp(s - s.max(-1, keepdims=True))
    expected = w / w.sum(-1, keepdims=True) @ v
    assert np.isnan(got[:, :, 3]).all()
    rest = [i for i in range(20) if i != 3]
    np.testing.assert_allclose(got[:, :, rest], expected[:, :, rest], rtol=2e-3, atol=2e-3)


GUARDED = """
s = R.add(R.matmul(q, R.permute_dims(k, axes=[0, 1, 3, 2])), m)
p = R.nn.softmax(s, axis=-1)
w = R.where({test}, R.const({other}, "float32"), p)
out = R.matmul(w, v)
"""
HIDDEN = 'R.equal(R.max({0}, axis=[{1}], keepdims={2}), R.const(float("-inf"), "float32"))'


def guarded(test, other="0.0"):
    sizes = {"q": (1, 2, 9, 16), "k": (1, 2, 9, 16), "v": (1, 2, 9, 8), "m": (9, 9), "u": (9, 9)}
    params = ", ".join(f"{n}: {s}" for n, s in sizes.items())
    return written(params, GUARDED.format(test=test, other=other)), list(sizes.values())


@pytest.mark.parametrize(
    ("test", "unseen"),
    [
        (HIDDEN.format("m", -1, True), "zero"),
        (HIDDEN.format("m", 1, True), "zero"),
        ('R.equal(R.const(float("-inf"), "float32"), R.max(m, axis=[1], keepdims=True))', "zero"),
        ("R.isnan(p)", "zero"),
        ('R.const(False, "bool")', "nan"),
    ],
)
def test_weights_that_are_zero_without_keys(test, unseen):
    mod, shapes = guarded(test)
    fused = dead_code_elimination()(FuseAttention()(mod))
    calls = {b.value.op.name.removeprefix("relax."): b.value for b in all_bindings(fused["main"])}
    assert list(calls) == ["nn.attention_heads", "permute_dims"]
    assert calls["nn.attention_heads"].attrs["unseen"] == unseen
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in shapes]
    args[3][[0, 7]] = -np.inf
    args[3][3, 2:] = -np.inf
    got, expected = evaluate(fused, *args)[0], evaluate(mod, *args)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert (got[:, :, 7] == 0).all() if unseen == "zero" else np.isnan(got[:, :, 7]).all()
    args[0][0, 0, 4, 1] = np.nan  # a score that is no number is none of a mask: it shows, as in PyTorch's attention
    lost = np.isnan(relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"](*args).numpy())
    assert lost[0, 0, 4].all() and not lost[0, 0, 5].any()


@pytest.mark.parametrize(
    ("test", "other"),
    [
        (HIDDEN.format("u", 1, True), "0.0"),  # another mask
        (HIDDEN.format("m", 0, True), "0.0"),  # keys that no query sees
        (HIDDEN.format("m", 1, False), "0.0"),  # queries in the place of keys
        (HIDDEN.format("m", 1, True), "1.0"),
        (HIDDEN.format("m", 1, True).replace("-inf", "inf"), "0.0"),
        (HIDDEN.format("m", 1, True).replace("max", "min"), "0.0"),
        ("R.isnan(p)", "1.0"),
        ("R.isnan(s)", "0.0"),
        ("R.logical_not(R.isnan(p))", "0.0"),
        ('R.const(True, "bool")', "0.0"),
        ('R.greater(u, R.const(0.0, "float32"))', "0.0"),
    ],
)
def test_weights_that_are_replaced_elsewhere(test, other):
    mod, _ = guarded(test, other)
    assert FuseAttention()(mod)["main"] is mod["main"]


@pytest.mark.parametrize("kind", ["multiply", "divide"])
@pytest.mark.parametrize("ndim", [3, 4])
@pytest.mark.parametrize("places", list(itertools.product((False, True), repeat=5)))
def test_numbers_wherever_they_are_multiplied(places, ndim, kind):
    """Queries, keys before and after their transpose, scores, and scores before a mask may each have a factor."""
    lead, turn = ((1, 2), (0, 1, 3, 2)) if ndim == 4 else ((2,), (0, 2, 1))
    steps = {
        "q": (0.5, None),
        "k": (3.0, None),
        "t": (0.25, "R.permute_dims({k}, axes={turn})"),
        "s": (2.0, "R.matmul({q}, {t})"),
        "m": (1.5, "R.add({s}, mask)"),
    }
    body, names = [], {}
    for scaled, (name, (factor, made)) in zip(places, steps.items(), strict=True):
        if made is not None:
            body.append(f"{name} = " + made.format(turn=turn, **names))
        names[name] = f"{name}2" if scaled else name
        if scaled:
            body.append(f'{name}2 = R.{kind}({name}, R.const({factor}, "float32"))')
    body += [f"w = R.nn.softmax({names['m']}, axis=-1)", "out = R.matmul(w, v)"]
    shapes = {"q": (*lead, 3, 4), "k": (*lead, 5, 4), "v": (*lead, 5, 6), "mask": (*lead, 3, 5)}
    mod = written(", ".join(f"{n}: {s}" for n, s in shapes.items()), *body)
    assert ("nn.attention_heads" in operators(mod)) == (not places[4])  # a scaled mask is left alone
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in shapes.values()]
    np.testing.assert_allclose(evaluate(FuseAttention()(mod), *args)[0], evaluate(mod, *args)[0], rtol=1e-4, atol=1e-5)
