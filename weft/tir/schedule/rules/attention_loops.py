"""What kernels of attention share: places of operands, small loops, and how heads become tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from weft.ir import NE, Attrs, CallIntrin, Node, PrimExpr, Select, Var, as_int, cast, const, rewrite, substitute
from weft.machine import Machine
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.rules.attention import AttentionParts
from weft.tir.stmt import For, ForKind, LetStmt, Stmt

LOWEST = -3.4028234663852886e38
"""The maximum of scores before there are any: below all others, and no infinity, whose differences are no numbers."""


class Stretch(NamedTuple):
    """Keys from `begin` to `end`, and the loads that stand for them and their values."""

    begin: PrimExpr
    end: PrimExpr
    k: BufferLoad
    v: BufferLoad


class AttentionLoops:
    """The operands of an attention and the machine; the methods make expressions and loops.

    Attributes
    ----------
    first : Var
        The first query that a task computes.
    depth, columns : int
        Sizes of a head of queries and keys, and of values.
    stretches : list of Stretch
        The keys: all of one tensor, or of the past and then of another.
    """

    def __init__(self, parts: AttentionParts, machine: Machine) -> None:
        self.parts, self.machine, self.lanes = parts, machine, machine.lanes(32)
        self.index = parts.query[0].dtype
        self.n_queries, self.n_keys = (cast(self.index, e) for e in (parts.query[1], parts.key[1]))
        self.depth, self.columns = as_int(parts.depth[1]) or 0, as_int(parts.column[1]) or 0
        self.first = Var("first_query", self.index)
        zero = self.number(0)
        self.stretches = [Stretch(zero, self.n_keys, parts.k, parts.v)]
        if parts.past is not None:
            middle = cast(self.index, parts.past[0])
            self.stretches = [Stretch(zero, middle, *parts.past[1:]), Stretch(middle, self.n_keys, parts.k, parts.v)]

    def number(self, value: int) -> PrimExpr:
        """An index."""
        return const(value, self.index)

    def loop(
        self,
        name: str,
        extent: Any,
        body: Callable[[Var], Stmt],
        kind: ForKind = ForKind.SERIAL,
        notes: Mapping[str, Any] | None = None,
    ) -> Stmt:
        """Make a loop from zero, with annotations."""
        extent = self.number(extent) if isinstance(extent, int) else extent
        var = Var(name, self.index)
        return For(var, self.number(0), extent, kind, body(var), None, Attrs.of(notes or {}))

    def vector(self, body: Callable[[Var], Stmt]) -> Stmt:
        """Make a loop over the lanes of a vector."""
        return self.loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def at(self, expr: Any, query: PrimExpr | None = None, key: Any = None, depth: Any = None, col: Any = None) -> Any:
        """Put places in for the variables of a sum."""
        p = self.parts
        given = ((p.query[0], query), (p.key[0], key), (p.depth[0], depth), (p.column[0], col))
        return substitute(expr, {v: cast(v.dtype, x) for v, x in given if x is not None})

    def masked(self, query: PrimExpr, key: PrimExpr, load: Callable[[BufferLoad], PrimExpr | None]) -> PrimExpr:
        """What the softmax is taken of, for a query and a key; `load` may replace loads, and does so for the score."""

        def put_in(node: Node) -> Any:
            if isinstance(node, BufferLoad):
                replaced = load(node)
                return node if replaced is None else replaced
            if isinstance(node, CallIntrin) and node.op.name == "tir.if_then_else":
                return Select(*node.args)
            return node

        return self.at(rewrite(self.parts.masked, put_in), query=query, key=key)

    def inverse(self, total: PrimExpr) -> PrimExpr:
        """The factor of weights whose sum is `total`: without keys, or without one that is seen, it may be 0."""
        zero = const(0.0, "float32")
        some = NE(total, zero) if self.parts.unseen else self.n_keys > self.number(0)
        return Select(some, const(1.0, "float32") / total, zero)

    def tasks(self, blocks: PrimExpr, width: int, body: Stmt, work: int | None) -> Stmt:
        """Run `body` for all batches, heads and blocks of queries, in parallel.

        Parameters
        ----------
        blocks : PrimExpr
            Their number; `width` queries make one.
        work : int, optional
            The cost of a task, where it is known.
        """
        total = blocks
        for _, extent in self.parts.outer:
            total = total * cast(self.index, extent)

        def task(var: Var) -> Stmt:
            result: Stmt = LetStmt(self.first, var % blocks * self.number(width), body)
            place: PrimExpr = var // blocks
            for i, (v, extent) in enumerate(reversed(self.parts.outer)):
                e = cast(self.index, extent)
                own = place if i == len(self.parts.outer) - 1 else place % e
                result = LetStmt(v, cast(v.dtype, own), result)
                place = place // e
            return result

        n_tasks, least = as_int(total), self.machine.task_work
        small = n_tasks is not None and (n_tasks < 2 or (work or least) * n_tasks < 2 * least)
        alone = self.machine.cores < 2 or small
        grain = 1 if work is None else max(1, least // work)
        notes = {"pragma_grain": grain} if grain > 1 and not alone else {}
        return self.loop("task", total, task, ForKind.SERIAL if alone else ForKind.PARALLEL, notes)
