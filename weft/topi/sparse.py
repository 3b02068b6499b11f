"""The names of ``tvm.topi.sparse``: products with matrices in compressed rows.

A compressed matrix is anything with ``data``, ``indices`` and ``indptr``, tensors, and a ``shape``.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from weft import error, te
from weft.topi.compressed_rows import rows_times
from weft.topi.typing import Compressed

__all__ = ["csrmm", "csrmv", "dense"]


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
        raise error.InvalidArgument("dense: one factor is compressed, the other is not",
                                    found=f"{type(data).__name__}, {type(weight).__name__}")  # fmt: skip
    return out if bias is None else te.compute(out.shape, lambda i, j: out(i, j) + bias(j), name="dense_bias")
