"""LoopPartition: boundary conditions leave the inner tile.

A condition such as ``io * 8 + ii < n`` depends on tile loops (unrolled or vectorised) that are always cheap to run in
full. Where the outer variables are known, one test of the worst case picks between a copy of the body without the
condition and the original: the tile itself has no branches, and only the last tiles of a dimension run the careful
copy. Of a condition that a schedule wrote (``likely``), the innermost loop counts as tile whatever its kind, and so
does a loop with the pragma ``loop_partition_hint``.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import groupby
from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import (
    calls,
    conjuncts,
    fresh_definitions,
    knowing_dimensions,
    replace_node,
    stmt_children,
)
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, AttrStmt, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt, seq
from weft.tir.transform.extent import bound_over
from weft.tir.transform.loop_cut import NOTHING, Cut

_TILE = (ForKind.UNROLLED, ForKind.VECTORIZED)


@ir.function_pass(kind=PrimFunc)
def loop_partition(func: PrimFunc, mod: ir.IRModule, *, cut: bool = False) -> PrimFunc:
    """Version tile bodies on whether their boundary conditions can fail.

    Requires: No blocks.
    Ensures: The same form; conditions that hold everywhere are gone. ``PassContext(config={"tir.LoopPartition":
        {"partition_const_loop": False}})`` leaves those alone that only constants and loops of constant extent decide.
        With `cut`, as under TVM's name, loops are first cut where a ``likely`` condition changes (``loop_cut``).
    Before::

        @T.prim_func
        def f(a: T.handle, b: T.handle, n: T.int32):
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            for i in range((n + 3) // 4):
                for j in T.vectorized(4):
                    if i * 4 + j < n:
                        B[i * 4 + j] = A[i * 4 + j]

    After::

        @T.prim_func
        def f(a: T.handle, b: T.handle, n: T.int32):
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            for i in range((n + 3) // 4):
                if i * 4 + 3 < n:
                    for j in T.vectorized(4):
                        B[i * 4 + j] = A[i * 4 + j]
                else:
                    for j in T.vectorized(4):
                        if i * 4 + j < n:
                            B[i * 4 + j] = A[i * 4 + j]
    Cost: Linear; each versioned body is copied once for each group of conditions decided at the same place.
    Source: TVM's ``LoopPartition``, decided at run time.
    """
    config = ir.PassContext.current().config.get("tir.LoopPartition", {})
    analyzer = knowing_dimensions(func.buffer_map)
    if cut or config.get("partition_const_loop", False):
        func = func.replace(body=Cut(analyzer, config).visit(func.body))
    if cut:
        return func
    return func.replace(body=_Partition(analyzer, config.get("partition_const_loop", True)).visit(func.body))


class _Partition:
    def __init__(self, analyzer: arith.Analyzer, constant: bool) -> None:
        self.analyzer, self.constant = analyzer, constant
        self.seen: set[Any] = set()
        self.around: list[For] = []

    def visit(self, node: ir.Node) -> Any:
        """Visit statements top-down."""
        if isinstance(node, IfThenElse):
            condition = self.analyzer.simplify(node.condition)
            if isinstance(condition, ir.IntImm):
                if condition.value:
                    return self.visit(node.then_case)
                return self.visit(node.else_case) if node.else_case is not None else NOTHING
            with self.analyzer.constraint_scope(condition):
                then_case = self.visit(node.then_case)
            else_case = self.visit(node.else_case) if node.else_case is not None else None
            return ir.with_fields(node, condition=condition, then_case=then_case, else_case=else_case)
        if isinstance(node, For):
            self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
            self.around.append(node)
            body = node.body if _is_tile(node) else self.version(node.body)
            body = self.visit(body)
            self.around.pop()
            return node if body is node.body else replace_node(node, body=body)
        return ir.rebuild(node, self.visit) if isinstance(node, Stmt) else node

    def version(self, body: Stmt) -> Stmt:
        """Version a body on the worst case of conditions whose other variables are all known here."""
        conditions = self._decidable(body)
        if not conditions:
            return body
        worst: ir.PrimExpr = ir.TRUE
        for _, c, _ in conditions:
            if worst is ir.TRUE or not any(x is c or ir.structural_equal(x, c) for x in conjuncts(worst)):
                worst = ir.logical_and(worst, c)
        decided = {c: self.analyzer.simplify(some) for c, _, some in conditions}
        self.seen.update(decided)
        worst = self.analyzer.simplify(worst)
        if isinstance(worst, ir.IntImm):
            return _assume(body, decided) if worst.value else body
        return _versions(body, worst, decided)

    def _decidable(self, body: Stmt) -> list[tuple[ir.PrimExpr, ir.PrimExpr, ir.PrimExpr]]:
        """List conditions on tile loops in `body`, else on what is known outside: each, for whole tiles, for parts."""
        loops = ir.find(body, For)
        inner = {f.loop_var: (f.min, f.min + f.extent - 1) for f in loops}
        tiles = {f.loop_var: inner[f.loop_var] for f in loops if _is_tile(f)}
        fixed = {f.loop_var for f in (*self.around, *loops) if isinstance(f.extent, ir.IntImm)}
        out = []
        for node in ir.find(body, IfThenElse):
            for c in conjuncts(node.condition):
                if c in self.seen:
                    continue
                used = set(ir.find(c, ir.Var))
                tile = tiles
                if calls(c, "likely") and (own := [v for v in inner if v in used]):
                    tile = {**tiles, own[-1]: inner[own[-1]]}
                if not used & tile.keys() or (used & inner.keys()) - tile.keys():
                    continue
                if not self.constant and used <= fixed:
                    continue
                cases = _cases(c, tile)
                if cases is not None:
                    out.append((c, *cases))
        return out


def _versions(stmt: Stmt, worst: ir.PrimExpr, conditions: dict[ir.PrimExpr, ir.PrimExpr]) -> Stmt:
    """Version what `conditions` are asked in; a sum before it, which they have no part in, stays one loop."""
    if not _has_loop_apart(stmt, conditions):
        fast = _assume(stmt, conditions)
        if ir.find(stmt, AllocBuffer):  # a buffer is allocated once
            fast = ir.substitute(fast, fresh_definitions(fast))
        careful: Stmt | None = stmt
        for c, some in conditions.items():  # of a tile with no element inside every lane would be masked
            if careful is not None and not ir.is_const_int(some, 1) and _guards(c, stmt):
                careful = None if ir.structural_equal(some, worst) else IfThenElse(some, careful)
        return IfThenElse(worst, fast, careful)
    if not isinstance(stmt, SeqStmt):
        return ir.rebuild(stmt, lambda n: _versions(n, worst, conditions) if isinstance(n, Stmt) else n)
    parts: list[Stmt] = []
    for at_once, run in groupby(stmt.seq, lambda x: _asks(x, conditions) and not _has_loop_apart(x, conditions)):
        if at_once:
            parts.append(_versions(seq(*run), worst, conditions))
        else:
            parts += [_versions(x, worst, conditions) if _asks(x, conditions) else x for x in run]
    return seq(*parts)


def _guards(c: ir.PrimExpr, stmt: Stmt) -> bool:
    """Whether a statement does nothing where a condition is false."""
    if isinstance(stmt, IfThenElse) and stmt.else_case is None and c in conjuncts(stmt.condition):
        return True
    inside = stmt_children(stmt)
    return bool(inside) and all(_guards(c, x) for x in inside)


def _has_loop_apart(stmt: Stmt, conditions: Container[ir.PrimExpr]) -> bool:
    """Whether a sequence in a statement has a loop that asks none of some conditions, before or behind what does."""
    if isinstance(stmt, SeqStmt):
        asking = [x for x in stmt.seq if _asks(x, conditions)]
        apart = any(ir.find(x, For) for x in stmt.seq if x not in asking)
        return bool(asking) and (apart or any(_has_loop_apart(x, conditions) for x in asking))
    if isinstance(stmt, For) and _is_tile(stmt):
        return False
    return isinstance(stmt, (AllocBuffer, AttrStmt, For, LetStmt)) and _has_loop_apart(stmt.body, conditions)


def _asks(stmt: Stmt, conditions: Container[ir.PrimExpr]) -> bool:
    return any(c in conditions for x in ir.find(stmt, IfThenElse) for c in conjuncts(x.condition))


def _is_tile(loop: For) -> bool:
    return loop.kind in _TILE or bool(ir.as_int(loop.annotations.get("pragma_loop_partition_hint", 0)))


def _cases(c: ir.PrimExpr, tile: Any) -> tuple[ir.PrimExpr, ir.PrimExpr] | None:
    """Conditions on outer variables: one implies `c` for a whole tile, `c` for a part of it implies the other."""
    if calls(c, "likely"):
        c = c.args[0]  # type: ignore[attr-defined]
    if not isinstance(c, (ir.LT, ir.LE, ir.GT, ir.GE)):
        return None
    a, b = bound_over(c.a, tile), bound_over(c.b, tile)
    if a is None or b is None:
        return None
    low, high = type(c)(a[0], b[1]), type(c)(a[1], b[0])
    return (high, low) if isinstance(c, (ir.LT, ir.LE)) else (low, high)


def _assume(body: Stmt, true: Container[ir.PrimExpr]) -> Stmt:
    """Replace conditions by true and drop what that decides."""

    def rule(node: ir.Node) -> Any:
        if isinstance(node, ir.And):
            return ir.logical_and(node.a, node.b)
        if isinstance(node, IfThenElse) and isinstance(node.condition, ir.IntImm):
            return node.then_case if node.condition.value else (node.else_case or NOTHING)
        return node

    return ir.rewrite(body, rule, pre=lambda n: ir.TRUE if n in true else None)
