"""The chat example's decoder: sequences of any length in one call, against the same weights in NumPy."""

import numpy as np
import pytest

from examples.chat.generator import Generator, Sampling
from examples.chat.model import THETA, Config, compile_decoder, training_module
from tests.refusals import refuses
from weft.error import InvalidArgument
from weft.frontend.weights import quantize_matrix

C = Config(24, hidden=64, layers=2, heads=4, groups=2, inner=96)
GREEDY = Sampling(0.0)


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    _, shapes = training_module(C, 2, 8)
    return {n: (np.ones(s) if len(s) == 1 else rng.normal(0, s[1] ** -0.5, s)).astype("float32") for n, s in shapes}


@pytest.fixture(scope="module")
def machine(weights):
    vm, size = compile_decoder(C, weights)
    products = sum(w.size for n, w in weights.items() if w.ndim == 2 and n != "embedding.weight")
    assert size == products * 18 // 32 + sum(w.nbytes for w in weights.values() if w.ndim == 1)
    return vm


def dequantised(name, w):
    if w.ndim == 1 or name.startswith("embedding"):
        return w.astype("float64")
    q, scale, zero, group = quantize_matrix(w)
    return (q - np.repeat(zero, group, 1)) * np.repeat(scale, group, 1).astype("float64")


def norm(x, w):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w


def reference(weights, tokens):
    """Logits of every position of a sequence, in float64."""
    w = {n: dequantised(n, v) for n, v in weights.items()}
    x, n = w["embedding.weight"][tokens], len(tokens)
    angles = np.arange(n)[:, None] * THETA ** (-np.arange(0, C.head, 2) / C.head)
    cos, sin = (np.concatenate([f(angles)] * 2, -1)[:, None] for f in (np.cos, np.sin))
    for i in range(C.layers):
        p = f"layers.{i}."
        qkv = (norm(x, w[p + "norm.weight"]) @ w[p + "attention.qkv.weight"].T).reshape(n, -1, C.head)
        half = C.head // 2
        turned = qkv * cos + np.concatenate([-qkv[..., half:], qkv[..., :half]], -1) * sin
        q, (k, v) = turned[:, : C.heads], np.split(qkv[:, C.heads :], 2, 1)
        k, v = (np.repeat(t, C.heads // C.groups, 1) for t in (turned[:, C.heads : C.heads + C.groups], v))
        scores = np.einsum("qhd,khd->hqk", q, k) * C.head**-0.5
        weight = np.exp(np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf))
        mixed = np.einsum("hqk,khd->qhd", weight / weight.sum(-1, keepdims=True), v).reshape(n, -1)
        x = x + mixed @ w[p + "attention.out.weight"].T
        y = norm(x, w[p + "norm2.weight"])
        gate = y @ w[p + "gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[p + "up.weight"].T)) @ w[p + "down.weight"].T
    return norm(x, w["norm.weight"]) @ w["head.weight"].T


def check(weights, tokens, begin):
    """From the `begin`-th on each token is among the greatest, but for what rounding rows to bytes changes."""
    logits = reference(weights, tokens)
    for i in range(begin, len(tokens)):
        before = logits[i - 1]
        assert before[tokens[i]] >= before.max() - 0.1 * before.std(), (i, tokens)


def test_sequences_of_different_length_grow_in_one_call(machine, weights):
    made = Generator(machine, page=4, chunk=4)
    rng = np.random.default_rng(2)
    prompts = [rng.integers(0, 24, n).tolist() for n in (1, 4, 11, 6)]
    numbers = [made.add(p, GREEDY) for p in prompts]
    assert set(made.step()) == {0, 1}  # prompts are read by fours
    for _ in range(6):
        made.step()
    assert [len(made.tokens(n)) for n in numbers] == [8, 11, 16, 12]
    child = made.fork(numbers[1], GREEDY)
    made.truncate(numbers[2], 9)
    made.remove(numbers[0])
    late = made.add([3, 1, 2], GREEDY)
    for _ in range(5):
        made.step()
    assert made.tokens(child) == made.tokens(numbers[1])
    for n, begin in ((numbers[1], 4), (numbers[2], 11), (numbers[3], 6), (late, 3)):
        check(weights, made.tokens(n), begin)
    assert len(made.tokens(numbers[2])) == 14


def test_guesses_change_calls_and_not_tokens(machine):
    said = {}
    for ahead in (0, 3):
        made = Generator(machine, ahead=ahead)
        numbers = [made.add([5, 6, 5, 6, 5], s) for s in (GREEDY, Sampling(0.3, seed=4), Sampling(0.8, penalty=1.3))]
        first = 0
        while min(len(made.tokens(n)) for n in numbers) < 60:
            made.step()
            first += len(made.tokens(numbers[0])) < 60  # the greedy one repeats itself
        said[ahead] = first, [made.tokens(n)[:60] for n in numbers]
    assert said[0][1] == said[3][1]
    assert said[3][0] < said[0][0]
    refuses(InvalidArgument, "cannot come back", Generator, machine, ahead=2, window=8)


def test_a_seed_decides_whatever_runs_beside_it(machine):
    made = Generator(machine)
    alone = made.add([1, 2, 3], Sampling(1.0, seed=9))
    for _ in range(12):
        made.step()
    other = Generator(machine)
    others = [other.add([4] * n, Sampling(1.0, seed=n)) for n in (2, 7)]
    again = other.add([1, 2, 3], Sampling(1.0, seed=9))
    for _ in range(12):
        other.step()
    assert made.tokens(alone) == other.tokens(again)
    assert len({tuple(other.tokens(n)[-12:]) for n in others}) == 2


def test_what_is_refused(machine):
    made = Generator(machine, tokens=16)
    refuses(InvalidArgument, "a token or more", made.add, [])
    number = made.add([1] * 6)
    refuses(InvalidArgument, "keeps a token or more", made.truncate, number, 7)
    assert made.step()
    made.add([2], Sampling(-1.0))
    refuses(InvalidArgument, "are no distribution", made.step)
    assert Generator(machine).step() == {}
