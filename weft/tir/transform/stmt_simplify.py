"""StmtSimplify: expressions are simplified where they stand; statements stay unless a condition decides them."""

from typing import Any

from weft import arith, ir
from weft.tir import stmt
from weft.tir.analysis.access import is_pure
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc


@ir.function_pass(kind=PrimFunc)
def stmt_simplify(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Simplify expressions under what loops, conditions and lets around them say; loops and evaluations stay.

    Requires: A well-formed function.
    Ensures: The same form. A test whose condition is decided is the branch that is taken; a store of the value that is
        there is ``T.evaluate(0)``; lets of whole numbers, and of constants, are in the places that use them.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                if i < 16:
                    B[i * 4 // 4] = A[i + 0]
                for j in range(1):
                    A[i] = A[i + 0]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                B[i] = A[i]
                for j in range(1):
                    T.evaluate(0)
    Cost: Linear.
    Source: TVM's ``StmtSimplify`` (``tir.transform.Simplify`` before 0.26).
    """
    simplifier = _Simplifier()
    simplifier.analyzer.mark_global_non_neg(*(d for _, buffer in func.buffer_map for d in buffer.shape))
    return func.replace(body=simplifier.node(func.body))


class _Simplifier:
    """Simplifies statements; the analyzer knows what holds where it is."""

    def __init__(self) -> None:
        self.analyzer = arith.Analyzer()

    def node(self, node: ir.Node) -> Any:
        """Simplify a node."""
        if isinstance(node, ir.PrimExpr):
            return self.expr(node)
        visit = _STATEMENTS.get(type(node))
        if visit is not None:
            return visit(self, node)
        return node if isinstance(node, Buffer) else ir.rebuild(node, self.node)

    def expr(self, expr: ir.PrimExpr) -> ir.PrimExpr:
        """Simplify an expression, also one of floats around whole numbers."""
        if isinstance(expr, ir.Var):
            return self.analyzer.simplify(expr)
        kind = ir.DataType(expr.dtype) if expr.dtype not in ("void", "handle") else None
        if kind is not None and (kind.is_integer or kind.code == "bool") and not isinstance(expr, BufferLoad):
            expr = self.analyzer.simplify(expr)
            if not isinstance(expr, (ir.CallIntrin, ir.Select)):
                return expr
        new = ir.rebuild(expr, lambda n: self.expr(n) if isinstance(n, ir.PrimExpr) else n)
        if isinstance(new, ir.Cast) and isinstance(new.value, (ir.IntImm, ir.FloatImm)):
            return ir.cast(new.dtype, new.value)
        return new if new is expr else self.analyzer.simplify(new)

    def loop(self, node: stmt.For) -> Any:
        """Simplify a loop: its variable lies in its range."""
        low, extent = self.expr(node.min), self.expr(node.extent)
        self.analyzer.bind(node.loop_var, ir.Range.from_min_extent(low, extent), allow_override=True)
        with self.analyzer.constraint_scope(extent > 0):
            body = self.node(node.body)
        return ir.with_fields(node, min=low, extent=extent, body=body)

    def test(self, node: stmt.IfThenElse) -> Any:
        """Return the branch that is taken where that is known."""
        condition = self.expr(node.condition)
        if isinstance(condition, ir.IntImm):
            taken = node.then_case if condition.value else node.else_case
            return self.node(taken) if taken is not None else stmt.Evaluate(ir.as_expr(0))
        with self.analyzer.constraint_scope(condition):
            then_case = self.node(node.then_case)
        else_case = node.else_case
        if else_case is not None:
            with self.analyzer.constraint_scope(ir.logical_not(condition)):
                else_case = self.node(else_case)
        return ir.with_fields(node, condition=condition, then_case=then_case, else_case=else_case)

    def store(self, node: stmt.BufferStore) -> Any:
        """Drop a store of the element that is read."""
        new: Any = ir.rebuild(node, lambda n: n if isinstance(n, Buffer) else self.node(n))
        value = new.value
        if not (isinstance(value, BufferLoad) and value.buffer is new.buffer and new.predicate is None):
            return new
        same = all(self.analyzer.can_prove_equal(a, b) for a, b in zip(value.indices, new.indices, strict=True))
        return stmt.Evaluate(ir.as_expr(0)) if same and is_pure(value.indices) else new

    def let(self, node: stmt.LetStmt) -> Any:
        """Put a value in the places that use it; keep the let where some place needs the variable itself."""
        value = self.expr(node.value)
        constant = isinstance(value, (ir.IntImm, ir.FloatImm, ir.Var))
        loads = bool(ir.find(value, BufferLoad, ir.CallIntrin))
        if not (constant or (ir.DataType(value.dtype).is_integer and is_pure(value) and not loads)):
            node = replace_node(node, value=value) if value is not node.value else node
            return self._body(node)
        layouts = ir.find(node.body, stmt.AllocBuffer, stmt.DeclBuffer)
        kept = any(node.var in used_vars((n.buffer.shape, n.buffer.strides, n.buffer.data)) for n in layouts)
        body = self.node(ir.substitute(node.body, {node.var: value}))
        return replace_node(node, value=value, body=body) if kept else body

    def _body(self, node: Any) -> Any:
        body = self.node(node.body)
        return node if body is node.body else replace_node(node, body=body)

    def attr(self, node: stmt.AttrStmt) -> Any:
        """Simplify under the extent of a thread."""
        if isinstance(node.node, ir.IterVar) and node.attr_key in ("thread_extent", "virtual_thread"):
            extent = ir.as_expr(node.value)
            dom = ir.Range(extent)
            self.analyzer.bind(node.node.var, dom, allow_override=True)
        return self._body(node)

    def check(self, node: stmt.AssertStmt) -> Any:
        """Simplify what follows an assertion, which holds there."""
        condition = self.expr(node.condition)
        with self.analyzer.constraint_scope(condition):
            body = self.node(node.body)
        return ir.with_fields(node, condition=condition, body=body)

    def block(self, node: stmt.Block) -> Any:
        """Simplify a block: its variables lie in their domains."""
        for iv in node.iter_vars:
            if iv.dom is not None:
                self.analyzer.bind(iv.var, iv.dom, allow_override=True)
        return ir.rebuild(node, lambda n: n if isinstance(n, ir.IterVar) else self.node(n))


_STATEMENTS: dict[type, Any] = {
    stmt.AssertStmt: _Simplifier.check,
    stmt.AttrStmt: _Simplifier.attr,
    stmt.Block: _Simplifier.block,
    stmt.BufferStore: _Simplifier.store,
    stmt.For: _Simplifier.loop,
    stmt.IfThenElse: _Simplifier.test,
    stmt.LetStmt: _Simplifier.let,
}
