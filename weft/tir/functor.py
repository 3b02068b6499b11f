"""Visitor classes over TIR, as programs for TVM derive from them. The compiler itself uses tables and ``ir.walk``.

Each kind of node has a method that a subclass overrides: ``visit_add_``, ``visit_for_``. What is inherited visits the
children; a mutator's methods return the replacement, the node itself where nothing changed. ``Py...`` classes know a
few kinds under other names (``visit_floor_div_`` where ``ExprVisitor`` has ``visit_floordiv_``).
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.support.derived import derived_object
from weft.tir import reduce, stmt
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, MatchBufferRegion

visitor = mutator = derived_object

_EXPRS: dict[type, str] = {
    ir.Add: "add",
    ir.And: "and",
    ir.Broadcast: "broadcast",
    BufferLoad: "buffer_load",
    ir.CallIntrin: "call",
    ir.Cast: "cast",
    ir.Div: "div",
    ir.EQ: "eq",
    ir.FloatImm: "float_imm",
    ir.FloorDiv: "floordiv",
    ir.FloorMod: "floormod",
    ir.GE: "ge",
    ir.GT: "gt",
    ir.IntImm: "int_imm",
    ir.LE: "le",
    ir.LT: "lt",
    ir.Let: "let",
    ir.Max: "max",
    ir.Min: "min",
    ir.Mod: "mod",
    ir.Mul: "mul",
    ir.NE: "ne",
    ir.Not: "not",
    ir.Or: "or",
    reduce.ProducerLoad: "producer_load",
    ir.Ramp: "ramp",
    reduce.Reduce: "reduce",
    ir.Select: "select",
    ir.Shuffle: "shuffle",
    ir.SizeVar: "var",
    ir.StringImm: "string_imm",
    ir.Sub: "sub",
    ir.Var: "var",
}
_STMTS: dict[type, str] = {
    stmt.AllocBuffer: "alloc_buffer",
    stmt.AssertStmt: "assert",
    stmt.AttrStmt: "attr",
    stmt.Block: "block",
    stmt.BlockRealize: "block_realize",
    stmt.BufferRealize: "buffer_realize",
    stmt.BufferStore: "buffer_store",
    stmt.DeclBuffer: "decl_buffer",
    stmt.Evaluate: "evaluate",
    stmt.For: "for",
    stmt.IfThenElse: "if_then_else",
    stmt.LetStmt: "bind",
    stmt.Prefetch: "prefetch",
    stmt.SeqStmt: "seqstmt",
    stmt.While: "while",
}
_OTHER_NAMES = {
    "assert": "assert_stmt",
    "attr": "attr_stmt",
    "block": "sblock",
    "block_realize": "sblock_realize",
    "floordiv": "floor_div",
    "floormod": "floor_mod",
    "seqstmt": "seq_stmt",
}


def _methods(kinds: dict[type, str], default: str, names: dict[str, str] | None = None) -> Any:
    """Make the decorator of a class that gives it one method a kind, all of which call another."""

    def decorate(cls: Any) -> Any:
        cls._names = {**getattr(cls, "_names", {}), **{k: (names or {}).get(v, v) for k, v in kinds.items()}}
        for name in dict.fromkeys(cls._names[k] for k in kinds):

            def visit(self: Any, op: Any) -> Any:
                return getattr(self, default)(op)

            visit.__doc__, visit.__name__ = f"Visit a node '{name}'.", f"visit_{name}_"
            setattr(cls, visit.__name__, visit)
        return cls

    return decorate


class _Dispatch:
    _names: dict[type, str]

    def _method(self, node: ir.Node) -> Any:
        name = self._names.get(type(node))
        return None if name is None else getattr(self, f"visit_{name}_")


def _unknown(self: Any, op: Any) -> Any:
    """Visit a node of a kind that has no method of its own."""
    raise NotImplementedError(f"{type(self).__name__} says nothing about {type(op).__name__}")


@_methods(_EXPRS, "visit_expr_default_")
class ExprFunctor(_Dispatch):
    """Finds the method of an expression; kinds without an overridden one go to ``visit_expr_default_``."""

    @ir.descending
    def visit_expr(self, expr: Any) -> Any:
        """Visit an expression by the method of its kind."""
        method = None if expr is None else self._method(expr)
        return None if expr is None else self.visit_expr_default_(expr) if method is None else method(expr)

    visit_expr_default_ = _unknown

    def __call__(self, node: ir.Node) -> Any:
        """Visit an expression."""
        return self.visit_expr(node)


@_methods(_STMTS, "visit_stmt_default_")
class StmtFunctor(_Dispatch):
    """Finds the method of a statement; kinds without an overridden one go to ``visit_stmt_default_``."""

    @ir.descending
    def visit_stmt(self, stmt: Any) -> Any:
        """Visit a statement by the method of its kind."""
        method = None if stmt is None else self._method(stmt)
        return None if stmt is None else self.visit_stmt_default_(stmt) if method is None else method(stmt)

    visit_stmt_default_ = _unknown

    def __call__(self, node: ir.Node) -> Any:
        """Visit a statement."""
        return self.visit_stmt(node)


def _defined(op: Any) -> Any:
    """Return the variable that a statement defines, which is no part that it computes with."""
    return op.loop_var if isinstance(op, stmt.For) else op.var if isinstance(op, stmt.LetStmt) else None


def _visit_children(self: Any, op: Any) -> None:
    own = _defined(op)
    for child in ir.children(op):
        if child is not own:
            _visit(self, child)


def _visit(self: Any, node: Any) -> None:
    """Visit a child: what is neither statement nor expression through what it has of them."""
    if isinstance(node, stmt.Stmt):
        self.visit_stmt(node)
    elif isinstance(node, ir.PrimExpr):
        self.visit_expr(node)
    elif isinstance(node, (BufferRegion, MatchBufferRegion, ir.Range, ir.IterVar)):
        parts = (node.dom,) if isinstance(node, ir.IterVar) else ir.children(node)
        for child in parts:
            _visit(self, child)


def _mutate_children(self: Any, op: Any) -> Any:
    def child(node: ir.Node) -> Any:
        if isinstance(node, stmt.Stmt):
            return self.visit_stmt(node)
        if isinstance(node, ir.PrimExpr):
            return self.visit_expr(node)
        inside = isinstance(node, (BufferRegion, MatchBufferRegion, ir.Range, ir.IterVar))
        return ir.rebuild(node, lambda n: n if isinstance(n, Buffer) else child(n)) if inside else node

    own = _defined(op)
    return ir.rebuild(op, lambda n: n if n is own else child(n))


class ExprVisitor(ExprFunctor):
    """Visits every part of an expression."""

    visit_expr_default_ = _visit_children

    def visit_var_(self, op: ir.Var) -> None:
        """Visit a variable, which has no parts."""


class ExprMutator(ExprFunctor):
    """Rewrites an expression."""

    visit_expr_default_ = _mutate_children

    def visit_var_(self, op: ir.Var) -> Any:
        """Return what a variable is replaced by."""
        return op


class StmtVisitor(StmtFunctor):
    """Visits every part of a statement; expressions are passed to ``visit_expr``, which does nothing here."""

    visit_stmt_default_ = _visit_children

    def visit_expr(self, expr: Any) -> Any:
        """Visit an expression."""


class StmtMutator(StmtFunctor):
    """Rewrites a statement; ``visit_expr`` returns expressions as they are."""

    visit_stmt_default_ = _mutate_children

    def visit_expr(self, expr: Any) -> Any:
        """Return what an expression is replaced by."""
        return expr


def _either(self: Any, node: ir.Node) -> Any:
    """Visit a statement or an expression."""
    return self.visit_stmt(node) if isinstance(node, stmt.Stmt) else self.visit_expr(node)


class StmtExprVisitor(ExprVisitor, StmtVisitor):
    """Visits every statement and expression."""

    _names = {**ExprFunctor._names, **StmtFunctor._names}
    __call__ = _either


class StmtExprMutator(ExprMutator, StmtMutator):
    """Rewrites statements and expressions."""

    _names = {**ExprFunctor._names, **StmtFunctor._names}
    __call__ = _either


_ALL = {**_EXPRS, **_STMTS}


class _Both(_Dispatch):
    visit_node_: Any

    @ir.descending
    def visit_stmt(self, stmt: Any) -> Any:
        """Visit a node by the method of its kind; of a mutator, return what it is replaced by."""
        return (self._method(stmt) or self.visit_node_)(stmt)

    visit_expr = visit_stmt


@_methods(_ALL, "visit_node_", _OTHER_NAMES)
class PyStmtExprVisitor(_Both):
    """Visits every statement and expression (``tirx.functor``)."""

    visit_node_ = _visit_children


@_methods(_ALL, "visit_node_", _OTHER_NAMES)
class PyStmtExprMutator(_Both):
    """Rewrites statements and expressions (``tirx.functor``)."""

    visit_node_ = _mutate_children
