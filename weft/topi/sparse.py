"""The names of ``tvm.topi.sparse``: products with matrices in compressed rows.

A compressed matrix is anything with ``data``, ``indices`` and ``indptr``, tensors, and a ``shape``.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from weft import error, te
from weft.topi.compressed_rows import rows_times
from weft.topi.typing import Compressed


def _is_compressed(x: Any) -> TypeGuard[Compressed]:
    return all(hasattr(x, name) for name in ("data", "indices", "indptr"))


def csrmm(a: Compressed, b: te.Tensor, c: te.Tensor | None = None) -> Any:
    """``a @ b`` with a compressed `a`; `c` (rows,) is added to the columns."""
    out = rows_times(a.data, a.indices, a.indptr, b, "csrmm")
    return out if c is None else te.compute(out.shape, lambda i, j: out(i, j) + c(i), name="csrmm_bias")


def csrmv(a: Compressed, x: te.Tensor, y: te.Tensor | None = None) -> Any:
    """``a @ x`` with a compressed `a` and a column (n, 1); `y` (rows,) is added."""
    return csrmm(a, x, y)


def dense(data: Compressed | te.Tensor, weight: Compressed | te.Tensor, bias: te.Tensor | None = None) -> Any:
    """``data @ weight.T + bias``, of which either factor is compressed."""
    if _is_compressed(data) and isinstance(weight, te.Tensor):
        out = rows_times(data.data, data.indices, data.indptr, weight, "dense", turned=True)
    elif isinstance(data, te.Tensor) and _is_compressed(weight):
        turned = rows_times(weight.data, weight.indices, weight.indptr, data, "dense", turned=True)
        out = te.compute((turned.shape[1], turned.shape[0]), lambda i, j: turned(j, i), name="dense")
    else:
        raise error.InvalidArgument(
            "dense: one factor is compressed, the other is not", found=f"{type(data).__name__}, {type(weight).__name__}"
        )
    return out if bias is None else te.compute(out.shape, lambda i, j: out(i, j) + bias(j), name="dense_bias")


def random_bsr_matrix(m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str) -> Any:
    """Draw a matrix (m, n) of SciPy's, of which about a part of `density` is blocks (bs_r, bs_c) of numbers."""
    if min(bs_r, bs_c) < 1 or m % bs_r or n % bs_c:
        raise error.InvalidArgument(
            "a sparse matrix is made of whole blocks", found=f"{bs_r}x{bs_c}", expected=f"blocks that divide {m}x{n}"
        )
    kept = np.zeros((m // bs_r) * (n // bs_c), dtype)
    count = min(int(density * m * n) // (bs_r * bs_c) + 1, kept.size)
    kept[np.random.choice(kept.size, count, replace=False)] = 1
    blocks = np.kron(kept.reshape(m // bs_r, n // bs_c), np.ones((bs_r, bs_c), dtype))
    drawn = blocks * np.random.randn(m, n).astype(dtype)
    return error.require("scipy.sparse", extra="scipy").bsr_matrix(drawn, blocksize=(bs_r, bs_c))
