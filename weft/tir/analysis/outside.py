"""Accesses that leave their buffers, told by an iteration in which they do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from weft import arith, error, ir
from weft.tir import stmt
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc

_MOST = 4  # of an index of more loops' variables, nothing is said
_NO_ACCESS = frozenset(("tir.address_of", "tir.prefetch"))
_JUMPS = frozenset(("tir.ret", "tir.break_loop", "tir.continue_loop", "tir.thread_return"))


def OOBChecker() -> ir.Pass:
    """Make a pass that refuses accesses which provably leave their buffers, and changes nothing."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        refuse_accesses_outside(mod)
        return mod

    return ir.Pass("tir.analysis.OOBChecker", run, 0, OOBChecker.__doc__)


def refuse_accesses_outside(mod: ir.IRModule) -> None:
    """Refuse functions that leave their buffers wherever their loops run at all.

    An access whose index or conditions depend on memory or on a parameter passes, as one behind a ``return``,
    ``break`` or ``continue`` does, one of memory that is declared to be two buffers, and each where
    ``tir.instrument_bound_checkers`` asks for checks at run time.

    Raises
    ------
    ScheduleError
        With each access, and an iteration in which it is outside.
    """
    if ir.PassContext.current().config.get("tir.instrument_bound_checkers"):
        return
    funcs = [f for _, f in mod.items() if isinstance(f, PrimFunc)]
    jumping = {f for f in funcs if any(getattr(n.op, "name", "") in _JUMPS for n in ir.find(f.body, ir.CallIntrin))}
    found = [text for f in funcs if f not in jumping for text in _Walk(f).found]
    if found:
        raise error.ScheduleError("\n".join(found), help="bound the loop, or test the index before the access")


class _Loop(NamedTuple):
    """A loop around a node: its first and last value, and the loops outside of it that these depend on."""

    var: ir.Var
    first: ir.PrimExpr
    last: ir.PrimExpr
    outer: tuple[ir.Var, ...]
    known: dict[tuple[ir.PrimExpr, ...], tuple[ir.PrimExpr, ir.PrimExpr] | None]
    """By values of `outer`: both values; None where the loop does not run."""


def _reads(*exprs: ir.PrimExpr) -> bool:
    return any(True for e in exprs for _ in ir.find(e, BufferLoad))


