"""VectorizeLoop: a vectorised loop becomes operations on vectors.

The loop variable is replaced by a Ramp. What depends on it becomes a vector; conditions on it become predicates, which
mask stores and loads. A body that cannot be written so (a loop whose extent differs by lane, a reduction into one
element) stays a serial loop.
"""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import jumps_out, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt


@ir.function_pass(kind=PrimFunc, name="VectorizeLoop")
def vectorize_loop(func: PrimFunc, mod: ir.IRModule, enable_vectorize: bool = True) -> PrimFunc:
    """Turn VECTORIZED loops of constant extent into vector operations.

    Requires: Flat buffers.
    Ensures: Flat buffers; no VECTORIZED loop.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in T.vectorized(16):
                B[i] = A[i] + T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[T.Ramp(0, 1, 16)] = A[T.Ramp(0, 1, 16)] + T.Broadcast(T.float32(1.0), 16)

    Options:
        ``enable_vectorize``: when false, such loops become serial.
    Cost: Linear.
    Source: TVM's ``VectorizeLoop``.
    """
    return func.replace(body=_visit(func.body, enable_vectorize))


def _visit(node: ir.Node, enable: bool) -> Any:
    if not isinstance(node, Stmt):
        return node
    node = ir.rebuild(node, lambda n: _visit(n, enable))
    if not isinstance(node, For) or node.kind != ForKind.VECTORIZED or any(jumps_out(node.body)):
        return node
    if enable and isinstance(node.extent, ir.IntImm):
        if node.extent.value == 1:
            return ir.substitute(node.body, {node.loop_var: node.min})
        try:
            return Vectorizer(node).stmt(node.body, None)
        except NoVector:
            pass
    return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body, None, node.annotations, span=node.span)


class NoVector(Exception):
    """Raised where a body has no vector form."""


def broadcast(value: ir.PrimExpr, lanes: int) -> ir.PrimExpr:
    """Repeat a scalar; a vector of that many lanes is itself."""
    have = ir.DataType(value.dtype).lanes
    if have == lanes:
        return value
    if have != 1:
        raise NoVector
    return ir.Broadcast(value, lanes)


