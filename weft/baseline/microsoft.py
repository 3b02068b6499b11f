"""Operators of ``com.microsoft`` that ONNX Runtime's optimizer and quantizers write, in NumPy.

Source: ONNX Runtime's ContribOperators.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.baseline.operators import OPERATORS, floats
from weft.baseline.quantized import dequantize, dynamic_quantize, matmul_integer, quantize, requantized
from weft.baseline.refusal import NotInBaseline

_known = OPERATORS.__getitem__


def operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function under a name of this domain."""
    return OPERATORS.on(f"com.microsoft.{name}")


def _nine(operands: Sequence[np.ndarray]) -> list[Any]:
    """List operands of which the last may be left out."""
    return [*operands, *[None] * (9 - len(operands))]


# ---- products and activations ----------------------------------------------------------------------------------------


@operator("FusedMatMul")
def _fused_matmul(a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> np.ndarray:
    left, right = a.swapaxes(-1, -2) if transA else a, b.swapaxes(-1, -2) if transB else b
    return _known("MatMul")(left, right) * np.float32(alpha)


def _activated(name: str, x: np.ndarray, *parameters: float) -> np.ndarray:
    if name in ("", "Relu", "Sigmoid", "Tanh"):
        return _known(name)(x) if name else x
    if name in ("LeakyRelu", "HardSigmoid"):
        return _known(name)(x, **dict(zip(("alpha", "beta"), parameters, strict=False)))
    if name != "Clip":
        raise NotInBaseline(f"the activation {name}")
    low, high = parameters
    return np.clip(x, np.float32(low), np.float32(high))


@operator("FusedConv")
def _fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    added: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **form: object,
) -> np.ndarray:
    out = _known("Conv")(x, w, bias, **form)
    return _activated(activation, out if added is None else out + added, *activation_params)


@operator("FusedGemm")
def _fused_gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    **form: object,
) -> np.ndarray:
    parameters = [p for p in (activation_alpha, activation_beta) if p is not None]
    return _activated(activation, _known("Gemm")(a, b, c, **form), *parameters)


operator("Gelu")(lambda x: _known("Gelu")(x))
operator("BiasGelu")(lambda x, bias: _known("Gelu")(x + bias))
operator("QuickGelu")(lambda x, *, alpha=1.702: _known("Swish")(x, alpha=alpha))


@operator("FastGelu")
def _fast_gelu(x: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    return _known("Gelu")(x if bias is None else x + bias, approximate="tanh")


# ---- norms -----------------------------------------------------------------------------------------------------------


def _skip(
    name: str, x: np.ndarray, skip: np.ndarray, bias: np.ndarray | None, *factors: np.ndarray | None, epsilon: float
) -> tuple[Any, ...]:
    total = x + skip if bias is None else x + skip + bias
    floats(total)
    return _known(name)(total, *factors, epsilon=epsilon), None, None, total


@operator("SkipLayerNormalization")
def _skip_layer_norm(
    x: np.ndarray,
    skip: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Any, ...]:
    return _skip("LayerNormalization", x, skip, bias, scale, shift, epsilon=epsilon)


@operator("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(
    x: np.ndarray, skip: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None, *, epsilon: float = 1e-12
) -> tuple[Any, ...]:
    return _skip("RMSNormalization", x, skip, bias, scale, epsilon=epsilon)


@operator("EmbedLayerNormalization")
def _embed(*operands: np.ndarray, epsilon: float = 1e-12, mask_index_type: int = 1) -> tuple[Any, ...]:
    ids, segments, words, places, kinds, scale, shift, mask, at = _nine(operands)
    if any(i is not None and (i < 0).any() for i in (ids, segments, at)):
        raise NotInBaseline("an index out of range")
    total = words[ids] + (places[: ids.shape[1]] if at is None else places[at])
    total = total if segments is None else total + kinds[segments]
    ends = np.zeros(len(ids), np.int32) if mask is None else mask.sum(1, dtype=np.int32)
    return _known("LayerNormalization")(total, scale, shift, epsilon=epsilon), ends, total


# ---- attention -------------------------------------------------------------------------------------------------------


def _attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray | None, heads: int, scale: float | None, causal: int
) -> np.ndarray:
    """Return attention over rows (b, s, h * d); `added` spreads over scores (b, h, s, t)."""
    query, key, value = (x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (q, k, v))
    scores = query @ key.swapaxes(2, 3) * np.float32(scale or query.shape[-1] ** -0.5)
    if added is not None:
        scores = scores + added
    if causal:
        seen = np.tri(*scores.shape[2:], k=scores.shape[3] - scores.shape[2], dtype=np.bool_)
        scores = np.where(seen, scores, np.finfo(np.float32).min)
    out = _known("Softmax")(scores) @ value
    return np.ascontiguousarray(out.swapaxes(1, 2)).reshape(*q.shape[:2], -1)


