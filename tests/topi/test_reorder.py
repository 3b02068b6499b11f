"""Elements at other places, against NumPy."""

import numpy as np
import pytest

from tests.refusals import refuses
from tests.topi.running import check, evaluate
from weft import error, te, topi

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 5)).astype("float32")
CUBE = RNG.normal(size=(2, 3, 7)).astype("float32")


def _int(*values: int, dtype: str = "int64") -> np.ndarray:
    return np.array(values, dtype)


def _set(a: np.ndarray, v: np.ndarray, *slices: slice) -> np.ndarray:
    out = a.copy()
    out[slices] = v
    return out


CASES = {
    "advanced index": (
        lambda x, i, j: topi.adv_index(x, [i, j]),
        (X, _int(2, 0), np.array([[4], [1]])),
        X[[2, 0], [[4], [1]]],
    ),
    "dynamic slice": (
        lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, (2, 2)),
        (X, _int(1, 4), _int(3, 0), _int(1, -2)),
        X[1:3, 4:0:-2],
    ),
    "dynamic slice of numbers": (
        lambda x: topi.dynamic_strided_slice(x, [0, 1], [3, 4], [2, 1], (2, 3)),
        (X,),
        X[0:3:2, 1:4],
    ),
    "set a slice": (
        lambda x, v: topi.strided_set(x, v, [0, 1], [3, 4], [2, 1]),
        (X, X[:2, 2:5] * 3),
        _set(X, X[:2, 2:5] * 3, slice(0, 3, 2), slice(1, 4)),
    ),
    "set a slice backwards": (
        lambda x, v, b, e, s: topi.strided_set(x, v, b, e, s),
        (X, X[:2, :2] * 3, _int(-1, 4), _int(-3, -6), _int(-1, -3)),
        _set(X, X[:2, :2] * 3, slice(-1, -3, -1), slice(4, -6, -3)),
    ),
    "set the first rows": (
        lambda x, v: topi.strided_set(x, v, [1], [2]),
        (X, X[:1] + 1),
        _set(X, X[0] + 1, slice(1, 2)),
    ),
    "slice scatter": (
        lambda x, v: topi.slice_scatter(x, v, 1, 5, 2, 1),
        (X, X[:, :2] * 2),
        [_set(X, X[:, :2] * 2, slice(None), slice(1, 5, 2))],
    ),
    "windows": (
        lambda x: topi.sliding_window(x, 1, (2, 3), (1, 2)),
        (CUBE,),
        np.lib.stride_tricks.sliding_window_view(CUBE, (2, 3), (1, 2))[:, :, ::2],
    ),
    "expand like": (
        lambda x, y: topi.expand_like(x, y, [1]),
        (CUBE[:, 0], CUBE),
        np.broadcast_to(CUBE[:, :1], CUBE.shape),
    ),
    "tile to a shape": (lambda x: topi.dyn_tile(x, (2, 3, 10), 3), (X,), np.tile(X, (2, 1, 2))),
    "collapse": (lambda x: topi.collapse_sum(x, (3, 1)), (CUBE,), CUBE.sum((0, 2))[:, None]),
    "collapse nothing": (lambda x: topi.collapse_sum(x, (3, 5)), (X,), X),
    "tensordot by number": (lambda x, y: topi.tensordot(x, y, 1), (X, X.T), X @ X.T),
    "tensordot by lists": (
        lambda x, y: topi.tensordot(x, y, ((1, 2), (1, 2))),
        (CUBE, CUBE),
        np.tensordot(CUBE, CUBE, ((1, 2), (1, 2))),
    ),
    "outer product": (lambda x, y: topi.tensordot(x, y, 0), (X, X[0]), np.tensordot(X, X[0], 0)),
    "mask rows": (
        lambda x, n: topi.sequence_mask(x, n, -1.0, 1),
        (X, _int(0, 2, 5, dtype="int32")),
        np.where(np.arange(5) < np.array([[0], [2], [5]]), X, np.float32(-1)),
    ),
    "mask columns": (
        lambda x, n: topi.sequence_mask(x, n),
        (X, _int(0, 1, 2, 3, 4)),
        np.where(np.arange(3)[:, None] < np.arange(5), X, np.float32(0)),
    ),
    "unravel": (
        lambda i, s: topi.unravel_index(i, s),
        (np.arange(0, 24, 5), _int(2, 3, 4)),
        np.array(np.unravel_index(np.arange(0, 24, 5), (2, 3, 4))),
    ),
    "unravel of a known shape": (lambda i: topi.unravel_index(i, (3, 8)), (_int(23, 9),), np.array([[2, 1], [7, 1]])),
    "unravel of few bits": (lambda i: topi.unravel_index(i, (2, 300)), (np.int8([100]),), np.int8([[0], [100]])),
    "invert": (topi.invert_permutation, (_int(2, 0, 3, 1),), _int(1, 3, 0, 2)),
    "size": (topi.tensor_size, (CUBE,), np.array(42, "int32")),
    "size, older": (lambda x: topi.ndarray_size(x, "int64"), (CUBE,), np.array(42)),
    "sum of three": (lambda *x: topi.elemwise_sum(x), (X, X * 2, X[:1]), X * 3 + X[:1]),
    "bits": (lambda x: topi.reinterpret(x, "int32"), (X,), X.view("int32")),
}


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    check(*CASES[name])


