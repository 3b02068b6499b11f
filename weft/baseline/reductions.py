"""Products, reductions and norms, in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.baseline.operators import floats, numbers, operator, placed, within
from weft.baseline.refusal import NotInBaseline


@operator("MatMul")
def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    floats(a, b)
    if b.ndim == 2 and a.ndim > 2:  # one product instead of one a matrix of the batch
        return (a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


@operator("Gemm")
def _gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> np.ndarray:
    floats(a, b, c)
    if a.ndim != 2 or b.ndim != 2:
        raise NotInBaseline("a product of other than matrices")
    out = (a.T if transA else a) @ (b.T if transB else b)
    out = out if alpha == 1.0 else out * np.float32(alpha)
    if c is None:
        return out
    if np.broadcast_shapes(out.shape, c.shape) != out.shape:
        raise NotInBaseline("a summand larger than the product")
    return out + (c if beta == 1.0 else c * np.float32(beta))


@operator("Einsum")
def _einsum(*values: np.ndarray, equation: str) -> np.ndarray:
    floats(*values)
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):  # NumPy spreads lengths of 1, ONNX those of an ellipsis
        before, _, after = term.partition("...")
        named = (*value.shape[: len(before)], *value.shape[value.ndim - len(after) :])
        if any(sizes.setdefault(letter, n) != n for letter, n in zip(before + after, named, strict=True)):
            raise NotInBaseline("lengths that differ")
    return np.einsum(equation.replace(" ", ""), *values, optimize=True)


def _reduction(name: str, compute: Callable[..., Any], types: str) -> None:
    def apply(
        x: np.ndarray, axes: Any = None, *, axes_: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> np.ndarray:
        given = numbers(axes) if axes is not None else tuple(axes_ or ())
        if x.dtype.kind not in types or not x.size or (not given and noop_with_empty_axes):
            raise NotInBaseline(f"{name} of {x.dtype} {x.shape}")
        return compute(x, tuple(placed(a, x.ndim) for a in given) or None, bool(keepdims))

    operator(name)(apply)


_reduction("ReduceSum", lambda x, axes, keep: x.sum(axes, x.dtype, keepdims=keep), "fi")
_reduction("ReduceMean", lambda x, axes, keep: x.mean(axes, np.float32, keepdims=keep), "f")
_reduction("ReduceMax", lambda x, axes, keep: x.max(axes, keepdims=keep), "fi")
_reduction("ReduceMin", lambda x, axes, keep: x.min(axes, keepdims=keep), "fi")
_reduction("ReduceProd", lambda x, axes, keep: x.prod(axes, x.dtype, keepdims=keep), "fi")
_reduction("ReduceL2", lambda x, axes, keep: np.sqrt((x * x).sum(axes, np.float32, keepdims=keep)), "f")
_reduction("ReduceL1", lambda x, axes, keep: np.abs(x).sum(axes, x.dtype, keepdims=keep), "fi")
_reduction("ReduceSumSquare", lambda x, axes, keep: (x * x).sum(axes, x.dtype, keepdims=keep), "fi")
_reduction("ReduceLogSum", lambda x, axes, keep: np.log(x.sum(axes, np.float32, keepdims=keep)), "f")


def _log_sum_exp(x: np.ndarray, axes: Any, keep: bool) -> np.ndarray:
    top = x.max(axes, keepdims=True)
    total = np.log(np.exp(x - top).sum(axes, np.float32, keepdims=keep))
    return total + (top if keep else top.reshape(total.shape))


_reduction("ReduceLogSumExp", _log_sum_exp, "f")


def _extreme(name: str, compute: Callable[..., Any]) -> None:
    def apply(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> np.ndarray:
        if select_last_index or np.isnan(x).any():
            raise NotInBaseline("the last of equal elements")
        return compute(x, placed(axis, x.ndim), keepdims=bool(keepdims)).astype(np.int64)

    operator(name)(apply)


_extreme("ArgMax", np.argmax)
_extreme("ArgMin", np.argmin)


@operator("Softmax")
def _softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    floats(x)
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@operator("LogSoftmax")
def _log_softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    floats(x)
    less = x - x.max(axis, keepdims=True)
    return less - np.log(np.exp(less).sum(axis, keepdims=True))


@operator("CumSum")
def _cumsum(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> np.ndarray:
    at = placed(int(axis.item()), x.ndim)
    if exclusive and x.dtype.kind == "f":
        raise NotInBaseline("a sum of floats without its last")
    x = np.flip(x, at) if reverse else x
    total = np.cumsum(x, at, x.dtype) - (x if exclusive else x.dtype.type(0))
    return np.flip(total, at) if reverse else total


def _normal(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    centred = x - x.mean(axes, np.float32, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, np.float32, keepdims=True) + np.float32(epsilon))


def _channels(x: np.ndarray, *factors: np.ndarray) -> None:
    if any(f.shape != (x.shape[1],) for f in factors):
        raise NotInBaseline("not one number for each channel")


@operator("LayerNormalization")
def _layer_norm(
    x: np.ndarray, scale: np.ndarray, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    floats(x, scale, bias)
    if stash_type != 1:
        raise NotInBaseline("a norm in another type")
    for over in (scale, *([] if bias is None else [bias])):
        within(x, over)
    out = _normal(x, tuple(range(placed(axis, x.ndim), x.ndim)), epsilon) * scale
    return out if bias is None else out + bias


@operator("RMSNormalization", "SimplifiedLayerNormalization")  # the second is ONNX Runtime's name
def _rms_norm(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    floats(x, scale)
    within(x, scale)
    if stash_type != 1:
        raise NotInBaseline("a norm in another type")
    axes = tuple(range(placed(axis, x.ndim), x.ndim))
    return x / np.sqrt((x * x).mean(axes, np.float32, keepdims=True) + np.float32(epsilon)) * scale


@operator("GroupNormalization")
def _group_norm(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    floats(x, scale, bias)
    _channels(x, scale, bias)
    if stash_type != 1:
        raise NotInBaseline("a norm in another type")
    groups = _normal(x.reshape(x.shape[0], num_groups, -1), (2,), epsilon).reshape(x.shape)
    along = (1, -1, *[1] * (x.ndim - 2))
    return groups * scale.reshape(along) + bias.reshape(along)


@operator("InstanceNormalization")
def _instance_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, epsilon: float = 1e-5) -> np.ndarray:
    return _group_norm(x, scale, bias, num_groups=x.shape[1], epsilon=epsilon)


@operator("BatchNormalization")
def _batch_norm(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[np.ndarray, ...]:
    floats(x, scale, bias, mean, variance)
    _channels(x, scale, bias, mean, variance)
    kept: list[np.ndarray] = []
    if training_mode:  # of this batch, which what is known of others follows
        known, others = (mean, variance), tuple(a for a in range(x.ndim) if a != 1)
        mean, variance = x.mean(others, np.float32), x.var(others, np.float32)
        part = np.float32(1 - momentum)
        kept = [k * np.float32(momentum) + new * part for k, new in zip(known, (mean, variance), strict=True)]
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    along = (1, -1, *[1] * (x.ndim - 2))
    return x * factor.reshape(along) + (bias - mean * factor).reshape(along), *kept


@operator("LRN")
def _local_norm(x: np.ndarray, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> np.ndarray:
    floats(x)
    before = (size - 1) // 2
    around = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(x * x, around)
    total = sum((squares[:, i : i + x.shape[1]] for i in range(size)), np.float32(0))
    return x / (np.float32(bias) + np.float32(alpha / size) * total) ** np.float32(beta)
