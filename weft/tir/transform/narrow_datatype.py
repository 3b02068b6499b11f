"""NarrowDataType: loops and indices take as few bits as what they reach, where bounds say how far that is."""

from __future__ import annotations

import operator
from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import calls, replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, Block, BlockRealize, BufferStore, For, LetStmt


@ir.function_pass(kind=PrimFunc, name="NarrowDataType")
def narrow_data_type(func: PrimFunc, mod: ir.IRModule, target_bits: int = 32) -> PrimFunc:
    """Compute in integers of `target_bits` what fits there with all that it is computed from.

    Requires: Any form.
    Ensures: The same form; parameters and the elements of buffers keep their types. A variable becomes narrow where
        bounds prove that no expression that it is part of is ever too large; one value too large keeps it.
    Before::

        @T.prim_func
        def f(A: T.Buffer((T.int64(64),), "float32")):
            for i in range(T.int64(64)):
                A[i] = T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((T.int64(64),), "float32")):
            for i in range(64):
                A[i] = T.float32(1)
    Cost: Linear, with bounds of each integer expression.
    Source: TVM's ``NarrowDataType``.
    """
    state = _Narrow(target_bits, set(func.buffer_map.values()))  # type: ignore[attr-defined]
    state.collect(func.body, False)
    body = state.visit(func.body)
    return func if body is func.body else func.replace(body=body)


