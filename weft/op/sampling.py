"""The next token of each sequence, and the numbers that decide it."""

from typing import Any

import numpy as np

from weft.error import DTypeMismatch
from weft.ir import DataType, Expr, TensorType, int64, min_, numpy_dtype
from weft.op.attributes import dtype
from weft.op.infer import index_arg, tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_at_least, demand_indices, demand_same_shape
from weft.op.threefry import encrypted
from weft.topi.sampling import sample_token, uniform_at

_NAME = "sample_token"


def _uniform_infer(seed: Expr, position: Expr) -> TensorType:
    types = [tensor_arg("uniform_at", name, e, ndim=2) for name, e in (("seed", seed), ("position", position))]
    for e, ty in zip((seed, position), types, strict=True):
        if str(ty.dtype) != "int64":
            raise DTypeMismatch("uniform_at: seeds and positions are int64", found=str(ty.dtype), where=e.span)
        rows = None if types[0].shape is None else (types[0].shape[0], int64(1))
        demand_same_shape("uniform_at: a seed and a position for each number", ty.shape, rows, e.span)
    return TensorType(types[0].shape, DataType("float64"), 2)


def _uniform_ref(seed: Any, position: Any) -> Any:
    zero = np.zeros(seed.shape, np.uint64)
    x = encrypted([seed.astype(np.uint64), zero, zero, zero], [position.astype(np.uint64), zero, zero, zero])
    return (x[0] >> np.uint64(12)).astype(np.float64) * 2.0**-52


declare(
    "uniform_at",
    "seed position",
    {},
    infer=_uniform_infer,
    lower=uniform_at,
    reference=_uniform_ref,
    doc="A number in [0, 1) for each seed and position (n, 1) int64: the highest 52 bits of the first word of Threefry "
    "4x64 with the key (seed, 0, 0, 0) and the counter (position, 0, 0, 0).",
)


def _infer(
    logits: Expr,
    uniform: Expr,
    temperature: Expr,
    top_k: Expr,
    top_p: Expr,
    penalty: Expr | None = None,
    history: Expr | None = None,
    *,
    dtype: str,
) -> TensorType:
    ty = tensor_arg(_NAME, "logits", logits, ndim=2, kind="float")
    rows = None if ty.shape is None else ty.shape[0]
    parameters = [("uniform", uniform), ("temperature", temperature), ("top_k", top_k), ("top_p", top_p)]
    for label, e in [*parameters, *([] if penalty is None else [("penalty", penalty)])]:
        shape = tensor_arg(_NAME, label, e, ndim=2, kind="integer" if label == "top_k" else "float").shape
        demand_same_shape(f"{_NAME}: '{label}'", shape, None if rows is None else (rows, int64(1)), e.span)
    if (penalty is None) != (history is None):
        raise DTypeMismatch(f"{_NAME}: a penalty needs a history, and a history a penalty", where=logits.span)
    if history is not None:
        tensor_arg(_NAME, "history", history, ndim=2)
        seen = index_arg(_NAME, history, "history")
        dims = None if rows is None or seen.shape is None else (rows, seen.shape[1])
        demand_same_shape(f"{_NAME}: 'history'", seen.shape, dims, history.span)
        if ty.shape is not None:
            demand_indices(f"{_NAME}: 'history'", history, -1, ty.shape[1], history.span)
    if ty.shape is not None:
        demand_at_least(f"{_NAME}: tokens to choose from", ty.shape[1], min_(ty.shape[0], int64(1)), logits.span)
    return TensorType(None if rows is None else (rows, int64(1)), DataType(dtype), 2)


def _ref(
    logits: Any,
    uniform: Any,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    penalty: Any = None,
    history: Any = None,
    *,
    dtype: str,
) -> Any:
    out = np.full((len(logits), 1), -1, numpy_dtype(dtype))
    for row, (x, u, t, k, p) in enumerate(zip(logits, uniform, temperature, top_k, top_p, strict=True)):
        x = x.astype(np.float32)
        for token in () if history is None else set(history[row]) - {-1}:
            x[token] = x[token] / penalty[row, 0] if x[token] > 0 else x[token] * penalty[row, 0]
        with np.errstate(invalid="ignore", over="ignore"):
            heat = np.float32(t[0])
            heat, k = (heat, min(k[0], len(x)) or len(x)) if heat else (np.float32(1), 1)
            weights = np.exp((x - x.max()) / heat, dtype=np.float32).astype(np.float64)
        if not (weights.sum() > 0 and t[0] >= 0 and p[0] == p[0] and 0 <= u[0] < 1):
            continue
        order = np.argsort(-x, kind="stable")[: k if k > 0 else None]
        held = np.cumsum(weights[order])
        if p[0] < 1:
            order = order[: 1 + min(np.searchsorted(held, p[0] * held[-1]), len(order) - 1)]
        held = np.cumsum(weights[np.sort(order)])
        out[row] = np.sort(order)[np.searchsorted(held, u[0] * held[-1], "right")]
    return out


declare(
    _NAME,
    "logits uniform temperature top_k top_p penalty? history?",
    {"dtype": dtype("int64")},
    infer=_infer,
    lower=sample_token,
    reference=_ref,
    doc="A token (n, 1) for each row of logits (n, vocabulary). Tokens of `history` (n, length; -1 is none) have their "
    "logits divided by `penalty`, or multiplied where they are negative; all are divided by `temperature`, 0 of which "
    "takes the greatest. Of the `top_k` greatest (0: of all) the first remain whose probabilities reach `top_p`; "
    "`uniform` in [0, 1) chooses among them by index. Parameters are (n, 1). Rows that are no distribution give -1.",
)
