"""Random numbers: the cipher against its known answers, the state by how generators go on, distributions by moments."""

import numpy as np
import pytest

from tests.topi.running import evaluate
from weft import error, topi

KEY = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1 << 63, 0], "uint64")


def _key(seed: int) -> np.ndarray:
    return np.array([0, 0, 0, seed, 0, 0, 0, 0, 1 << 63, 0], "uint64")


def test_known_answers() -> None:
    """The first vector that the authors publish: key and counter zero."""
    _, words = evaluate(lambda g: topi.random.threefry_generate(g, (4,)), KEY)
    expected = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
    np.testing.assert_array_equal(words, np.array(expected, "uint64"))


def test_generators_go_on() -> None:
    once, all_words = evaluate(lambda g: topi.random.threefry_generate(g, (2, 8)), KEY)
    half, first = evaluate(lambda g: topi.random.threefry_generate(g, (8,)), KEY)
    twice, second = evaluate(lambda g: topi.random.threefry_generate(g, (8,)), half)
    np.testing.assert_array_equal(all_words.reshape(-1), np.concatenate([first, second]))
    np.testing.assert_array_equal(once, twice)
    odd, few = evaluate(lambda g: topi.random.threefry_generate(g, (3,)), KEY)
    np.testing.assert_array_equal(few, first[:3])
    assert odd[7] == 4


def test_split() -> None:
    left, right = evaluate(topi.random.threefry_split, KEY)
    np.testing.assert_array_equal(left[4:], [0, 0, 0, 0, 1 << 62, 0])
    np.testing.assert_array_equal(right[4:], np.array([1 << 63, 0, 0, 0, 1 << 62, 0], "uint64"))
    words = [evaluate(lambda g: topi.random.threefry_generate(g, (64,)), g)[1] for g in (left, right)]
    assert len(np.unique(np.concatenate(words))) == 128


def test_path_that_is_full_gives_a_new_key() -> None:
    full = KEY.copy()
    full[8] = 0
    left, right = evaluate(topi.random.threefry_split, full)
    np.testing.assert_array_equal(left[:4], right[:4])
    assert (left[:4] != 0).any()
    full[7] = 2**64 - 2
    after, _ = evaluate(lambda g: topi.random.threefry_generate(g, (2048,)), full)
    assert (after[:4] != 0).any()


def test_counter_that_is_full_changes_the_path() -> None:
    gen = KEY.copy()
    gen[7] = 2**64 - 2
    after, _ = evaluate(lambda g: topi.random.threefry_generate(g, (2048,)), gen)
    assert after[4] != gen[4]
    assert after[7] == 2048


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform(dtype: str) -> None:
    low, high = np.array([-2.0], dtype), np.array([3.0], dtype)
    gen, x = evaluate(lambda g, a, b: topi.random.uniform(g, a, b, (50, 41), dtype), _key(7), low, high)
    assert x.dtype == dtype
    assert x.min() >= -2
    assert x.max() < 3
    assert abs(x.mean() - 0.5) < 0.1
    assert abs(x.std() - 5 / 12**0.5) < 0.1
    assert gen[7] > 0


def test_normal() -> None:
    mean, scale = np.array(5.0), np.array(2.0)
    _, x = evaluate(lambda g, m, s: topi.random.normal(g, m, s, (101, 40), "float64"), _key(3), mean, scale)
    assert abs(x.mean() - 5) < 0.1
    assert abs(x.std() - 2) < 0.1
    assert abs(((x - 5) ** 3).mean()) < 0.8


def test_multinomial() -> None:
    probs = np.array([[1.0, 0, 3], [-1, 2, 2]], "float32")
    _, x = evaluate(lambda g, p: topi.random.multinomial(g, p, 2000), _key(5), probs)
    counts = np.array([np.bincount(row, minlength=3) for row in x]) / 2000
    np.testing.assert_allclose(counts, [[0.25, 0, 0.75], [0, 0.5, 0.5]], atol=0.05)


def test_other_types_are_refused() -> None:
    with pytest.raises(error.InvalidArgument, match="float16"):
        evaluate(lambda g: topi.random.uniform(g, 0.0, 1.0, (4,), "float16"), KEY)
