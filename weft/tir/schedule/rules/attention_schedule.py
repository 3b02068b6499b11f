"""Which loops an attention gets: rows for few queries, tiles for more; both where their number is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.ir import TRUE, Range, Var, as_int, is_const_int, substitute
from weft.machine import TargetLike
from weft.tir.buffer import Buffer, BufferRegion
from weft.tir.function import PrimFunc
from weft.tir.schedule.rules.attention import AttentionParts, attention_of
from weft.tir.schedule.rules.attention_loops import AttentionLoops
from weft.tir.schedule.rules.attention_rows import rows_of_queries, suits_rows
from weft.tir.schedule.rules.attention_tiles import tiles_of_queries
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.schedule import Schedule
from weft.tir.stmt import Block, BlockRealize, IfThenElse, Stmt

_FEW = 4
"""Queries up to this number are computed one by one: more fill enough lanes of a tile."""


def schedule_attention(func: PrimFunc, target: TargetLike | None) -> PrimFunc | None:
    """Return a function that is an attention as one kernel; None for any other function.

    Parameters
    ----------
    target : Target or Machine, optional
        Which machine it is for.
    """
    parts = attention_of(func)
    if parts is None or any(is_const_int(e, 0) for _, e in (*parts.outer, parts.query)):
        return None
    ctx = RuleContext(Schedule(func), target)
    inputs = [b for _, b in func.buffer_map if b is not parts.store.buffer]
    body = _loops(parts, ctx)
    block = Block((), _whole(inputs), _whole([parts.store.buffer]), "attention", body)
    root = Block((), (), (), func.root.name_hint, BlockRealize((), TRUE, block))
    return func.replace(body=BlockRealize((), TRUE, root))


def _loops(parts: AttentionParts, ctx: RuleContext) -> Stmt:
    tiles, rows = (AttentionLoops(p, ctx.machine) for p in (parts, _renamed(parts)))
    n = as_int(tiles.n_queries)
    if not suits_rows(rows) or (n is not None and n > _FEW):
        return tiles_of_queries(tiles)
    few = rows_of_queries(rows)
    if n is not None:
        return few
    return IfThenElse(tiles.n_queries <= tiles.number(_FEW), few, tiles_of_queries(tiles))


def _renamed(parts: AttentionParts) -> AttentionParts:
    """Give batches and heads variables of their own, for a second set of loops."""
    names: dict[Any, Any] = {v: Var(v.name, v.dtype) for v, _ in parts.outer}
    q, k, v, score, masked, store = (
        substitute(x, names) for x in (parts.q, parts.k, parts.v, parts.score, parts.masked, parts.store)
    )
    outer = tuple((names[x], e) for x, e in parts.outer)
    past = parts.past and (parts.past[0], substitute(parts.past[1], names), substitute(parts.past[2], names))
    return replace(parts, outer=outer, q=q, k=k, v=v, score=score, masked=masked, store=store, past=past)


def _whole(buffers: Sequence[Buffer]) -> tuple[BufferRegion, ...]:
    return tuple(BufferRegion(b, tuple(Range(d) for d in b.shape)) for b in buffers)