def _masked(added: np.ndarray | None, mask: np.ndarray | None, keys: int, least: float) -> Any:
    """Return what is added to scores, with `least` where a mask of 0 and 1 for each key, or of lengths, hides them."""
    if mask is None:
        return added
    if mask.ndim == 1:
        mask = (np.arange(keys) < mask[:, None]).astype(np.int32)
    if mask.ndim != 2 or mask.shape[1] != keys:
        raise NotInBaseline("a mask of another kind")
    hidden = ((1 - mask.astype(np.float32)) * np.float32(least))[:, None, None]
    return hidden if added is None else hidden + added


def _self_attention(
    rows: np.ndarray,
    mask: np.ndarray | None,
    past: np.ndarray | None,
    added: np.ndarray | None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
) -> np.ndarray:
    if past is not None:
        raise NotInBaseline("a cache")
    q, k, v = np.split(rows, 3, -1)
    return _attend(q, k, v, _masked(added, mask, rows.shape[1], mask_filter_value), num_heads, scale, unidirectional)


@operator("Attention")
def _attention(*operands: np.ndarray, **form: Any) -> np.ndarray:
    x, w, bias, mask, past, added, *_ = _nine(operands)
    rows = _known("MatMul")(x, w)
    return _self_attention(rows if bias is None else rows + bias, mask, past, added, **form)


@operator("QAttention")
def _quantized_attention(*operands: np.ndarray, **form: Any) -> np.ndarray:
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = _nine(operands)
    return _self_attention(_integer_to_float(x, w, x_scale, w_scale, x_zero, w_zero, bias), mask, past, None, **form)


@operator("MultiHeadAttention")
def _multi_head_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    added: np.ndarray | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> np.ndarray:
    if not q.ndim == k.ndim == v.ndim == 3:
        raise NotInBaseline("operands of another form")
    if bias is not None:
        parts = np.split(bias, np.cumsum([q.shape[2], k.shape[2]]))
        q, k, v = (x + part for x, part in zip((q, k, v), parts, strict=True))
    return _attend(q, k, v, _masked(added, mask, k.shape[1], mask_filter_value), num_heads, scale, unidirectional)


# ---- quantized values ------------------------------------------------------------------------------------------------


@operator("MatMulIntegerToFloat")
def _integer_to_float(
    a: np.ndarray,
    b: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero: np.ndarray | None = None,
    b_zero: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    out = matmul_integer(a, b, a_zero, b_zero).astype(np.float32) * (a_scale * b_scale)
    return out if bias is None else out + bias


@operator("DynamicQuantizeMatMul")
def _dynamic_matmul(
    a: np.ndarray, b: np.ndarray, b_scale: np.ndarray, b_zero: np.ndarray | None = None, bias: np.ndarray | None = None
) -> np.ndarray:
    narrow, scale, zero = dynamic_quantize(a)
    return _integer_to_float(narrow, b, scale, b_scale, zero, b_zero, bias)


def _in_floats(compute: Callable[..., Any], count: int, *operands: np.ndarray, **attributes: object) -> np.ndarray:
    """Compute on what `count` operands of three stand for; the last two are the scale and the zero of the result."""
    values = [dequantize(*operands[3 * i : 3 * i + 3]) for i in range(count)]
    return quantize(compute(*values, **attributes), *operands[3 * count :])


for _name in ("Add", "Mul", "LeakyRelu", "Sigmoid", "AveragePool", "GlobalAveragePool"):
    operator(f"QLinear{_name}")(partial(_in_floats, _known(_name), 2 if _name in ("Add", "Mul") else 1))


@operator("QLinearSoftmax")
def _qlinear_softmax(*operands: np.ndarray, opset: int, axis: int = -1) -> np.ndarray:
    if opset < 13 and axis not in (-1, operands[0].ndim - 1):
        raise NotInBaseline("rows of several axes")
    return _in_floats(_known("Softmax"), 1, *operands, axis=axis)


@operator("QLinearConcat")
def _qlinear_concat(scale: np.ndarray, zero: np.ndarray, *operands: np.ndarray, axis: int) -> np.ndarray:
    return _in_floats(_known("Concat"), len(operands) // 3, *operands, scale, zero, axis=axis)


@operator("QGemm")
def _qgemm(*operands: np.ndarray, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> np.ndarray:
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = _nine(operands)
    left, right = a.T if transA else a, b.T if transB else b
    sums = matmul_integer(left, right, a_zero, b_zero) + (0 if c is None else c)
    factor = np.float32(alpha) * a_scale * b_scale
    return sums.astype(np.float32) * factor if zero is None else requantized(sums, factor / scale, zero)
