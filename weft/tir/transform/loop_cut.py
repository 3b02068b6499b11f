"""Cutting loops where conditions change: each part of a range runs with the conditions that it decides left out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from weft import arith, ir
from weft.arith.form import held, is_stable, poly_of, to_expr
from weft.tir.analysis.structure import calls, conjuncts, fresh_definitions, jumps_out, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, seq

_HINT = "pragma_loop_partition_hint"
_MOST_CUTS = 16
NOTHING = Evaluate(ir.const(0))
_OPPOSITE: dict[type, Any] = {ir.LT: ir.GE, ir.LE: ir.GT, ir.GT: ir.LE, ir.GE: ir.LT}


class Cut:
    """Cuts loops where a condition is marked ``likely``, or which have the pragma ``loop_partition_hint``.

    Visits statements top-down; `analyzer` knows the ranges of the loops around, `options` are TVM's of the pass.
    """

    def __init__(self, analyzer: arith.Analyzer, options: Mapping[str, bool]) -> None:
        self.analyzer, self.options = analyzer, options
        self.around: dict[ir.Var, ir.Range] = {}
        self.hinted: set[ir.Var] = set()

    def visit(self, node: Any) -> Any:
        """Rewrite below a node; conditions that are decided are gone."""
        if isinstance(node, For):
            return self.loop(node)
        if isinstance(node, IfThenElse):
            return self.test(node)
        if isinstance(node, AttrStmt) and node.attr_key == _HINT:  # what lowered blocks leave of a loop's pragma
            self.hinted.add(getattr(node.node, "var", node.node))
            return self.visit(node.body)
        if isinstance(node, ir.Select):
            choice = (node.condition, node.true_value, node.false_value)
        elif isinstance(node, ir.CallIntrin) and calls(node, "if_then_else"):
            choice = node.args
        else:
            return ir.rebuild(node, self.visit)
        decided = self.decided(choice[0])
        return ir.rebuild(node, self.visit) if decided is None else self.visit(choice[1 if decided else 2])

    def decided(self, condition: ir.PrimExpr) -> bool | None:
        """Say whether a condition holds here, or fails; None where iterations differ."""
        found = self.analyzer.simplify(_plain(condition))
        return bool(found.value) if isinstance(found, ir.IntImm) else None

    def test(self, node: IfThenElse) -> Stmt:
        """Rewrite a test."""
        decided = self.decided(node.condition)
        if decided is not None:
            return self.visit((node.then_case if decided else node.else_case) or NOTHING)
        kept = [c for c in conjuncts(node.condition) if not self.decided(c)]
        with self.analyzer.constraint_scope(_plain(node.condition)):
            then_case = self.visit(node.then_case)
        return replace_node(node, condition=ir.all_of(*kept), then_case=then_case, else_case=self.visit(node.else_case))

    def loop(self, loop: For) -> Stmt:
        """Rewrite a loop, or the parts that it is cut into."""
        hint = self.is_hinted(loop)
        first, extent = ir.as_int(loop.min), ir.as_int(loop.extent)
        fixed = (first, first + extent) if first is not None and extent is not None else None
        unasked = fixed and not (hint or self.options.get("partition_const_loop"))
        if unasked or loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED) or any(jumps_out(loop.body)):
            return self.inside(loop)  # a jump is one of its loop, not of a part
        sets = {c: self.ends(loop, c) for c in _conditions(loop.body, hint)}
        points = _constant_cuts(*fixed, [s for both in sets.values() for s in both]) if fixed else None
        if points is None or fixed is None:
            return self.symbolic_parts(loop, sets)
        if not points:
            return self.inside(loop)
        parts = pairwise(ir.const(at, loop.min.dtype) for at in (fixed[0], *points, fixed[1]))
        return seq(*(self.part(loop, a, b, n > 0, {}) for n, (a, b) in enumerate(parts)))

    def ends(self, loop: For, condition: ir.PrimExpr) -> list[arith.IntervalSet]:
        """Return for which iterations a condition holds, whatever inner loops do, and for which it fails."""
        inner = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in ir.find(loop.body, For)}
        own = {n.var for n in ir.find(loop.body, LetStmt, ir.Let)}
        own |= {n.node.var for n in ir.find(loop.body, AttrStmt) if isinstance(n.node, ir.IterVar)}
        used = set(ir.find(condition, ir.Var))
        relaxed = {v: inner[v] for v in inner if v in used}
        limits = [e for r in relaxed.values() for e in (r.min, r.extent)]
        if loop.loop_var not in used or used & own or not all(is_stable(e) for e in (condition, *limits)):
            return []
        opposite = _OPPOSITE.get(type(condition))
        compared: Any = condition
        both = [compared, opposite(compared.a, compared.b)] if opposite else [compared]
        found = [arith.deduce_bound(loop.loop_var, c, self.around, relaxed) for c in both]
        hidden = {*inner, loop.loop_var}
        return [
            s if hidden.isdisjoint(ir.find((s.min_value, s.max_value), ir.Var)) else arith.IntervalSet.nothing()
            for s in found
        ]

    def symbolic_parts(self, loop: For, sets: dict[ir.PrimExpr, list[arith.IntervalSet]]) -> Stmt:
        """Cut a loop around the iterations in which all of some conditions hold."""
        known = {c: both[0] for c, both in sets.items() if both and not both[0].is_nothing()}
        if not known:
            return self.inside(loop)
        first, last = loop.min, loop.min + loop.extent
        begin, end = first, last
        for s in known.values():
            begin = ir.max_(begin, s.min_value) if s.has_lower_bound else begin
            end = ir.min_(end, s.max_value + 1) if s.has_upper_bound else end
        begin = begin if begin is first else self.analyzer.simplify(ir.min_(begin, last))
        end = self.analyzer.simplify(ir.max_(begin, end))
        last = self.analyzer.simplify(last)
        parts = [(first, begin, {}), (begin, end, dict.fromkeys(known, ir.TRUE)), (end, last, {})]
        real = [p for p in parts if not self.analyzer.can_prove_equal(p[0], p[1])]
        return seq(*(self.part(loop, a, b, n > 0, true, whole=len(real) == 1) for n, (a, b, true) in enumerate(real)))

    def part(
        self, loop: For, first: ir.PrimExpr, last: ir.PrimExpr, again: bool, held: dict[Any, Any], whole: bool = False
    ) -> Stmt:
        """Return the iterations from `first` to before `last`, where the conditions of `held` hold."""
        body = ir.rewrite(loop.body, lambda n: n, pre=lambda n: held.get(n) if held else None)
        body = ir.substitute(body, fresh_definitions(body)) if again else body
        extent = self.analyzer.simplify(last - first)
        if ir.is_const_int(extent, 1) and not self.options.get("no_unroll_loop_with_extent_one"):
            return self.visit(ir.substitute(body, {loop.loop_var: first}))
        var = ir.Var(loop.loop_var.name, loop.loop_var.dtype) if again or not whole else loop.loop_var
        notes = ir.Attrs.of({k: v for k, v in loop.annotations.items() if k != _HINT})
        shifted = self.analyzer.simplify(ir.cast(var.dtype, first) + var)
        body = ir.rewrite(ir.substitute(body, {loop.loop_var: shifted}), self.expanded)
        zero = ir.const(0, extent.dtype)
        made = replace_node(loop, loop_var=var, min=zero, extent=extent, annotations=notes, body=body)
        done = self.inside(made)
        unroll = self.options.get("unroll_loop_with_partition_hint_no_interval") and self.is_hinted(loop)
        left = unroll and any(var in ir.find(c, ir.Var) for c in _conditions(done.body, every=True))
        return replace_node(done, kind=ForKind.UNROLLED) if left else done

    def expanded(self, node: ir.Node) -> Any:
        """Write the indices of an access as sums of products."""
        if not isinstance(node, (BufferLoad, BufferStore)):
            return node
        polys = [(i, poly_of(self.analyzer.context, i)) for i in node.indices]
        found = [(i, None if p is None else held(to_expr, self.analyzer.context, p, i.dtype)) for i, p in polys]
        return replace_node(node, indices=tuple(i if new is None else new for i, new in found))

    def is_hinted(self, loop: For) -> bool:
        """Whether a loop has the pragma."""
        return bool(ir.as_int(loop.annotations.get(_HINT, loop.loop_var in self.hinted)))

    def inside(self, loop: For) -> For:
        """Rewrite the body of a loop, whose range is known there."""
        dom = ir.Range.from_min_extent(loop.min, loop.extent)
        self.analyzer.bind(loop.loop_var, dom, allow_override=True)
        self.around[loop.loop_var] = dom
        body = self.visit(loop.body)
        del self.around[loop.loop_var]
        return loop if body is loop.body else replace_node(loop, body=body)


def _constant_cuts(first: int, last: int, sets: list[arith.IntervalSet]) -> list[int] | None:
    """Return where a loop of a constant range is cut; None where an end of a set is no number."""
    cuts: set[int] = set()
    for s in (s for s in sets if not s.is_nothing()):
        for end, beyond in ((s.min_value, 0), (s.max_value, 1)):
            if isinstance(end, ir.IntImm):
                cuts.add(end.value + beyond)
            elif end is not arith.neg_inf() and end is not arith.pos_inf():
                return None
    inside = sorted(c for c in cuts if first < c < last)
    return inside if len(inside) <= _MOST_CUTS else []


def _plain(condition: ir.PrimExpr) -> ir.PrimExpr:
    """Return a condition without the marks of what is likely and what cuts no loop."""
    return ir.rewrite(condition, lambda n: n.args[0] if calls(n, "likely") or calls(n, "ignore_loop_partition") else n)


def _conditions(body: Stmt, every: bool) -> list[ir.PrimExpr]:
    """List the comparisons that are marked as likely in a statement, or all that its conditions are made of."""
    if not every:
        return [c for n in ir.find(body, ir.CallIntrin) if calls(n, "likely") for c in conjuncts(n.args[0])]
    tests = [n.condition for n in ir.find(body, IfThenElse, ir.Select)]
    tests += [n.args[0] for n in ir.find(body, ir.CallIntrin) if calls(n, "if_then_else")]
    return [c for t in tests if not calls(t, "ignore_loop_partition") for c in conjuncts(_plain(t))]
