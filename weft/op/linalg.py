"""Systems of linear equations."""

import functools
from typing import Any

import numpy as np

from weft.error import DTypeMismatch
from weft.ir import Expr, TensorType, TupleType
from weft.op.attributes import text
from weft.op.infer import tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_equal
from weft.topi.linalg import solve
from weft.topi.precision import in_float32


def _solve_infer(a: Expr, b: Expr) -> TupleType:
    name = "linalg.solve"
    left, right = tensor_arg(name, "a", a, ndim=3, kind="float"), tensor_arg(name, "b", b, ndim=3)
    if left.dtype and right.dtype and left.dtype != right.dtype:
        raise DTypeMismatch(f"{name}: 'b' has another data type", expected=left.dtype, found=right.dtype, where=b.span)
    if left.shape is None or right.shape is None:
        shapes: tuple[Any, ...] = (right.shape, left.shape, None, None, None)
    else:
        batch, n, _ = left.shape
        for what, found, expected in (
            ("columns of 'a'", left.shape[2], n),
            ("the batch of 'b'", right.shape[0], batch),
            ("rows of 'b'", right.shape[1], n),
        ):
            demand_equal(f"{name}: {what}", found, expected, a.span)
        shapes = (right.shape, left.shape, (batch, n), (batch,), (batch,))
    dtypes = (*[left.dtype] * 4, "int32")
    return TupleType(tuple(TensorType(s, t, r) for s, t, r in zip(shapes, dtypes, (3, 3, 2, 1, 1), strict=True)))


def _solve_ref(a: Any, b: Any, refusal: str) -> Any:
    batch, n, _ = a.shape
    both, sign, info = np.concatenate([a, b], 2).astype(np.float64), np.ones(batch), np.zeros(batch, np.int32)
    for g, rows in enumerate(both):
        for k in range(n):
            best = functools.reduce(lambda i, j: j if abs(rows[j, k]) > abs(rows[i, k]) else i, range(k, n))  # not NaN
            rows[[k, best]] = rows[[best, k]]
            sign[g] *= 1 if best == k else -1
            if rows[k, k] != 0:
                rows[k + 1 :, k + 1 :] -= rows[k + 1 :, k : k + 1] / rows[k, k] * rows[k, k + 1 :]
                rows[k + 1 :, k] = 0
            elif not info[g]:
                info[g] = k + 1
    if refusal and info.any():
        raise RuntimeError(refusal)  # as the kernel does
    u, x = both[:, :, :n], both[:, :, n:].copy()
    diagonal = np.diagonal(u, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        for k in range(n - 1, -1, -1):
            x[:, k] /= diagonal[:, k, None]
            x[:, :k] -= u[:, :k, k, None] * x[:, k, None]
    return (*(v.astype(a.dtype) for v in (x, u, diagonal, sign)), info)


declare(
    "linalg.solve",
    "a b",
    {"refusal": text("")},
    infer=_solve_infer,
    lower=in_float32(solve),
    reference=_solve_ref,
    rtol=1e-4,
    doc="Solve ``a @ x == b`` for a stack of square matrices by elimination: `x`, the triangular matrix, its diagonal, "
    "the sign of the order of rows, and which element of the diagonal is the first zero, from 1, or 0. With a "
    "`refusal`, which the program says, a singular matrix stops it.",
)
