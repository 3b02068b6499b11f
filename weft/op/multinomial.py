"""Drawing indices by probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import ShapeMismatch
from weft.ir import DataType, Expr, TensorType, as_int, int64, numpy_dtype
from weft.op.infer import index_arg, tensor_arg
from weft.op.registry import Fusion, declare
from weft.topi.multinomial import multinomial_from_uniform

__all__: list[str] = []

_NAME = "multinomial_from_uniform"


def _infer(prob: Expr, uniform_sample: Expr, sample_indices: Expr | None = None, dtype: str = "int64") -> TensorType:
    p = tensor_arg(_NAME, "prob", prob, ndim=2, kind="float")
    u = tensor_arg(_NAME, "uniform_sample", uniform_sample, ndim=2, kind="float")
    columns = [u]
    if sample_indices is not None:
        tensor_arg(_NAME, "sample_indices", sample_indices, ndim=2)
        columns.append(index_arg(_NAME, sample_indices, "sample_indices"))
    elif p.shape is not None:
        _same(p.shape[0], u, prob, "without sample_indices there is one sample for each row")
    for ty in columns[1:]:
        _same(u.shape[0] if u.shape is not None else None, ty, prob, "each sample has one index")
    for ty in columns:
        if ty.shape is not None and as_int(ty.shape[1]) not in (None, 1):
            raise ShapeMismatch(f"{_NAME}: samples are a column", expected="(n, 1)", found=str(ty), where=prob.span)
    return TensorType((u.shape[0], int64(1)) if u.shape is not None else None, DataType(dtype), 2)


def _same(size: Any, ty: TensorType, where: Expr, what: str) -> None:
    want, have = as_int(size), as_int(ty.shape[0]) if ty.shape is not None else None
    if want is not None and have is not None and want != have:
        raise ShapeMismatch(f"{_NAME}: {what}", expected=str(want), found=str(have), where=where.span)


def _ref(prob: Any, uniform_sample: Any, sample_indices: Any = None, dtype: str = "int64") -> Any:
    total = np.cumsum(prob, 1)
    rows = total if sample_indices is None else total[sample_indices[:, 0]]
    held = (uniform_sample >= rows).sum(1, keepdims=True)
    return np.minimum(held, prob.shape[1] - 1).astype(numpy_dtype(dtype))


declare(
    _NAME, "prob uniform_sample sample_indices?", {"dtype": "int64"}, infer=_infer, lower=multinomial_from_uniform,
    reference=_ref, fusion=Fusion.OPAQUE,
    doc="The first index at which the probabilities of a row add up to more than a sample.",
)  # fmt: skip
