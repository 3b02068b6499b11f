"""Attention of new tokens behind caches that each sequence of a batch has filled to a place of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weft import error, te, tir
from weft.ir import Broadcast, PrimExpr, Ramp, as_int, cast, ceildiv, const, floordiv, floormod, int64
from weft.topi.attention import attention_scale
from weft.topi.precision import accumulator
from weft.topi.shape import simplify
from weft.topi.typing import Buffers, IRBuilder, Shape
from weft.topi.written import in_pairs, written

_LANES, _FAR = 8, 1 << 61


def _vectors(op: str, x: Any) -> int:
    """Return how many vectors a head has."""
    size = as_int(x.shape[3])
    if size is None or size % _LANES:
        raise error.InvalidArgument(
            f"{op}: a head has a constant size", expected=f"a multiple of {_LANES}", found=str(x.shape[3])
        )
    return size // _LANES


def _lanes(v: int) -> Any:
    return Ramp(int64(v * _LANES), int64(1), _LANES)


def cache_append(cache: te.Tensor, new: te.Tensor, first: te.Tensor, shape: Shape) -> Any:
    """Copy a cache (batch, heads, held, size) to one of another length, with new entries from place `first` on."""
    vectors = range(_vectors("cache_append", new))
    batch, heads, count, _ = new.shape
    held, length = cache.shape[2], shape[2]

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        old, added, place, out = (ib.buffer_ptr(b) for b in (*ins, *outs))

        def rows(begin: Any, end: Any, value: Callable[[Any, int], Any]) -> None:
            with ib.for_range(int64(0), tir.max(end - begin, int64(0)), name="row") as row:
                for v in vectors:
                    out[b, h, begin + row, _lanes(v)] = value(begin + row, v)

        with ib.for_range(int64(0), simplify(batch * heads), name="head", kind="parallel") as at:
            b, h = floordiv(at, heads), floormod(at, heads)
            start = tir.max(tir.min(cast("int64", place[b]), length), int64(0))
            stop = tir.min(start + count, length)
            kept, zero = tir.min(held, length), Broadcast(const(0.0, cache.dtype), _LANES)
            rows(int64(0), tir.min(start, kept), lambda t, v: old[b, h, t, _lanes(v)])
            rows(kept, start, lambda t, v: zero)
            rows(start, stop, lambda t, v: added[b, h, t - start, _lanes(v)])
            rows(stop, kept, lambda t, v: old[b, h, t, _lanes(v)])
            rows(tir.max(stop, kept), length, lambda t, v: zero)

    return written(
        (*new.shape[:2], length, new.shape[3]), [cache, new, first], body, name="T_cache_append", dtype=cache.dtype
    )


class _Attention:
    """The kernel: heads in parallel; scores of a query, their softmax, weighted values."""

    def __init__(
        self, ib: IRBuilder, buffers: list[Any], vectors: int, scale: float, window: int, softcap: float
    ) -> None:
        self.ib, self.vectors, self.scale, self.window, self.softcap = ib, vectors, scale, window, softcap
        self.q, self.k, self.v, self.first, self.out = (ib.buffer_ptr(b) for b in buffers)
        self.dtype = accumulator(self.out.dtype)

    def run(self) -> Any:
        """Return the statement."""
        ib, (batch, heads, queries, _) = self.ib, self.q.buffer.shape
        held = self.k.buffer.shape[2]
        shared = simplify(floordiv(heads, self.k.buffer.shape[1]))
        with ib.for_range(int64(0), simplify(batch * heads), name="head", kind="parallel") as at:
            b, h = floordiv(at, heads), floormod(at, heads)
            scores = ib.allocate(self.dtype, (held + int64(_LANES),), name="scores")
            with ib.for_range(int64(0), queries, name="query") as i:
                place = tir.max(tir.min(cast("int64", self.first[b]), int64(_FAR)), int64(-_FAR)) + i  # no sum wraps
                end = tir.max(tir.min(place + int64(1), held), int64(0))
                begin = int64(0) if self.window < 0 else tir.min(tir.max(place + int64(1 - self.window), int64(0)), end)
                self.query(b, h, floordiv(h, shared), i, begin, end, scores)
        return ib.get()

    def query(self, b: Any, h: PrimExpr, g: PrimExpr, i: PrimExpr, begin: PrimExpr, end: PrimExpr, scores: Any) -> None:
        """Compute one query over the keys that it sees."""
        ib, count = self.ib, end - begin
        top = ib.allocate(self.dtype, (1,), name="top", scope="local")
        parts = ib.allocate(self.dtype, (_LANES,), name="total", scope="local")
        top[int64(0)], parts[_lanes(0)] = const(float("-inf"), self.dtype), Broadcast(const(0.0, self.dtype), _LANES)
        query = [self.ib.let("query", self.wide(self.q[b, h, i, _lanes(v)])) for v in range(self.vectors)]
        with ib.for_range(int64(0), count, name="key") as t:
            score = self.score(query, [self.wide(self.k[b, g, begin + t, _lanes(v)]) for v in range(self.vectors)])
            scores[t] = score
            top[int64(0)] = tir.max(top[int64(0)], score)
        with ib.for_range(count, ceildiv(count, int64(_LANES)) * int64(_LANES), name="rest") as t:
            scores[t] = const(float("-inf"), self.dtype)
        with ib.for_range(int64(0), ceildiv(count, int64(_LANES)), name="keys") as t:
            some = Ramp(t * int64(_LANES), int64(1), _LANES)
            scores[some] = tir.exp(scores[some] - Broadcast(top[int64(0)], _LANES))
            parts[_lanes(0)] = parts[_lanes(0)] + scores[some]
        total = in_pairs([parts[int64(n)] for n in range(_LANES)], operator.add)
        sums = [ib.allocate(self.dtype, (_LANES,), name="sum", scope="local") for _ in range(self.vectors)]
        for total_of in sums:
            total_of[_lanes(0)] = Broadcast(const(0.0, self.dtype), _LANES)
        with ib.for_range(int64(0), count, name="key") as t:
            weight = Broadcast(scores[t], _LANES)
            for v, total_of in enumerate(sums):
                value = self.wide(self.v[b, g, begin + t, _lanes(v)])
                total_of[_lanes(0)] = tir.fma(weight, value, total_of[_lanes(0)])
        part = tir.Select(total > const(0.0, self.dtype), const(1.0, self.dtype) / total, const(0.0, self.dtype))
        for v, total_of in enumerate(sums):
            found = total_of[_lanes(0)] * Broadcast(part, _LANES)
            self.out[b, h, i, _lanes(v)] = cast(f"{self.out.dtype}x{_LANES}", found)

    def wide(self, x: Any) -> Any:
        """Convert a vector to the data type that is computed in."""
        return cast(f"{self.dtype}x{_LANES}", x)

    def score(self, query: list[Any], key: list[Any]) -> Any:
        """Return the score of a key."""
        parts = self.ib.allocate(self.dtype, (_LANES,), name="parts", scope="local")
        parts[_lanes(0)] = query[0] * key[0]
        for factors in zip(query[1:], key[1:], strict=True):
            parts[_lanes(0)] = tir.fma(*factors, parts[_lanes(0)])
        score = in_pairs([parts[int64(n)] for n in range(_LANES)], operator.add) * const(self.scale, self.dtype)
        if not self.softcap:
            return score
        cap = const(self.softcap, self.dtype)
        return tir.tanh(score / cap) * cap


def cached_attention(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    first: te.Tensor,
    scale: float | None = None,
    window: int = -1,
    softcap: float = 0.0,
) -> Any:
    """Attend, from places ``first + i``, to all keys up to the own place, or to the last `window` of them.

    Parameters
    ----------
    query : Tensor
        (batch, heads, queries, size).
    key, value : Tensor
        (batch, groups, held, size): consecutive heads share a group.
    first : Tensor
        (batch,): the place of the first query of each sequence.
    """
    vectors, factor = _vectors("cached_attention", query), attention_scale(scale, query.shape[3])
    assert factor is not None

    def body(ins: Buffers, outs: Buffers) -> Any:
        return _Attention(tir.ir_builder.create(), [*ins, *outs], vectors, factor, int(window), float(softcap)).run()

    return te.extern(query.shape, [query, key, value, first], body, name="T_cached_attention", dtype=query.dtype)