class Vectorizer:
    """Rewrites the body of one loop."""

    def __init__(self, loop: For, lanes: int | None = None) -> None:
        self.lanes = lanes or ir.as_int(loop.extent) or 0
        self.env: dict[ir.Var, ir.PrimExpr] = {
            loop.loop_var: ir.Ramp(loop.min, ir.const(1, loop.loop_var.dtype), self.lanes)
        }
        self.mask: ir.PrimExpr | None = None
        self.memo: dict[ir.PrimExpr, tuple[ir.PrimExpr | None, ir.PrimExpr]] = {}

    # --- statements ---

    def stmt(self, s: Stmt, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a statement, with stores and loads masked by `mask`."""
        if isinstance(s, SeqStmt):
            return SeqStmt(tuple(self.stmt(x, mask) for x in s.seq), span=s.span)
        if isinstance(s, BufferStore):
            return self.store(s, mask)
        if isinstance(s, IfThenElse):
            return self.condition(s, mask)
        if isinstance(s, LetStmt):
            value = self.expr(s.value, mask)
            if ir.DataType(value.dtype).lanes == 1:
                return LetStmt(s.var, value, self.stmt(s.body, mask), span=s.span)
            var = ir.Var(s.var.name, value.dtype)
            self.env[s.var] = var
            self.memo.clear()
            return LetStmt(var, value, self.stmt(s.body, mask), span=s.span)
        if isinstance(s, For):
            low, extent = self.expr(s.min, mask), self.expr(s.extent, mask)
            if ir.DataType(low.dtype).lanes > 1 or ir.DataType(extent.dtype).lanes > 1:
                raise NoVector
            return replace_node(s, min=low, extent=extent, body=self.stmt(s.body, mask))
        if isinstance(s, Evaluate):
            if any(isinstance(n, ir.Var) and n in self.env for n in ir.walk(s.value)):
                raise NoVector
            return s
        if isinstance(s, AllocBuffer):
            raise NoVector
        raise NoVector

    def store(self, s: BufferStore, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a store. Elements that are vectors themselves are written one by one."""
        if ir.DataType(s.buffer.dtype).lanes > 1:
            raise NoVector
        index, value = self.expr(s.indices[0], mask), self.expr(s.value, mask)
        wide_index, wide_value = ir.DataType(index.dtype).lanes > 1, ir.DataType(value.dtype).lanes > 1
        if not wide_index:
            if wide_value or mask is not None:
                raise NoVector
            return BufferStore(s.buffer, value, (index,), span=s.span)
        return BufferStore(s.buffer, broadcast(value, self.lanes), (index,), mask, span=s.span)

    def condition(self, s: IfThenElse, mask: ir.PrimExpr | None) -> Stmt:
        """Rewrite a condition: a scalar one stays, a vector one masks what it guards."""
        c = self.expr(s.condition, mask)
        if ir.DataType(c.dtype).lanes == 1:
            else_case = self.stmt(s.else_case, mask) if s.else_case is not None else None
            return IfThenElse(c, self.stmt(s.then_case, mask), else_case, span=s.span)
        then_case = self.stmt(s.then_case, c if mask is None else ir.And(mask, c))
        if s.else_case is None:
            return then_case
        return SeqStmt((then_case, self.stmt(s.else_case, ir.Not(c) if mask is None else ir.And(mask, ir.Not(c)))))

    # --- expressions ---

    def expr(self, e: Any, mask: ir.PrimExpr | None) -> ir.PrimExpr:
        """Rewrite an expression; the result is a vector where it depends on the loop variable."""
        hit = self.memo.get(e)
        if hit is not None and hit[0] is mask:
            return hit[1]
        new = _EXPR(e, self, mask)
        self.memo[e] = (mask, new)
        return new


def lanes_of(value: ir.PrimExpr, loop: For) -> ir.PrimExpr:
    """Return the vector of the values that an expression takes over a loop of constant extent."""
    worker = Vectorizer(loop)
    return broadcast(worker.expr(value, None), worker.lanes)


_EXPR = ir.Dispatch("vectorize an expression", (ir.PrimExpr,))


@_EXPR.on(ir.PrimExpr)
def _generic(e: ir.PrimExpr, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    new = ir.rebuild(e, lambda n: s.expr(n, mask) if isinstance(n, ir.PrimExpr) else n)
    if new is not e and ir.DataType(new.dtype).lanes > 1 and not isinstance(new, ir.Not):
        raise NoVector
    return new


@_EXPR.on(ir.Var)
def _var(e: ir.Var, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    return s.env.get(e, e)


@_EXPR.on(ir.BinaryOp, ir.CmpOp)
def _binary(e: Any, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    a, b = s.expr(e.a, mask), s.expr(e.b, mask)
    if a is e.a and b is e.b:
        return e
    if ir.DataType(a.dtype).lanes == 1 and ir.DataType(b.dtype).lanes == 1:
        return type(e)(a, b)
    ramp = _ramp(e, a, b)
    return ramp if ramp is not None else type(e)(broadcast(a, s.lanes), broadcast(b, s.lanes))


def _ramp(e: ir.PrimExpr, a: ir.PrimExpr, b: ir.PrimExpr) -> ir.PrimExpr | None:
    """Keep sums and products of a ramp and a scalar as ramps, and quotients whose lanes stay within one multiple."""
    if isinstance(a, ir.Ramp) and isinstance(b, ir.IntImm) and isinstance(e, (ir.FloorDiv, ir.FloorMod)):
        new = arith.Analyzer().simplify(type(e)(a, ir.Broadcast(b, a.lanes)))
        return new if isinstance(new, ir.Ramp) else new.value if isinstance(new, ir.Broadcast) else None
    if isinstance(a, ir.Ramp) and isinstance(b, ir.Ramp):
        if isinstance(e, ir.Add):
            return ir.Ramp(a.base + b.base, a.stride + b.stride, a.lanes)
        return ir.Ramp(a.base - b.base, a.stride - b.stride, a.lanes) if isinstance(e, ir.Sub) else None
    if isinstance(a, ir.Ramp) and ir.DataType(b.dtype).lanes == 1:
        if isinstance(e, ir.Add):
            return ir.Ramp(a.base + b, a.stride, a.lanes)
        if isinstance(e, ir.Sub):
            return ir.Ramp(a.base - b, a.stride, a.lanes)
        return ir.Ramp(a.base * b, a.stride * b, a.lanes) if isinstance(e, ir.Mul) else None
    if isinstance(b, ir.Ramp) and ir.DataType(a.dtype).lanes == 1:
        if isinstance(e, ir.Add):
            return ir.Ramp(b.base + a, b.stride, b.lanes)
        if isinstance(e, ir.Mul):
            return ir.Ramp(b.base * a, b.stride * a, b.lanes)
        return ir.Ramp(a - b.base, ir.const(0, b.stride.dtype) - b.stride, b.lanes) if isinstance(e, ir.Sub) else None
    return None


@_EXPR.on(ir.And, ir.Or)
def _logic(e: Any, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    a, b = s.expr(e.a, mask), s.expr(e.b, mask)
    if ir.DataType(a.dtype).lanes == 1 and ir.DataType(b.dtype).lanes == 1:
        return e if a is e.a and b is e.b else type(e)(a, b)
    return type(e)(broadcast(a, s.lanes), broadcast(b, s.lanes))


@_EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    value = s.expr(e.value, mask)
    if value is e.value:
        return e
    if isinstance(value, ir.Ramp) and ir.DataType(e.dtype).is_integer:
        return ir.Ramp(ir.cast(e.dtype, value.base), ir.cast(e.dtype, value.stride), value.lanes)
    return ir.Cast(ir.with_lanes(e.dtype, ir.DataType(value.dtype).lanes), value)


@_EXPR.on(ir.Select)
def _select(e: ir.Select, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    c, a, b = s.expr(e.condition, mask), s.expr(e.true_value, mask), s.expr(e.false_value, mask)
    if max(ir.DataType(x.dtype).lanes for x in (c, a, b)) == 1:
        return e if c is e.condition and a is e.true_value and b is e.false_value else ir.Select(c, a, b)
    return ir.Select(broadcast(c, s.lanes), broadcast(a, s.lanes), broadcast(b, s.lanes))


@_EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    """Rewrite a load; a choice of places that all lanes share is one of loads, so that none of them gathers."""
    index = s.expr(e.indices[0], mask)
    if index is e.indices[0]:
        return e
    if ir.DataType(index.dtype).lanes == 1:
        return BufferLoad(e.buffer, (index,), span=e.span)
    choice = None if isinstance(index, ir.Ramp) else _shared_choice(e.indices[0], s, mask)
    if choice is None:
        return BufferLoad(e.buffer, (index,), mask, span=e.span)
    loads = [ir.substitute(e, {choice: place}) for place in choice.args[1:]]
    return s.expr(ir.CallIntrin(e.dtype, choice.op, (choice.args[0], *loads), choice.attrs), mask)


def _shared_choice(index: ir.PrimExpr, s: Vectorizer, mask: ir.PrimExpr | None) -> ir.CallIntrin | None:
    """Return a choice in an index whose test all lanes share and may be asked anywhere, if its values are vectors."""
    fails = (BufferLoad, ir.Div, ir.Mod, ir.FloorDiv, ir.FloorMod)
    for e in ir.find(index, ir.CallIntrin):
        if e.op.name == "tir.if_then_else" and not ir.find(e.args[0], *fails):
            test, value = (ir.DataType(s.expr(x, mask).dtype).lanes for x in (e.args[0], e))
            if test == 1 < value:
                return e
    return None


@_EXPR.on(ir.Let)
def _let(e: ir.Let, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    value = s.expr(e.value, mask)
    if ir.DataType(value.dtype).lanes == 1:
        return ir.Let(e.var, value, s.expr(e.body, mask))
    var = ir.Var(e.var.name, value.dtype)
    s.env[e.var] = var
    return ir.Let(var, value, s.expr(e.body, mask))


@_EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    if e.op.name == "tir.if_then_else":
        return _if_then_else(e, s, mask)
    args = tuple(s.expr(a, mask) if isinstance(a, ir.PrimExpr) else a for a in e.args)
    if all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    if all(ir.DataType(a.dtype).lanes == 1 for a in args if isinstance(a, ir.PrimExpr)):
        return ir.CallIntrin(e.dtype, e.op, args, e.attrs)
    if e.op.name in ("tir.call_extern", "tir.call_pure_extern", "tir.tvm_call_packed", "tir.tvm_call_trace_packed"):
        raise NoVector
    wide = tuple(broadcast(a, s.lanes) if isinstance(a, ir.PrimExpr) and a.dtype != "handle" else a for a in args)
    return ir.CallIntrin(ir.with_lanes(e.dtype, s.lanes), e.op, wide, e.attrs)


def _if_then_else(e: ir.CallIntrin, s: Vectorizer, mask: Any) -> ir.PrimExpr:
    c = s.expr(e.args[0], mask)
    if ir.DataType(c.dtype).lanes > 1:
        inside = c if mask is None else ir.And(mask, c)
        outside = ir.Not(c) if mask is None else ir.And(mask, ir.Not(c))
        a, b = s.expr(e.args[1], inside), s.expr(e.args[2], outside)
        return ir.Select(c, broadcast(a, s.lanes), broadcast(b, s.lanes))
    a, b = s.expr(e.args[1], mask), s.expr(e.args[2], mask)
    if ir.DataType(a.dtype).lanes == 1 and ir.DataType(b.dtype).lanes == 1:
        return ir.CallIntrin(e.dtype, e.op, (c, a, b), e.attrs)
    return ir.CallIntrin(
        ir.with_lanes(e.dtype, s.lanes), e.op, (c, broadcast(a, s.lanes), broadcast(b, s.lanes)), e.attrs
    )
