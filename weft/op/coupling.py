"""Probabilities of classes from those of pairs of classes."""

from typing import Any

import numpy as np

from weft.ir import Expr, TensorType
from weft.op.infer import tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_equal
from weft.topi.coupling import couple_pairs
from weft.topi.precision import in_float32


def _infer(pairs: Expr) -> TensorType:
    ty = tensor_arg("couple_pairs", "pairs", pairs, ndim=3, kind="float")
    if ty.shape is None:
        return TensorType(None, ty.dtype, 2)
    demand_equal("couple_pairs: classes", ty.shape[2], ty.shape[1], pairs.span)
    return TensorType(ty.shape[:2], ty.dtype)


def _ref(pairs: Any) -> Any:
    count = pairs.shape[1]
    out = np.full(pairs.shape[:2], 1 / max(count, 1))
    for p, r in zip(out, np.where(np.eye(count), 0, pairs.astype(np.float64)), strict=True):
        q = np.diag((r * r).sum(0)) - r * r.T
        for _ in range(max(100, count) if count else 0):
            total = p @ q @ p
            if not np.abs(q @ p - total).max() >= 0.005 / count:
                break
            for i in range(count):
                here = q[i] @ p
                step = (total - here) / q[i, i]
                total = (total + step * (step * q[i, i] + 2 * here)) / (1 + step) ** 2
                p[i] += step
                p /= 1 + step
    return out.astype(pairs.dtype)


declare(
    "couple_pairs",
    "pairs",
    infer=_infer,
    lower=in_float32(couple_pairs),
    reference=_ref,
    rtol=1e-4,
    doc="Shares of classes from probabilities of each class against each other, coupled as LIBSVM couples them.",
)
