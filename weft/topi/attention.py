"""Attention over (batch, sequence, heads, size) tensors, as stages: scores, softmax, weighted values."""

from __future__ import annotations

import math
from typing import Any

from weft import te, tir
from weft.ir import as_int, cast, const, floordiv, if_then_else, int64
from weft.topi.broadcast import broadcast_index
from weft.topi.norm import softmax
from weft.topi.precision import accumulator, narrowed
from weft.topi.shape import simplify

__all__ = ["attention", "attention_scale", "visible"]


def attention_scale(scale: Any, size: Any) -> float | None:
    """The factor of the scores: as given, else the inverse root of the head size; None where that is not constant."""
    if scale is not None:
        return float(scale)
    return 1.0 / math.sqrt(as_int(size)) if as_int(size) else None  # type: ignore[arg-type]


def visible(i: Any, j: Any, n_queries: Any, n_keys: Any, causal_mask: str | None, window_size: int | None) -> Any:
    """Whether query `i` sees key `j`."""
    offset = simplify(n_keys - n_queries) if causal_mask == "BottomRight" else int64(0)
    seen = const(True, "bool") if causal_mask is None else j <= i + offset
    return seen if window_size is None else tir.all(seen, j > i + offset - int64(int(window_size)))


def attention(
    query: Any, key: Any, value: Any, bias: Any = None, scale: float | None = None, causal_mask: str | None = None,
    window_size: int | None = None
) -> Any:  # fmt: skip
    """``softmax(query @ key.T * scale + bias) @ value`` for each head; several query heads may share one key head."""
    b, n_queries, heads, size = query.shape
    n_keys, wide = key.shape[1], accumulator(query.dtype)
    factor = attention_scale(scale, size)
    by: Any = tir.rsqrt(cast(wide, size)) if factor is None else const(factor, wide)
    shared = simplify(floordiv(heads, key.shape[2]))
    head = (lambda h: h) if as_int(shared) == 1 else (lambda h: floordiv(h, shared))
    k = te.reduce_axis((int64(0), size), "k")
    scores = te.compute(
        (b, heads, n_queries, n_keys),
        lambda n, h, i, j: te.sum(cast(wide, query(n, i, h, k.var)) * cast(wide, key(n, j, head(h), k.var)), axis=k),
        name="T_scores",
    )

    def masked(n: Any, h: Any, i: Any, j: Any) -> Any:
        score = scores(n, h, i, j) * by
        if bias is not None:
            score = score + cast(wide, bias(*broadcast_index(bias.shape, scores.shape, (n, h, i, j))))
        return if_then_else(visible(i, j, n_queries, n_keys, causal_mask, window_size), score, te.lowest(wide))

    weights = softmax(te.compute(scores.shape, masked, name="T_masked"), -1)
    j = te.reduce_axis((int64(0), n_keys), "j")
    out = te.compute(
        (b, n_queries, heads, value.shape[3]),
        lambda n, i, h, d: te.sum(weights(n, h, i, j.var) * cast(wide, value(n, j.var, head(h), d)), axis=j),
        name="T_attention",
    )
    return narrowed(out, query.dtype)