class _Walk:
    """A walk over a function: what the names around a node stand for, and what holds there."""

    def __init__(self, func: PrimFunc) -> None:
        self.found: list[str] = []
        self.analyzer = arith.Analyzer()
        self.loops: list[_Loop] = []  # from outside to inside
        self.values: dict[ir.Var, Any] = {}  # of names, and of blocks' axes
        self.holds: list[ir.PrimExpr] = []
        self.in_doubt = 0  # conditions around a node that depend on memory: of what they guard, nothing is said
        sized = [b for _, b in func.buffer_map] + [n.buffer for n in ir.find(func.body, stmt.AllocBuffer)]
        sized += [b for n in ir.find(func.body, stmt.Block) for b in n.alloc_buffers]
        views = {n.buffer for n in ir.find(func.body, BufferLoad, stmt.BufferStore)}.difference(sized)
        self.sized = {b for b in sized if all(b.data is not v.data for v in views)}
        for d in (d for _, buffer in func.buffer_map for d in buffer.shape if isinstance(d, ir.Var)):
            self.analyzer.mark_global_non_neg(d)
        self.visit(func.body)

    def of(self, expr: ir.PrimExpr) -> ir.PrimExpr:
        """Write an expression in variables of loops and parameters."""
        return ir.substitute(expr, self.values)

    def under(self, node: ir.Node, *conditions: ir.PrimExpr) -> None:
        """Visit what runs where conditions hold."""
        self.holds += map(self.of, conditions)
        in_doubt = self.in_doubt
        self.in_doubt += _reads(*self.holds[len(self.holds) - len(conditions) :])
        self.visit(node)
        del self.holds[len(self.holds) - len(conditions) :]
        self.in_doubt = in_doubt

    def visit(self, node: ir.Node) -> None:
        """Look for accesses in a node."""
        name = getattr(node.op, "name", "") if isinstance(node, ir.CallIntrin) else ""
        if isinstance(node, stmt.For):
            first, extent = self.of(node.min), self.of(node.extent)
            used = used_vars(first) | used_vars(extent)
            outer = tuple(loop.var for loop in self.loops if loop.var in used)
            self.loops.append(_Loop(node.loop_var, first, first + extent - 1, outer, {}))
            self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(first, extent), True)
            self.visit(node.body)
            self.loops.pop()
        elif isinstance(node, (stmt.LetStmt, ir.Let)):
            self.visit(node.value)
            self.values[node.var] = self.of(node.value)
            self.visit(node.body)
        elif isinstance(node, stmt.BlockRealize):
            axes = node.block.iter_vars
            self.values.update((iv.var, self.of(v)) for iv, v in zip(axes, node.iter_values, strict=True))
            self.under(node.block.body, node.predicate)
            if node.block.init is not None:
                starts = [ir.equal(iv.var, iv.dom.min) for iv in axes if iv.iter_type == "reduce" and iv.dom]
                self.under(node.block.init, node.predicate, *starts)
        elif isinstance(node, (stmt.AssertStmt, stmt.While)):
            self.visit(node.condition)
            self.under(node.body, node.condition)
        elif isinstance(node, (stmt.IfThenElse, ir.Select)) or name == "tir.if_then_else":
            parts: list[Any] = [*(node.args if isinstance(node, ir.CallIntrin) else ir.children(node))]
            self.visit(parts[0])
            self.under(parts[1], parts[0])
            for case in parts[2:]:
                self.under(case, ir.logical_not(parts[0]))
        elif isinstance(node, (ir.And, ir.Or)):
            self.visit(node.a)
            self.under(node.b, node.a if isinstance(node, ir.And) else ir.logical_not(node.a))
        elif name not in _NO_ACCESS:
            if isinstance(node, (BufferLoad, stmt.BufferStore)) and node.predicate is None:
                self.found += self.outside(node.buffer, node.indices)
            for child in ir.children(node):
                self.visit(child)

    def outside(self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...]) -> Iterator[str]:
        """Say how indices leave a buffer."""
        asked = buffer in self.sized and not self.in_doubt
        axes = zip(map(self.of, indices), map(self.of, buffer.shape), strict=True) if asked else ()
        prove = self.analyzer.can_prove
        for axis, (index, size) in enumerate(axes):
            one = ir.DataType(index.dtype).lanes == 1 and not _reads(index)
            if not one or (prove(index >= 0) and prove(index < size)):
                continue
            for point in self.points(index):
                at, end = (self.analyzer.simplify(ir.substitute(e, point)) for e in (index, size))
                if (prove(at < 0) or prove(at >= end)) and all(prove(ir.substitute(c, point)) for c in self.holds):
                    where = ", ".join(f"{v.name} = {point[v]}" for v in point if v in used_vars(index))
                    found = f"index {index} is {at}{where and f' where {where}'}, outside the range [0, {end})"
                    yield f"Out of bounds memory access on buffer {buffer.name} dimension {axis}. {found}"
                    break

    def points(self, index: ir.PrimExpr) -> Iterator[dict[ir.Var, ir.PrimExpr]]:
        """Yield iterations: the first or the last of each loop that an index moves with, and of all others."""
        used = used_vars(index)
        moving = [loop.var for loop in self.loops if loop.var in used]
        for ends in product((0, 1), repeat=len(moving) + 1) if len(moving) <= _MOST else ():
            chosen, point = dict(zip(moving, ends, strict=False)), dict[ir.Var, ir.PrimExpr]()
            for loop in self.loops:
                bounds = self.bounds(loop, point)
                if bounds is None:
                    return  # it does not run
                point[loop.var] = bounds[chosen.get(loop.var, ends[-1])]
            yield point

    def bounds(self, loop: _Loop, point: dict[ir.Var, ir.PrimExpr]) -> tuple[ir.PrimExpr, ir.PrimExpr] | None:
        """Find the first and the last value of a loop in an iteration of those outside of it."""
        at = tuple(point[v] for v in loop.outer)
        if at not in loop.known:
            first, last = (self.analyzer.simplify(ir.substitute(e, point)) for e in (loop.first, loop.last))
            loop.known[at] = None if self.analyzer.can_prove(last < first) else (first, last)
        return loop.known[at]