def _with_diagonals(data: np.ndarray, diagonal: np.ndarray, low: int, high: int, align: str) -> np.ndarray:
    """Put the diagonals in one by one."""
    out, (rows, columns) = data.copy(), data.shape[-2:]
    above, below = align.split("_")
    for d in range(low, high + 1):
        length = min(rows + min(d, 0), columns - max(d, 0))
        right = (above if d >= 0 else below) == "RIGHT"
        begin = diagonal.shape[-1] - length if right and low != high else 0
        line = diagonal if low == high else diagonal[..., high - d, :]
        for n in range(length):
            out[..., n - min(d, 0), n + max(d, 0)] = line[..., begin + n]
    return out


@pytest.mark.parametrize("align", ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize(("low", "high", "length"), [(0, 0, 3), (1, 1, 3), (-1, 2, 3), (-2, -1, 2)])
def test_diagonals(align: str, low: int, high: int, length: int) -> None:
    data = RNG.normal(size=(2, 3, 5)).astype("float32")
    shape = (2, length) if low == high else (2, high - low + 1, length)
    diagonal = RNG.normal(size=shape).astype("float32")
    found = evaluate(lambda x, d: topi.matrix_set_diag(x, d, (low, high), align), data, diagonal)
    np.testing.assert_array_equal(found, _with_diagonals(data, diagonal, low, high, align))


def test_a_slice_that_does_not_fit_is_refused() -> None:
    refuses(error.ShapeMismatch, "sliding_window", evaluate, lambda x: topi.sliding_window(x, 0, (2,), (1, 1)), X)
    with pytest.raises(error.InvalidArgument, match="sequence_mask"):
        evaluate(lambda x, n: topi.sequence_mask(x, n, 0, 2), X, _int(1, 2, 3))
    refuses(topi.InvalidShapeError, "collapse_sum", evaluate, lambda x: topi.collapse_sum(x, (1, 3, 5)), X)


def test_coordinates_along_the_first_axis() -> None:
    at = _int(2, 0, 4, 1).reshape(2, 2)
    np.testing.assert_array_equal(evaluate(topi.gather_nd, X, at), X[[2, 0], [4, 1]])
    expected = X.copy()
    expected[[2, 0], [4, 1]] += 1
    found = evaluate(lambda x, i, v: topi.scatter_nd(x, i, v, "add"), X, at, np.ones(2, "float32"))
    np.testing.assert_array_equal(found, expected)


def test_names_of_parameters() -> None:
    found = evaluate(lambda a: topi.tile(a=topi.clip(a, a_min=0.0, a_max=1.0), reps=(2, 1)), X)
    np.testing.assert_array_equal(found, np.tile(X.clip(0, 1), (2, 1)))
    np.testing.assert_array_equal(evaluate(lambda: topi.eye(n=3, k=1)), np.eye(3, k=1))
    np.testing.assert_array_equal(evaluate(lambda a: topi.shape(a, "int64"), CUBE), [2, 3, 7])
    assert topi.transform is topi


def test_indices_are_integers() -> None:
    i, x = te.placeholder((2,), "float32", name="i"), te.placeholder((2, 2), "float32", name="x")
    for function, args in (
        (topi.take, (x, i)),
        (topi.gather_nd, (x, i)),
        (topi.scatter_nd, (x, i, i, "add")),
        (topi.unravel_index, (i, (3, 8))),
        (topi.one_hot, (i, 1, 0, 3, -1, "float32")),
        (topi.sequence_mask, (x, i)),
        (topi.reverse_sequence, (x, i, 1, 0)),
        (topi.sparse_to_dense, (i, [3], i, 0.0)),
    ):
        refuses(error.DTypeMismatch, "indices are integers", function, *args)
