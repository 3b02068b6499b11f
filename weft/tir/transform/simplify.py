"""Simplify: arithmetic under the bounds of the loops and conditions around; statements that do nothing disappear."""

import operator
from contextlib import nullcontext
from functools import cache
from typing import Any, cast

from weft import arith, ir
from weft.tir import stmt as stmts
from weft.tir.analysis.structure import jumps_out, knowing_dimensions, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc


@ir.function_pass(kind=PrimFunc)
def simplify(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Simplify index arithmetic and drop statements without effect.

    Requires: No blocks.
    Ensures: The same form.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                B[i * 4 // 4] = A[i + 0]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                B[i] = A[i]
    Cost: Linear.
    Source: TVM's ``Simplify`` and ``RemoveNoOp``.
    """
    analyzer = knowing_dimensions(func.buffer_map)
    body = _stmt(func.body, analyzer)
    return func if body is func.body else func.replace(body=body if body is not None else stmts.seq(()))


def _stmt(node: Any, analyzer: arith.Analyzer) -> Any:
    """Simplify a statement; None when nothing is left of it."""
    if ir.IS_EXPR[type(node)]:
        return _expr(node, analyzer)
    if isinstance(node, stmts.For):
        return _loop(node, analyzer)
    if isinstance(node, stmts.IfThenElse):
        return _condition(node, analyzer)
    if isinstance(node, stmts.SeqStmt):
        parts = [_stmt(x, analyzer) for x in node.seq]
        if all(a is b for a, b in zip(parts, node.seq, strict=True)):
            return node
        kept = [p for p in parts if p is not None]
        return stmts.seq(*kept) if kept else None
    if isinstance(node, stmts.Evaluate) and isinstance(node.value, ir.IntImm):
        return None
    if isinstance(node, stmts.BufferStore):
        new = ir.rebuild(node, lambda n: _expr(n, analyzer) if ir.IS_EXPR[type(n)] else n)
        lanes = _constant_lanes(new.predicate) if new.predicate is not None else None
        if lanes is None or not (all(lanes) or not any(lanes)):
            return new
        return stmts.BufferStore(new.buffer, new.value, new.indices, None, span=new.span) if all(lanes) else None
    if isinstance(node, stmts.Stmt):
        new = ir.rebuild(node, lambda n: _stmt(n, analyzer) if isinstance(n, (stmts.Stmt, ir.PrimExpr)) else n)
        left = new.block if isinstance(new, stmts.BlockRealize) else getattr(new, "body", new)
        if left is None and isinstance(new, stmts.AssertStmt):  # also one with nothing to protect may fail
            return replace_node(new, body=stmts.seq())
        return None if left is None else new
    return node


def _loop(node: stmts.For, analyzer: arith.Analyzer) -> Any:
    low, extent = analyzer.simplify(node.min), analyzer.simplify(node.extent)
    if isinstance(extent, ir.IntImm) and extent.value <= 0:  # the init of an empty reduction still has to run
        return node if any(isinstance(n, stmts.Block) and n.init is not None for n in ir.walk(node.body)) else None
    once = isinstance(extent, ir.IntImm) and extent.value == 1 and node.kind != stmts.ForKind.THREAD_BINDING
    if once and not any(jumps_out(node.body)):
        return _stmt(ir.substitute(node.body, {node.loop_var: low}), analyzer)
    analyzer.bind(node.loop_var, ir.Range.from_min_extent(low, extent), allow_override=True)
    entered = analyzer.simplify(ir.const(0, extent.dtype) < extent)
    guarded = not isinstance(entered, ir.IntImm) and ir.find(node.body, stmts.IfThenElse)  # else nothing would ask
    with analyzer.constraint_scope(entered) if guarded else nullcontext():
        body = _stmt(node.body, analyzer)
    if body is None:
        return None
    return ir.with_fields(node, min=low, extent=extent, body=body)


def _condition(node: stmts.IfThenElse, analyzer: arith.Analyzer) -> Any:
    condition = analyzer.simplify(node.condition)
    if isinstance(condition, ir.IntImm):
        chosen = node.then_case if condition.value else node.else_case
        return _stmt(chosen, analyzer) if chosen is not None else None
    with analyzer.constraint_scope(condition):
        then_case = _stmt(node.then_case, analyzer)
    else_case = _stmt(node.else_case, analyzer) if node.else_case is not None else None
    if then_case is None and else_case is None:
        return None
    then_case = stmts.seq(()) if then_case is None else then_case
    return ir.with_fields(node, condition=condition, then_case=then_case, else_case=else_case)


def _expr(expr: ir.PrimExpr, analyzer: arith.Analyzer) -> ir.PrimExpr:
    """Simplify the integer parts of an expression; what several places share they share afterwards."""
    if type(expr) in _LEAVES:
        return expr
    known = analyzer.context.simplified.get(expr)
    if known is not None:
        return known
    new = _simplified(expr, analyzer)
    if type(new) is ir.Ramp:
        new = analyzer.context.emitted.setdefault(
            (ir.Ramp, id(new.base), ir.as_int(new.stride) or id(new.stride), new.lanes), new
        )
    analyzer.context.simplified[expr] = new
    return new


_LEAVES = (ir.IntImm, ir.FloatImm, ir.StringImm)
_IF_THEN_ELSE = ir.Op.get("tir.if_then_else")


def _simplified(expr: ir.PrimExpr, analyzer: arith.Analyzer) -> ir.PrimExpr:
    if type(expr) is BufferLoad and expr.predicate is not None:
        lanes = _constant_lanes(expr.predicate)
        if lanes is not None and all(lanes):
            expr = BufferLoad(expr.buffer, expr.indices, None, span=expr.span)
    if _is_whole_number(expr.dtype):
        return analyzer.simplify(expr)
    condition, cases = None, list[ir.PrimExpr]()
    if isinstance(expr, ir.Select):
        condition, *cases = expr.condition, expr.true_value, expr.false_value
    elif isinstance(expr, ir.CallIntrin) and expr.op is _IF_THEN_ELSE:
        condition, *cases = cast("tuple[ir.PrimExpr, ...]", expr.args)
    if condition is not None:
        decided = _expr(condition, analyzer)
        if type(decided) is ir.IntImm:  # as most are where loops were written out: what is not taken ends here
            return _expr(cases[not decided.value], analyzer)
    new = ir.rebuild(expr, lambda n: _expr(n, analyzer) if ir.IS_EXPR[type(n)] else n)
    if type(new) is ir.Cast and isinstance(new.value, (ir.IntImm, ir.FloatImm)):
        return ir.cast(new.dtype, new.value)
    return new


@cache
def _is_whole_number(dtype: str) -> bool:
    kind = ir.DataType(dtype)
    return (kind.is_integer or kind.code == "bool") and kind.lanes == 1


def _constant_lanes(e: Any) -> list[Any] | None:
    """Evaluate a vector of constants lane by lane, or return None where it is not constant."""
    if isinstance(e, ir.IntImm):
        return [e.value]
    if isinstance(e, ir.Ramp) and isinstance(e.base, ir.IntImm) and isinstance(e.stride, ir.IntImm):
        return [e.base.value + i * e.stride.value for i in range(e.lanes)]
    if isinstance(e, ir.Broadcast):
        value = _constant_lanes(e.value)
        return None if value is None or len(value) != 1 else value * e.lanes
    fn = _LANE_OPS.get(type(e))
    if fn is None or not isinstance(e, (ir.BinaryOp, ir.CmpOp)):
        return None
    a, b = _constant_lanes(e.a), _constant_lanes(e.b)
    return None if a is None or b is None or len(a) != len(b) else [fn(x, y) for x, y in zip(a, b, strict=True)]


_LANE_OPS: dict[type, Any] = {
    ir.LT: operator.lt,
    ir.LE: operator.le,
    ir.GT: operator.gt,
    ir.GE: operator.ge,
    ir.EQ: operator.eq,
    ir.NE: operator.ne,
    ir.Add: operator.add,
    ir.Sub: operator.sub,
    ir.Mul: operator.mul,
    ir.And: lambda x, y: x and y,
    ir.Or: lambda x, y: x or y,
}
