"""RelaxGuards: a guard around a store into scratch memory goes where everything the store reads exists anyway.

The last column tile of a product may be wider than the output. Its packed operand is padded and its sums are local,
so computing the
columns that nobody writes out costs less than a condition (or a masked load) in the innermost loop.
"""

from __future__ import annotations

from typing import Any

from weft.arith import Analyzer
from weft.ir import And, DataType, IntImm, IRModule, PrimExpr, Range, function_pass, logical_and, rebuild, walk
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, IfThenElse, Stmt

__all__ = ["relax_guards"]


@function_pass(kind=PrimFunc)
def relax_guards(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Drop conditions on stores to local buffers when all loads of the stored value are in bounds without them.

    Requires
        No blocks; buffers with their dimensions, before CompactBuffer, which then makes room for what is stored.
    Ensures
        The same form.
    Cost
        Linear, two proofs for each index of a guarded store.
    """
    analyzer = Analyzer()
    for _, buffer in func.buffer_map:
        for d in buffer.shape:
            analyzer.mark_global_non_neg(d)
    body = _Relax(analyzer).visit(func.body)
    return func if body is func.body else func.replace(body=body)


class _Relax:
    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.local: set[int] = set()

    def visit(self, node: Any) -> Any:
        """Visit statements top-down."""
        if isinstance(node, AllocBuffer) and node.buffer.scope == "local":
            self.local.add(id(node.buffer))
        if isinstance(node, For):
            self.analyzer.bind(node.loop_var, Range(node.min, node.extent), allow_override=True)
        if isinstance(node, IfThenElse) and node.else_case is None and self._scratch(node.then_case):
            return self.guard(node)
        return rebuild(node, self.visit) if isinstance(node, Stmt) else node

    def _scratch(self, stmt: Stmt) -> bool:
        return isinstance(stmt, BufferStore) and id(stmt.buffer) in self.local

    def guard(self, node: IfThenElse) -> Stmt:
        """Keep only those conjuncts that a load needs."""
        store = node.then_case
        assert isinstance(store, BufferStore)
        conjuncts = _conjuncts(node.condition)
        kept = list(conjuncts)
        for c in conjuncts:
            rest = [k for k in kept if k is not c]
            if self._safe(store, rest):
                kept = rest
        if len(kept) == len(conjuncts):
            return node
        condition: PrimExpr | None = None
        for c in kept:
            condition = c if condition is None else logical_and(condition, c)
        return store if condition is None else IfThenElse(condition, store, span=node.span)

    def _safe(self, store: BufferStore, conditions: list[PrimExpr]) -> bool:
        condition: PrimExpr | None = None
        for c in conditions:
            condition = c if condition is None else logical_and(condition, c)
        if condition is None:
            return self._in_bounds(store)
        with self.analyzer.constraint_scope(condition):
            return self._in_bounds(store)

    def _in_bounds(self, store: BufferStore) -> bool:
        for n in walk(store.value):
            if isinstance(n, BufferLoad) and not (n.buffer is store.buffer and n.indices is store.indices):
                if n.buffer is store.buffer or id(n.buffer) in self.local:
                    continue  # scratch, sized for what is accessed
                for i, d in zip(n.indices, n.buffer.shape, strict=True):
                    if (
                        not DataType(i.dtype).is_integer
                        or not self.analyzer.can_prove(i >= 0)
                        or not self.analyzer.can_prove(i < d)
                    ):
                        return False
        return True


def _conjuncts(c: PrimExpr) -> list[PrimExpr]:
    if isinstance(c, And):
        return [*_conjuncts(c.a), *_conjuncts(c.b)]
    return [] if isinstance(c, IntImm) and c.value else [c]