class _Narrow:
    """What keeps its type, and what replaces the rest; `wide` says that an expression around needs all bits."""

    def __init__(self, bits: int, params: set[Buffer]) -> None:
        self.bits, self.params = bits, params
        self.analyzer = arith.Analyzer()
        self.kept: set[ir.Var] = set()
        self.new: dict[ir.Var, ir.Var] = {}
        self.memo: dict[Any, Any] = {}

    def narrow(self, dtype: str) -> str:
        """Return the narrow type in the place of one, or the type itself where it is no wider integer."""
        known = ir.DataType(dtype)
        wider = known.type_code == ir.DataType("int64").type_code and known.bits > self.bits
        return ir.with_lanes(f"int{self.bits}", known.lanes) if wider else dtype

    def too_wide(self, expr: Any) -> bool:
        """Whether an integer expression may be more than the narrow type holds."""
        if isinstance(expr, ir.Ramp):
            last = expr.base + expr.stride * ir.const(expr.lanes - 1, expr.stride.dtype)
            return self.too_wide(expr.base) or self.too_wide(last)
        if isinstance(expr, ir.Broadcast):
            return self.too_wide(expr.value)
        bound, limit = self.analyzer.const_int_bound(expr), 1 << (self.bits - 1)
        return not (-limit <= bound.min_value and bound.max_value < limit)

    def collect(self, node: ir.Node, wide: bool) -> None:
        """Find the variables that keep their types."""
        if isinstance(node, (For, ir.IterVar)):
            var, dom = (node.loop_var, node) if isinstance(node, For) else (node.var, node.dom)
            if dom is not None:
                self.define(var, dom.min, dom.extent)
        elif isinstance(node, (LetStmt, ir.Let)):
            self.define(node.var, node.value, None)
        elif isinstance(node, AttrStmt) and isinstance(node.node, ir.IterVar):
            self.define(node.node.var, ir.const(0, node.node.var.dtype), node.value)
        if isinstance(node, ir.PrimExpr):
            if self.narrow(node.dtype) == node.dtype:
                wide = False
            else:
                wide = wide or self.too_wide(node)
            if isinstance(node, ir.Var) and wide:
                self.kept.add(node)
            wide = wide and _passes_on(node)
        for child in ir.children(node):
            integer = isinstance(child, ir.PrimExpr) and isinstance(node, ir.PrimExpr)
            self.collect(child, wide and integer)

    def define(self, var: ir.Var, first: ir.PrimExpr, extent: ir.PrimExpr | None) -> None:
        """Note where a variable begins and how far it goes; without an extent it is one value."""
        if extent is not None:
            self.analyzer.bind(var, ir.Range.from_min_extent(first, ir.cast(first.dtype, extent)), allow_override=True)
        if self.narrow(var.dtype) == var.dtype:
            return
        if extent is None:
            self.analyzer.bind_bounds(var, first)
        self.new[var] = ir.Var(var.name, self.narrow(var.dtype))
        if self.too_wide(first) or (extent is not None and (self.too_wide(extent) or self.too_wide(var))):
            self.kept.add(var)

    def var(self, var: ir.Var) -> ir.Var:
        """Return the variable in the place of one."""
        return var if var in self.kept else self.new.get(var, var)

    def visit(self, node: ir.Node) -> Any:
        """Rewrite statements, and expressions that keep their types."""
        if isinstance(node, ir.PrimExpr):
            return ir.cast(node.dtype, self.expr(node, False))
        if isinstance(node, (Buffer, ir.IterVar)):
            if node not in self.memo:
                self.memo[node] = self.definition(node)
            return self.memo[node]
        if isinstance(node, ir.Range):
            return replace_node(node, **self.alike(node, "min", "extent"))
        if isinstance(node, For):
            var = self.var(node.loop_var)
            ends = {k: ir.cast(var.dtype, self.expr(getattr(node, k), False)) for k in ("min", "extent")}
            return replace_node(node, loop_var=var, body=self.visit(node.body), **ends)
        if isinstance(node, LetStmt):
            var = self.var(node.var)
            return replace_node(
                node, var=var, value=ir.cast(var.dtype, self.expr(node.value, False)), body=self.visit(node.body)
            )
        if isinstance(node, BlockRealize):
            block: Block = self.visit(node.block)
            values = [
                ir.cast(i.var.dtype, self.expr(v, False))
                for i, v in zip(block.iter_vars, node.iter_values, strict=True)
            ]
            return replace_node(node, iter_values=tuple(values), predicate=self.visit(node.predicate), block=block)
        if isinstance(node, BufferStore):
            return replace_node(node, **self.access(node), value=self.visit(node.value))
        return ir.rebuild(node, self.visit)

    def definition(self, node: Buffer | ir.IterVar) -> Any:
        """Rewrite a buffer or an axis; a parameter whose shape has no narrow variable stays the very same."""
        if isinstance(node, ir.IterVar):
            var = self.var(node.var)
            dom = node.dom and ir.Range.from_min_extent(
                *[ir.cast(var.dtype, self.expr(e, False)) for e in (node.dom.min, node.dom.extent)]
            )
            return node if var is node.var else replace_node(node, var=var, dom=dom)
        changed = any(self.var(v) is not v for v in ir.walk(node) if isinstance(v, ir.Var))
        new = ir.rebuild(node, self.visit) if changed else node
        if node in self.params:
            return new
        shape = tuple(self.expr(d, False) for d in node.shape)
        return new if all(map(operator.is_, shape, new.shape)) else replace_node(new, shape=shape)

    def expr(self, node: Any, wide: bool) -> Any:
        """Rewrite an expression, which may become narrow."""
        narrow = self.narrow(node.dtype)
        wide = narrow != node.dtype and (wide or self.too_wide(node))
        if isinstance(node, ir.Var):
            return self.var(node)
        if isinstance(node, ir.IntImm):
            return node if wide else ir.const(node.value, narrow)
        if isinstance(node, ir.Cast):
            return ir.cast(node.dtype if wide else narrow, self.expr(node.value, False))
        if isinstance(node, (ir.BinaryOp, ir.CmpOp)):
            return replace_node(node, **self.alike(node, "a", "b", wide=wide))
        if isinstance(node, ir.Select):
            sides = self.alike(node, "true_value", "false_value", wide=wide)
            return replace_node(node, condition=self.visit(node.condition), **sides)
        if isinstance(node, ir.Ramp):
            return replace_node(node, **self.alike(node, "base", "stride", wide=wide))
        if isinstance(node, ir.Broadcast):
            return replace_node(node, value=self.expr(node.value, wide))
        if isinstance(node, ir.Let):
            var = self.var(node.var)
            value = ir.cast(var.dtype, self.expr(node.value, False))
            return replace_node(node, var=var, value=value, body=self.expr(node.body, wide))
        if isinstance(node, BufferLoad):
            return replace_node(node, **self.access(node))
        if calls(node, "if_then_else"):
            sides = _alike([self.expr(a, wide) for a in node.args[1:]])
            return replace_node(node, args=(self.visit(node.args[0]), *sides), dtype=sides[0].dtype)
        return ir.rebuild(node, self.visit)

    def access(self, node: Any) -> dict[str, Any]:
        """Rewrite what a load or store names."""
        predicate = None if node.predicate is None else self.visit(node.predicate)
        indices = tuple(self.expr(i, False) for i in node.indices)
        return {"buffer": self.visit(node.buffer), "indices": indices, "predicate": predicate}

    def alike(self, node: ir.Node, *fields: str, wide: bool = False) -> dict[str, ir.PrimExpr]:
        """Rewrite operands, and bring them to one type."""
        return dict(zip(fields, _alike([self.expr(getattr(node, f), wide) for f in fields]), strict=True))


def _alike(operands: list[ir.PrimExpr]) -> list[ir.PrimExpr]:
    """Widen to the widest."""
    widest = max((o.dtype for o in operands), key=lambda d: ir.DataType(d).bits)
    lanes = [ir.DataType(o.dtype).lanes for o in operands]
    return [ir.cast(ir.with_lanes(widest, n), o) for o, n in zip(operands, lanes, strict=True)]


def _passes_on(node: ir.Node) -> bool:
    """Whether what an expression is computed from is computed in its type."""
    return isinstance(node, (ir.BinaryOp, ir.Select, ir.Ramp, ir.Broadcast, ir.Let)) or calls(node, "if_then_else")
