"""Drawing indices by probability."""

from typing import Any

import numpy as np

from weft.ir import DataType, Expr, TensorType, int64, min_, numpy_dtype
from weft.op.attributes import dtype
from weft.op.infer import index_arg, tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_at_least, demand_indices, demand_same_shape
from weft.topi.multinomial import multinomial_from_uniform

_NAME = "multinomial_from_uniform"


def _infer(prob: Expr, uniform_sample: Expr, sample_indices: Expr | None = None, *, dtype: str) -> TensorType:
    p = tensor_arg(_NAME, "prob", prob, ndim=2, kind="float")
    u = tensor_arg(_NAME, "uniform_sample", uniform_sample, ndim=2, kind="float")
    columns = [u]
    if sample_indices is not None:
        tensor_arg(_NAME, "sample_indices", sample_indices, ndim=2)
        columns.append(index_arg(_NAME, sample_indices, "sample_indices"))
    elif p.shape is not None:
        demand_same_shape(f"{_NAME}: 'uniform_sample', one for each row", u.shape, (p.shape[0], 1), prob.span)
    for ty in columns:
        rows = u.shape[0] if u.shape is not None else None
        demand_same_shape(f"{_NAME}: samples and their rows", ty.shape, None if rows is None else (rows, 1), prob.span)
    if p.shape is not None:
        some = 1 if u.shape is None else min_(u.shape[0], int64(1))
        demand_at_least(f"{_NAME}: choices", p.shape[1], some, prob.span)
    if sample_indices is not None and p.shape is not None:
        demand_indices(f"{_NAME}: 'sample_indices'", sample_indices, 0, p.shape[0], prob.span)
    return TensorType((u.shape[0], int64(1)) if u.shape is not None else None, DataType(dtype), 2)


def _ref(prob: Any, uniform_sample: Any, sample_indices: Any = None, *, dtype: str) -> Any:
    total = np.cumsum(prob, 1)
    rows = total if sample_indices is None else total[sample_indices[:, 0]]
    held = (uniform_sample >= rows).sum(1, keepdims=True)
    return np.minimum(held, prob.shape[1] - 1).astype(numpy_dtype(dtype))


declare(
    _NAME,
    "prob uniform_sample sample_indices?",
    {"dtype": dtype("int64")},
    infer=_infer,
    lower=multinomial_from_uniform,
    reference=_ref,
    doc="The first index at which the probabilities of a row add up to more than a sample.",
)
