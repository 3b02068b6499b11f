"""Attention as stages: scores, softmax, weighted values; over tensors of four dimensions or rows of all heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import ir, te, tir
from weft.ir import PrimExpr, as_int, cast, const, floordiv, if_then_else, int64
from weft.topi.broadcast import broadcast_index
from weft.topi.norm import softmax
from weft.topi.precision import accumulator, narrowed
from weft.topi.shape import simplify
from weft.topi.typing import Extent

Reader = Callable[[Any, Any, Any, Any], Any]
"""Reads batch, head, position, place within the head."""


class _Scoring(NamedTuple):
    """How scores become weights."""

    bias: Any
    scale: float | None = None
    causal_mask: str | None = None
    window_size: int | None = None
    fill: float | None = None
    unseen: str = "zero"


def attention_scale(scale: float | None, size: Extent) -> float | None:
    """The factor of the scores: as given, else the inverse root of the head size; None where that is not constant."""
    if scale is not None:
        return float(scale)
    return 1.0 / math.sqrt(as_int(size)) if as_int(size) else None  # type: ignore[arg-type]


def visible(
    i: ir.PrimExpr,
    j: ir.PrimExpr,
    n_queries: ir.PrimExpr,
    n_keys: ir.PrimExpr,
    causal_mask: str | None,
    window_size: int | None,
) -> Any:
    """Whether query `i` sees key `j`."""
    offset = simplify(n_keys - n_queries) if causal_mask == "BottomRight" else int64(0)
    seen = const(True, "bool") if causal_mask is None else j <= i + offset
    return seen if window_size is None else tir.all(seen, j > i + offset - int64(int(window_size)))


def attention(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    bias: te.Tensor | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
    unseen: str = "zero",
) -> Any:
    """``softmax(query @ key.T * scale + bias) @ value`` for each head; several query heads may share one key head.

    Queries that see no key give 0, or NaN if `unseen` is ``"nan"``.
    """
    heads = (query.shape[2], key.shape[2], query.shape[3], value.shape[3])
    readers = tuple((lambda n, h, i, d, x=x: x(n, i, h, d)) for x in (query, key, value))
    sizes = (query.shape[0], query.shape[1], key.shape[1])
    scoring = _Scoring(bias, scale, causal_mask, window_size, None, unseen)
    return _heads(sizes, query.dtype, readers, heads, scoring)


def attention_heads(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    bias: te.Tensor | None = None,
    num_heads: int = 1,
    num_key_heads: int = 1,
    size: int = 0,
    value_size: int = 0,
    offsets: Sequence[int] = (0, 0, 0),
    **scoring: Any,
) -> Any:
    """Attention whose operands are read in place, into rows of all heads.

    An operand of three dimensions has rows in which its heads begin at its offset; one of four has heads before
    positions. Where `bias` is boolean, scores are `fill` where it is false.
    """
    q, k, v = (_reader(x, w, o) for x, w, o in zip((query, key, value), (size, size, value_size), offsets, strict=True))
    sizes = (query.shape[0], _positions(query), _positions(key))
    heads = (num_heads, num_key_heads, size, value_size)
    return _heads(sizes, query.dtype, (q, k, v), heads, _Scoring(bias, **scoring))


def attention_past(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    past_key: te.Tensor,
    past_value: te.Tensor,
    bias: te.Tensor | None = None,
    num_heads: int = 1,
    num_key_heads: int = 1,
    size: int = 0,
    value_size: int = 0,
    offsets: Sequence[int] = (0, 0, 0),
    **scoring: Any,
) -> Any:
    """:func:`attention_heads` over the keys and values of the past, and after them those of `key` and `value`.

    What is of the past has heads before positions.
    """
    widths = (size, size, value_size)
    q, k, v = (_reader(x, w, o) for x, w, o in zip((query, key, value), widths, offsets, strict=True))
    begin = past_key.shape[2]

    def after(past: Any, new: Reader) -> Reader:
        return lambda n, h, j, d: if_then_else(j < begin, past(n, h, j, d), new(n, h, j - begin, d))

    sizes = (query.shape[0], _positions(query), simplify(begin + _positions(key)))
    heads = (num_heads, num_key_heads, size, value_size)
    readers = (q, after(past_key, k), after(past_value, v))
    return _heads(sizes, query.dtype, readers, heads, _Scoring(bias, **scoring))


def _positions(x: Any) -> Any:
    """How many positions an operand of :func:`attention_heads` has."""
    return x.shape[1 if x.ndim == 3 else 2]


def _heads(
    sizes: tuple[Any, ...], dtype: str, readers: tuple[Any, ...], heads: tuple[Any, ...], scoring: _Scoring
) -> Any:
    """Attention of operands that are read by functions.

    `sizes` are those of batch, queries and keys; `heads` the numbers of heads and of key heads, the size of a head of
    queries and keys and of one of values.
    """
    (batch, n_queries, n_keys), wide = sizes, accumulator(dtype)
    n_heads, key_heads, size, value_size = (cast("int64", h) for h in heads)
    shared = simplify(floordiv(n_heads, key_heads))
    head = (lambda h: h) if as_int(shared) == 1 else (lambda h: floordiv(h, shared))
    q, k, v = readers
    shape = (batch, n_heads, n_queries, n_keys)
    weights = _weights(shape, size, dtype, q, lambda n, h, j, d: k(n, head(h), j, d), scoring)
    j = te.reduce_axis((int64(0), n_keys), "j")
    out = te.compute(
        (batch, n_queries, n_heads, value_size),
        lambda n, i, h, d: te.sum(weights(n, h, i, j.var) * cast(wide, v(n, head(h), j.var, d)), axis=j),
        name="T_attention",
    )
    return narrowed(out, dtype)


def _reader(x: Any, size: int, offset: int) -> Reader:
    """How an operand of :func:`attention_heads` is read."""
    if x.ndim == 4:
        return lambda n, h, i, d: x(n, h, i, d)
    return lambda n, h, i, d: x(n, i, h * int64(size) + d + int64(offset))


def _weights(shape: Any, size: Any, dtype: str, query: Reader, key: Reader, scoring: _Scoring) -> Any:
    """The softmax of scaled and masked scores; `shape` is (batch, heads, queries, keys)."""
    wide, bias, fill = accumulator(dtype), scoring.bias, scoring.fill
    factor = attention_scale(scoring.scale, size)
    by: Any = tir.rsqrt(cast(wide, size)) if factor is None else const(factor, wide)
    k = te.reduce_axis((int64(0), size), "k")
    scores = te.compute(
        shape,
        lambda n, h, i, j: te.sum(cast(wide, query(n, h, i, k.var)) * cast(wide, key(n, h, j, k.var)), axis=k),
        name="T_scores",
    )

    def masked(n: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        score = scores(n, h, i, j) * by
        given = None if bias is None else bias(*broadcast_index(bias.shape, scores.shape, (n, h, i, j)))
        if bias is not None and given is not None and bias.dtype == "bool":
            score = tir.Select(given, score, const(-math.inf if fill is None else fill, wide))
        elif given is not None:
            score = score + cast(wide, given)
        seen = visible(i, j, shape[2], shape[3], scoring.causal_mask, scoring.window_size)
        return if_then_else(seen, score, const(-math.inf, wide))

    return softmax(te.compute(scores.shape, masked, name="T_masked"), -1, scoring.unseen)
