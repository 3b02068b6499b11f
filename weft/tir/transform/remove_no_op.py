"""RemoveNoOp: statements without effect go."""

from typing import Any

from weft.arith import Analyzer
from weft.ir import IntImm, IRModule, Node, PrimExpr, const, function_pass, rebuild, structural_equal, walk
from weft.tir import stmt as stmts
from weft.tir.analysis.access import is_pure
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc


@function_pass(kind=PrimFunc)
def remove_no_op(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Remove what computes nothing: evaluations of pure expressions, empty loops, tests, lets and allocations.

    Requires: No blocks.
    Ensures: The same form. No store of the value that is there, no loop over nothing.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            for i in range(n):
                if i < 4:
                    T.evaluate(T.exp(A[i]))
            for i in range(16):
                A[i] = A[i]
            A[0] = 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            A[0] = 1.0
    Cost: Linear in statements, times the depth of lets.
    Source: TVM's ``RemoveNoOp``.
    """
    analyzer = Analyzer()
    body = _visit(func.body, analyzer)
    if body is None:  # what does nothing is one statement
        body = func.body if isinstance(func.body, stmts.Evaluate) else stmts.Evaluate(const(0, "int32"))
    return func if body is func.body else func.replace(body=body)


def _visit(node: stmts.Stmt, analyzer: Analyzer) -> stmts.Stmt | None:
    """Return the statement without its useless parts; None where nothing is left."""
    if isinstance(node, stmts.SeqStmt):
        parts = [_visit(s, analyzer) for s in node.seq]
        if all(a is b for a, b in zip(parts, node.seq, strict=True)):
            return node
        kept = [p for p in parts if p is not None]
        return stmts.seq(*kept) if kept else None
    if isinstance(node, stmts.Evaluate):
        return None if is_pure(node.value) else node
    if isinstance(node, stmts.BufferStore):
        same = isinstance(node.value, BufferLoad) and node.value.buffer is node.buffer and is_pure(node.indices)
        return None if same and structural_equal(node.value.indices, node.indices) else node  # type: ignore[union-attr]
    if isinstance(node, stmts.IfThenElse):
        return _test(node, analyzer)
    if isinstance(node, stmts.For) and isinstance(node.extent, IntImm) and node.extent.value <= 0:
        return None
    removed = False

    def child(n: Node) -> Any:
        nonlocal removed
        if not isinstance(n, stmts.Stmt):
            return n
        new = _visit(n, analyzer)
        removed = removed or new is None
        return n if new is None else new

    new = rebuild(node, child)
    if removed:
        return _without_body(node)
    if isinstance(new, stmts.LetStmt) and is_pure(new.value) and not _mentions(new.body, new.var):
        return new.body
    if isinstance(new, (stmts.AllocBuffer, stmts.DeclBuffer)) and not _mentions(new.body, new.buffer, new.buffer.data):
        return new.body
    return new


def _without_body(node: stmts.Stmt) -> stmts.Stmt | None:
    if isinstance(node, stmts.AssertStmt):  # also one with nothing to protect may fail
        return replace_node(node, body=stmts.seq())
    return stmts.Evaluate(node.value) if isinstance(node, stmts.LetStmt) and not is_pure(node.value) else None


def _test(node: stmts.IfThenElse, analyzer: Analyzer) -> stmts.Stmt | None:
    then_case = _visit(node.then_case, analyzer)
    else_case = _visit(node.else_case, analyzer) if node.else_case is not None else None
    condition: PrimExpr = node.condition
    if then_case is node.then_case and else_case is node.else_case:
        return node
    if then_case is None and else_case is None:
        return None if is_pure(condition) else stmts.Evaluate(condition)
    if then_case is None:
        assert else_case is not None
        return stmts.IfThenElse(analyzer.simplify(~condition), else_case, span=node.span)
    return stmts.IfThenElse(condition, then_case, else_case, span=node.span)


def _mentions(node: Node, *wanted: Node) -> bool:
    return not set(wanted).isdisjoint(walk(node))  # nearly always soon
