"""InstrumentBoundCheckers: every access to a buffer is checked before it happens."""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import message
from weft.tir.stmt import AssertStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, While, seq
from weft.tir.transform.scalarize import lane_count


@ir.function_pass(kind=PrimFunc)
def instrument_bound_checkers(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Check each index before the access, where it is not known to be inside.

    ``PassContext(config={"tir.instrument_bound_checkers": True})`` puts it into the pipeline.

    Requires: No blocks; buffers as they were declared, not flattened.
    Ensures: The same form. An access outside of its buffer raises an IndexError that names the buffer, the axis, the
        index and the extent, and nothing is read or written there. Loops that hold a check are serial or parallel: none
        is vectorized or written out.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
            for i in range(n):
                B[i] = A[15]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
            for i in range(n):
                with T.Assert(i < 8, T.message("B: index %lld of axis 0 is outside of 0...%lld", i, 8),
                              "IndexError"):
                    B[i] = A[15]
    Cost: Linear in accesses, each with a proof.
    Source: TVM's ``InstrumentBoundCheckers``, which checks flat indices.
    """
    analyzer = arith.Analyzer()
    analyzer.mark_global_non_neg(*(d for _, b in func.buffer_map for d in b.shape if isinstance(d, ir.Var)))
    return func.replace(body=_stmt(func.body, analyzer))


class _Check:
    """One index, what it must be below, and when it is used at all."""

    def __init__(self, buffer: Buffer, axis: int, index: ir.PrimExpr, guard: tuple[ir.PrimExpr, ...]) -> None:
        self.buffer, self.axis, self.index, self.guard = buffer, axis, index, guard

    def same(self, other: _Check) -> bool:
        """Whether another check asks the same."""
        ours, theirs = (self.index, self.guard), (other.index, other.guard)
        return self.buffer is other.buffer and self.axis == other.axis and ir.structural_equal(ours, theirs)

    def around(self, body: Stmt, analyzer: arith.Analyzer) -> Stmt:
        """Put the check around a statement, unless it is known to hold."""
        extent = self.buffer.shape[self.axis]
        lanes = max(lane_count(e) for e in (self.index, *self.guard))
        ramp = isinstance(self.index, ir.Ramp) and all(lane_count(g) == 1 for g in self.guard)
        for i in (0, lanes - 1) if ramp else range(lanes):
            index = _lane(self.index, i)
            low, high = index >= ir.const(0, index.dtype), index < ir.cast(index.dtype, extent)
            open_ends = [c for c in (low, high) if not analyzer.can_prove(c)]
            if not open_ends:
                continue
            inside = open_ends[0] if len(open_ends) == 1 else ir.logical_and(low, high)
            for condition in reversed(self.guard):
                inside = ir.if_then_else(_lane(condition, i), inside, ir.const(True, "bool"))
            text = f"{self.buffer.name}: index %lld of axis {self.axis} is outside of 0...%lld"
            body = AssertStmt(inside, message(text, index, extent), body, "IndexError")
        return body


def _lane(expr: ir.PrimExpr, i: int) -> ir.PrimExpr:
    if isinstance(expr, ir.Ramp):
        return expr.base + expr.stride * i
    if isinstance(expr, ir.Broadcast):
        return expr.value
    return expr if lane_count(expr) == 1 else ir.Shuffle((expr,), (ir.const(i, "int32"),))


def _checks(expr: Any, guard: tuple[ir.PrimExpr, ...], out: list[_Check]) -> None:
    """List what the accesses of an expression need, inner accesses first."""
    if isinstance(expr, BufferLoad):
        for i in expr.indices:
            _checks(i, guard, out)
        if expr.predicate is not None:
            _checks(expr.predicate, guard, out)
            guard = (*guard, expr.predicate)
        out += [_Check(expr.buffer, axis, i, guard) for axis, i in enumerate(expr.indices)]
    elif isinstance(expr, ir.CallIntrin) and expr.op.name == "tir.if_then_else":
        condition, then_value, else_value = expr.args
        _checks(condition, guard, out)
        for test, value in ((condition, then_value), (ir.logical_not(condition), else_value)):
            _checks(value, (*guard, test), out)
    elif isinstance(expr, ir.CallIntrin) and expr.op.name == "tir.address_of":
        return  # an address may be one past the end
    elif isinstance(expr, ir.Let):
        _checks(expr.value, guard, out)
        _checks(ir.substitute(expr.body, {expr.var: expr.value}), guard, out)
    elif isinstance(expr, ir.PrimExpr):
        for field in expr.__struct_fields__:
            value = getattr(expr, field)
            for part in value if isinstance(value, tuple) else (value,):
                _checks(part, guard, out)


def _guarded(node: Stmt, parts: tuple[Any, ...], analyzer: arith.Analyzer) -> Stmt:
    checks: list[_Check] = []
    for part in parts:
        _checks(part, (), checks)
    distinct: list[_Check] = []
    for c in checks:
        if not any(c.same(d) for d in distinct):
            distinct.append(c)
    for c in reversed(distinct):
        node = c.around(node, analyzer)
    return node


def _stmt(node: ir.Node, analyzer: arith.Analyzer) -> Any:
    if isinstance(node, BufferStore):
        return _guarded(node, (BufferLoad(node.buffer, node.indices, node.predicate), node.value), analyzer)
    if isinstance(node, Evaluate):
        return _guarded(node, (node.value,), analyzer)
    if isinstance(node, LetStmt):
        analyzer.bind(node.var, node.value, allow_override=True)
        return _guarded(ir.with_fields(node, body=_stmt(node.body, analyzer)), (node.value,), analyzer)
    if isinstance(node, IfThenElse):
        with analyzer.constraint_scope(node.condition):
            then_case = _stmt(node.then_case, analyzer)
        else_case = node.else_case
        if else_case is not None:
            with analyzer.constraint_scope(ir.logical_not(node.condition)):
                else_case = _stmt(else_case, analyzer)
        node = ir.with_fields(node, then_case=then_case, else_case=else_case)
        return _guarded(node, (node.condition,), analyzer)
    if isinstance(node, For):
        analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
        body = _stmt(node.body, analyzer)
        if body is not node.body:
            plain = node.kind in (ForKind.VECTORIZED, ForKind.UNROLLED) and any(
                isinstance(n, AssertStmt) for n in ir.walk(body)
            )
            node = replace_node(node, body=body, kind=ForKind.SERIAL if plain else node.kind)
        return _guarded(node, (node.min, node.extent), analyzer)
    if isinstance(node, While):
        return _while(node, analyzer)
    if isinstance(node, AssertStmt):
        node = ir.with_fields(node, body=_stmt(node.body, analyzer))
        return _guarded(node, (node.condition, node.message), analyzer)
    if isinstance(node, Stmt):
        return ir.rebuild(node, lambda n: _stmt(n, analyzer) if isinstance(n, Stmt) else n)
    return node


def _while(node: While, analyzer: arith.Analyzer) -> Stmt:
    body = _stmt(node.body, analyzer)
    test = _guarded(seq(), (node.condition,), analyzer)
    if isinstance(test, AssertStmt):  # before each time that the condition is asked
        return seq(test, replace_node(node, body=seq(body, test)))
    return node if body is node.body else replace_node(node, body=body)
