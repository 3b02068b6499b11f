"""Products with sparse matrices, against the same products with dense ones."""

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.topi.running import evaluate
from weft import error, te, topi
from weft.topi import compressed_array as sparse

RNG = np.random.default_rng(4)


def compressed(m: np.ndarray, block: tuple[int, int] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements or blocks that are not zero, their columns, and where each row begins."""
    h, w = block or (1, 1)
    rows, columns = m.shape[0] // h, m.shape[1] // w
    data, indices, indptr = [], [], [0]
    for r in range(rows):
        for c in range(columns):
            part = m[r * h : (r + 1) * h, c * w : (c + 1) * w]
            if part.any():
                data.append(part if block else part[0, 0])
                indices.append(c)
        indptr.append(len(indices))
    return np.array(data, m.dtype), np.array(indices, "int32"), np.array(indptr, "int32")


def sparse_matrix(rows: int, columns: int, block: tuple[int, int] = (1, 1), dtype: str = "float32") -> np.ndarray:
    keep = RNG.random((rows // block[0], columns // block[1])) < 0.4
    return (RNG.normal(size=(rows, columns)) * np.kron(keep, np.ones(block))).astype(dtype)


def _matrix(data, indices, indptr):
    return SimpleNamespace(data=data, indices=indices, indptr=indptr)


def test_products_of_compressed_matrices() -> None:
    a, b, v = sparse_matrix(5, 7), RNG.normal(size=(7, 3)).astype("float32"), RNG.normal(size=5).astype("float32")
    found = evaluate(lambda d, i, p, x, y: topi.sparse.csrmm(_matrix(d, i, p), x, y), *compressed(a), b, v)
    np.testing.assert_allclose(found, a @ b + v[:, None], rtol=1e-5, atol=1e-5)
    found = evaluate(lambda d, i, p, x: topi.sparse.csrmv(_matrix(d, i, p), x), *compressed(a), b[:, :1])
    np.testing.assert_allclose(found, a @ b[:, :1], rtol=1e-5, atol=1e-5)


def test_dense_of_either_factor() -> None:
    a, w, bias = sparse_matrix(5, 7), sparse_matrix(4, 7), RNG.normal(size=4).astype("float32")
    expected = a @ w.T + bias
    found = evaluate(lambda d, i, p, x, y: topi.sparse.dense(_matrix(d, i, p), x, y), *compressed(a), w, bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    found = evaluate(lambda d, i, p, x, y: topi.sparse.dense(x, _matrix(d, i, p), y), *compressed(w), a, bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    refuses(error.InvalidArgument, "dense", evaluate, topi.sparse.dense, a, w)


@pytest.mark.parametrize("block", [None, (2, 3), (4, 1)])
@pytest.mark.parametrize("left", [False, True])
def test_sparse_dense(block: tuple[int, int] | None, left: bool) -> None:
    x, w = RNG.normal(size=(5, 6)).astype("float32"), sparse_matrix(8, 6, block or (1, 1))
    found = evaluate(lambda a, d, i, p: topi.nn.sparse_dense(a, d, i, p, left), x, *compressed(w, block))
    np.testing.assert_allclose(found, w @ x.T if left else x @ w.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sparse_convolution(layout: str) -> None:
    x, w = RNG.normal(size=(2, 3, 5, 6)).astype("float32"), sparse_matrix(8, 6, (2, 3))
    expected = x @ w.T
    if layout == "NCHW":
        x, expected = x.transpose(0, 3, 1, 2), expected.transpose(0, 3, 1, 2)
    x = np.ascontiguousarray(x)
    found = evaluate(lambda a, d, i, p: topi.nn.sparse_conv2d(a, d, i, p, layout), x, *compressed(w, (2, 3)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_sum_and_transpose() -> None:
    m, dense = sparse_matrix(6, 6), RNG.normal(size=(6, 6)).astype("float32")
    np.testing.assert_allclose(evaluate(topi.nn.sparse_add, dense, *compressed(m)), dense + m, rtol=1e-6)
    for f, e in zip(evaluate(topi.nn.sparse_transpose, *compressed(m)), compressed(m.T.copy()), strict=True):
        np.testing.assert_array_equal(f, e)


def test_arrays_and_placeholders_in_compressed_rows() -> None:
    a, count = sparse.array(sparse_matrix(5, 7)), te.var("count")
    parts = (a.data, a.indices, a.indptr)
    np.testing.assert_array_equal(sparse.array(parts, shape=(5, 7)).numpy(), a.numpy())
    held, dense = sparse.placeholder((te.var("rows"), 7), nonzeros=count), te.placeholder((7, 2), name="B")
    product = topi.sparse.csrmm(held, dense)
    out = weft.runtime.tensor(np.zeros((5, 2), "f"))
    f = weft.build(te.create_schedule(product.op), [held.data, held.indices, held.indptr, dense, product])
    f(*parts, weft.runtime.tensor(np.ones((7, 2), "f")), out)
    np.testing.assert_allclose(out.numpy(), a.numpy() @ np.ones((7, 2), "f"), rtol=1e-5, atol=1e-5)
    for wrong in ((parts[0].numpy(),), (parts,), (parts, None, (6, 7)), (parts, None, (5, 7), "coo")):
        refuses(error.InvalidArgument, "", sparse.array, *wrong)
