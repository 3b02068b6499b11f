"""How many keys a block of queries sees: those behind the last one that any of them sees need no products.

Masks come as conditions (causal attention) or as numbers that are added (padding, and causal masks of most exported
models), whose values are known at run time only. So a block looks at its part of the mask first. That a key has no
weight is certain only for queries that see another one: where a query sees none, the block is computed again in full.
"""

from __future__ import annotations

from typing import Any

from weft.ir import Add, And, CallIntrin, Cast, FloatImm, Max, Min, Not, PrimExpr, Select, cast, const
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import decl_buffer
from weft.tir.schedule.rules.attention_loops import AttentionLoops
from weft.tir.stmt import AllocBuffer, BufferStore, ForKind, IfThenElse, Stmt, seq

NOTHING = -1e30
"""What is added below this leaves a score no weight beside one above a tenth of it."""


class SeenKeys:
    """The mask of an attention as a condition.

    Attributes
    ----------
    condition : PrimExpr or None
        Whether a query sees a key, in the variables of the last sum; None where all see all.
    """

    def __init__(self, loops: AttentionLoops) -> None:
        self.k = loops
        self.condition = self._condition(loops.parts.masked)

    def _condition(self, expr: PrimExpr) -> PrimExpr | None:
        if isinstance(expr, Cast):
            return self._condition(expr.value)
        if isinstance(expr, Add):
            for score, added in ((expr.a, expr.b), (expr.b, expr.a)):
                if self._has_score(score) and not self._has_score(added):
                    return _both(added > const(NOTHING, added.dtype), self._condition(score))
        chosen = _choice(expr)
        if chosen is not None and not self._has_score(chosen[0]):
            test, kept, other = chosen
            if _is_nothing(other):
                return _both(test, self._condition(kept))
            if _is_nothing(kept):
                return _both(Not(test), self._condition(other))
        return None

    def _has_score(self, expr: PrimExpr) -> bool:
        return any(x.buffer is self.k.parts.score.buffer for x in loads_of(expr))

    def count(self, rows: PrimExpr, into: BufferStore) -> Stmt:
        """Find how many keys the first `rows` queries of a block see, all of them where that is none.

        Parameters
        ----------
        into : BufferStore
            Where to: its value is not looked at.
        """
        k, lanes = self.k, self.k.lanes
        assert self.condition is not None
        if k.parts.query[0] not in used_vars(self.condition):
            rows = k.number(1)
        ends = decl_buffer((k.number(lanes),), "int32", "ends", scope="local")
        zero = const(0, "int32")

        def look(query: PrimExpr, key: PrimExpr, at: PrimExpr) -> Stmt:
            seen = k.at(self.condition, query=query, key=key)
            end = Select(seen, cast("int32", key + k.number(1)), zero)
            return BufferStore(ends, Max(ends[at], end), (at,))

        def row(r: PrimExpr) -> Stmt:
            step = k.number(lanes)
            whole = k.n_keys // step
            vectors = k.loop("t", whole, lambda t: k.vector(lambda x: look(k.first + r, t * step + x, x)))
            rest = k.loop("j", k.n_keys % step, lambda j: look(k.first + r, whole * step + j, k.number(0)))
            return seq(vectors, rest)

        first = k.number(0)
        found = Select(ends[first] > zero, cast(k.index, ends[first]), k.n_keys)
        return AllocBuffer(
            ends,
            seq(
                k.vector(lambda x: BufferStore(ends, zero, (x,))),
                k.loop("r", rows, row),
                k.loop("x", lanes, lambda x: BufferStore(ends, Max(ends[first], ends[x]), (first,)), ForKind.UNROLLED),
                BufferStore(into.buffer, found, into.indices),
            ),
        )

    def until_certain(self, rows: PrimExpr, top: Any, width: int, once: Any) -> Stmt:
        """Run ``once(n_keys)`` with the keys that are seen, and with all of them where a query sees none.

        Parameters
        ----------
        top : Buffer
            Has the largest masked scores of `width` queries in its row 0.
        """
        k = self.k
        zero = k.number(0)
        limit = decl_buffer((k.number(1),), k.index, "limit", scope="local")
        least = decl_buffer((k.number(1),), "float32", "least", scope="local")

        def put(value: PrimExpr) -> BufferStore:
            return BufferStore(limit, value, (zero,))

        lowest = seq(
            BufferStore(least, top[zero, zero], (zero,)),
            k.loop("x", width, lambda x: BufferStore(least, Min(least[zero], top[zero, x]), (zero,)), ForKind.UNROLLED),
            IfThenElse(least[zero] < const(NOTHING / 10, "float32"), put(k.n_keys), put(k.number(-1))),
        )
        again = IfThenElse(limit[zero] < k.n_keys, lowest, put(k.number(-1)))
        turns = k.loop("turn", 2, lambda _: IfThenElse(limit[zero] >= zero, seq(once(limit[zero]), again)))
        return AllocBuffer(limit, AllocBuffer(least, seq(self.count(rows, put(zero)), turns)))


def _both(a: Any, b: PrimExpr | None) -> Any:
    return a if b is None else And(a, b)


def _choice(expr: PrimExpr) -> tuple[Any, Any, Any] | None:
    if isinstance(expr, Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, CallIntrin) and expr.op.name == "tir.if_then_else":
        return expr.args[0], expr.args[1], expr.args[2]
    return None


def _is_nothing(expr: PrimExpr) -> bool:
    return isinstance(expr, FloatImm) and expr.value <= NOTHING
