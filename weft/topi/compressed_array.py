"""The names of ``tvm.contrib.sparse``: matrices in compressed rows (CSR), as arrays and as placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime, te
from weft.error import InvalidArgument
from weft.ir import PrimExpr
from weft.runtime import Device, Tensor

Source = np.ndarray | tuple[Tensor, Tensor, Tensor]

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "array", "placeholder"]


class CSRNDArray:
    """A matrix in compressed rows: of a NumPy matrix, or of `data`, `indices` and `indptr` and its `shape`."""

    stype = "csr"

    def __init__(self, arg1: Source, device: Device | None = None, shape: Sequence[int] = ()) -> None:
        if isinstance(arg1, np.ndarray) and arg1.ndim == 2:
            rows, columns = np.nonzero(arg1)
            starts = np.searchsorted(rows, np.arange(len(arg1) + 1))
            parts = (arg1[rows, columns], columns.astype("int32"), starts.astype("int32"))
            arg1, shape = tuple(runtime.tensor(p, device=device) for p in parts), arg1.shape  # type: ignore[assignment]
        fits = isinstance(arg1, tuple) and len(arg1) == 3 and len(shape) == 2
        if not fits or arg1[2].shape != (shape[0] + 1,) or arg1[0].shape != arg1[1].shape:
            wanted = "a matrix, or numbers, a column for each, where rows begin and end, and a shape"
            raise InvalidArgument("this makes no sparse matrix", found=f"{str(arg1)[:99]} of {shape}", expected=wanted)
        self.data, self.indices, self.indptr = arg1
        self.shape, self.dtype = tuple(shape), str(self.data.dtype)

    def numpy(self) -> np.ndarray:
        """Return the whole matrix."""
        full = np.zeros(self.shape, self.dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.numpy()))
        full[rows, self.indices.numpy()] = self.data.numpy()
        return full

    asnumpy = numpy


class CSRPlaceholderOp:
    """A matrix in compressed rows whose `data`, `indices` and `indptr` are placeholders."""

    stype = "csr"

    def __init__(self, shape: Sequence[PrimExpr | int], nonzeros: PrimExpr | int, dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = shape, dtype, name
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), "int32", f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), "int32", f"{name}_indptr")


def array(
    source_array: Source, device: Device | None = None, shape: Sequence[int] = (), stype: str = "csr"
) -> CSRNDArray:
    """Make a sparse matrix, as :class:`CSRNDArray` does."""
    return CSRNDArray(_stored(stype, source_array), device, shape)


def placeholder(
    shape: Sequence[PrimExpr | int],
    nonzeros: PrimExpr | int = 0,
    dtype: str = "float32",
    name: str = "placeholder",
    stype: str = "csr",
) -> CSRPlaceholderOp:
    """Make a sparse matrix of `nonzeros` numbers, which come later."""
    return CSRPlaceholderOp(_stored(stype, shape), nonzeros, dtype, name)


def _stored(stype: str, value: Any) -> Any:
    if stype != "csr":
        raise InvalidArgument("sparse matrices are stored in compressed rows", expected="csr", found=stype)
    return value
