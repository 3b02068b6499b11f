"""Searching, distinct elements and coordinates, against NumPy."""

import numpy as np
import pytest

from tests.topi.running import evaluate
from weft import error, te, topi

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_searchsorted(right: bool, dtype: str) -> None:
    sequence = np.sort(RNG.integers(0, 9, (2, 3, 11))).astype("float32")
    values = RNG.integers(-1, 10, (2, 3, 7)).astype("float32")
    found = evaluate(lambda s, v: topi.searchsorted(s, v, right, dtype), sequence, values)
    side = "right" if right else "left"
    expected = [np.searchsorted(s, v, side) for s, v in zip(sequence.reshape(6, 11), values.reshape(6, 7), strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, dtype).reshape(2, 3, 7))
    one = evaluate(lambda s, v: topi.searchsorted(s, v, right, dtype), sequence[0, 0], values)
    np.testing.assert_array_equal(one, np.searchsorted(sequence[0, 0], values, side))


@pytest.mark.parametrize("shape", [(9,), (3, 4), (2, 3, 2), (2, 1, 3, 2)])
def test_argwhere(shape: tuple[int, ...]) -> None:
    condition = RNG.integers(0, 2, shape).astype("float32")
    expected = np.argwhere(condition)
    found = evaluate(lambda c: topi.argwhere(te.placeholder(expected.shape, "int32"), c), condition)
    np.testing.assert_array_equal(found, expected.astype("int32"))


@pytest.mark.parametrize("sorted_", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_unique(sorted_: bool, dtype: str) -> None:
    data = RNG.integers(0, 6, 15).astype(dtype)
    values, first, places, number, counts = evaluate(lambda x: topi.unique(x, sorted_, True), data)
    wanted, at, inverse, times = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(at)) if sorted_ else np.argsort(at)
    n = int(number[0])
    assert n == len(wanted)
    np.testing.assert_array_equal(values[:n], wanted[order])
    np.testing.assert_array_equal(first[:n], at[order])
    np.testing.assert_array_equal(counts[:n], times[order])
    np.testing.assert_array_equal(places, np.argsort(order)[inverse])
    assert len(evaluate(lambda x: topi.unique(x, sorted_), data)) == 4


def test_values_at_their_places() -> None:
    values = np.array([3.0, -1.0], "float32")
    found = evaluate(lambda i, v: topi.sparse_to_dense(i, (3, 4), v, 7), np.array([[0, 1], [2, 3]]), values)
    expected = np.full((3, 4), 7, "float32")
    expected[0, 1], expected[2, 3] = values
    np.testing.assert_array_equal(found, expected)
    found = evaluate(lambda i, v: topi.sparse_to_dense(i, (4,), v), np.array([1, 3], "int32"), values)
    np.testing.assert_array_equal(found, [0, 3, 0, -1])
    found = evaluate(lambda i, v: topi.sparse_to_dense(i, (4,), v), np.array(2, "int32"), np.array(5.0, "float32"))
    np.testing.assert_array_equal(found, [0, 0, 5, 0])
    found = evaluate(
        lambda i, v, d: topi.sparse_to_dense(i, (4,), v, d()), np.array([0]), values[:1], np.array(2.0, "float32")
    )
    np.testing.assert_array_equal(found, [3, 2, 2, 2])
    with pytest.raises(error.ShapeMismatch, match="sparse_to_dense"):
        evaluate(lambda i, v: topi.sparse_to_dense(i, (4, 4), v), np.array([0]), values[:1])


def test_coordinates_under_another_shape() -> None:
    old, new = (2, 3, 6), (9, -1)
    places = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]])
    found, shape = evaluate(
        lambda i, b, n: topi.sparse_reshape(i, b, n, (5, 2), (2,)), places, np.array(old), np.array(new)
    )
    np.testing.assert_array_equal(shape, [9, 4])
    flat = np.ravel_multi_index(tuple(places.T), old)
    np.testing.assert_array_equal(found, np.array(np.unravel_index(flat, (9, 4))).T)


@pytest.mark.parametrize("rows", [[0, 1, 1, 3], [2, 4], []])
def test_rows_without_elements(rows: list[int]) -> None:
    places = np.array([[r, n + 1] for n, r in enumerate(rows)], "int64").reshape(len(rows), 2)
    values = np.arange(10, 10 + len(rows))
    lacking = [r for r in range(6) if r not in rows]
    expected = sorted([(r, n + 1, 10 + n) for n, r in enumerate(rows)] + [(r, 0, -5) for r in lacking])
    total = len(expected)
    found, numbers, empty = evaluate(
        lambda i, v, s, d: topi.sparse_fill_empty_rows(i, v, s, d, (total, 2), (total,), (6,)),
        places,
        values,
        np.array([6, 9]),
        np.array([-5]),
    )
    np.testing.assert_array_equal(np.column_stack([found, numbers]), expected)
    np.testing.assert_array_equal(empty, [int(r in lacking) for r in range(6)])


@pytest.mark.parametrize("size", [0, 1, 5, 1000])
def test_places(size):
    rng = np.random.default_rng(size)
    odd = rng.integers(0, 3, size).astype(np.uint8).view(bool)  # truth that is not written as one is one too
    for mask in (rng.random(size) > 0.6, np.zeros(size, bool), np.ones(size, bool), odd):
        found, count = evaluate(topi.search.places, mask)
        expected = np.flatnonzero(mask.view(np.uint8))
        assert count == [len(expected)]
        np.testing.assert_array_equal(found[: len(expected)], expected)
