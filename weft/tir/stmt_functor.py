"""Walking and rewriting TIR, under the names of ``tvm.tir.stmt_functor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import error, ir
from weft.spelling import also_called
from weft.tir import stmt as _stmt
from weft.tir.analysis.structure import replace_node
from weft.tir.function import PrimFunc
from weft.tir.functor import StmtExprMutator, StmtExprVisitor, StmtFunctor, StmtMutator, StmtVisitor

__all__ = [
    "StmtExprMutator",
    "StmtExprVisitor",
    "StmtFunctor",
    "StmtMutator",
    "StmtVisitor",
    "ir_transform",
    "post_order_visit",
    "pre_order_visit",
    "renew_defs",
    "substitute",
]


@also_called(node="stmt")
def post_order_visit(stmt: ir.Node, fvisit: Callable[[ir.Node], Any]) -> None:
    """Call `fvisit` with each statement and expression once, children first."""
    ir.post_order(stmt, fvisit)


@also_called(node="stmt")
def pre_order_visit(stmt: ir.Node, fvisit: Callable[[ir.Node], bool | None]) -> None:
    """Call `fvisit` with each node, parents first; what it returns False for is not entered."""

    def visit(node: ir.Node) -> Any:
        return node if fvisit(node) is False else None

    ir.rewrite(stmt, lambda n: n, pre=visit)


def substitute(node: ir.Node, vmap: Mapping[ir.Var, ir.PrimExpr | float]) -> Any:
    """Replace variables by expressions, or by numbers of their types."""
    return ir.substitute(node, {v: ir.as_expr(e, v.dtype) for v, e in vmap.items()})


def renew_defs(func: PrimFunc) -> PrimFunc:
    """Copy a function with variables and buffers of its own, so that it shares none with the original."""
    memo: dict[ir.Node, Any] = {}

    def renew(node: Any) -> Any:
        if not isinstance(node, ir.Node):
            return node
        if node not in memo:
            memo[node] = replace_node(node) if isinstance(node, ir.Var) else ir.rebuild(node, renew)
        return memo[node]

    return renew(func)


def ir_transform(
    stmt: _stmt.Stmt,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> _stmt.Stmt:
    """Rewrite a statement.

    Parameters
    ----------
    stmt : Stmt
    preorder : callable, optional
        Called with a node before its children; what it returns, if not None, takes the node's place as it is.
    postorder : callable, optional
        Called with a node after its children were rewritten; None leaves the node.
    only_enable : sequence of str, optional
        Kinds of nodes that the functions see, such as ``"tir.For"``; by default all.
    """
    kinds = None
    if only_enable is not None:
        names = [n.rsplit(".", 1)[-1] for n in only_enable]
        kinds = tuple(getattr(_stmt, n, None) or _expression(n) for n in names)

    def seen(node: ir.Node) -> bool:
        return isinstance(node, (_stmt.Stmt, ir.PrimExpr)) and (kinds is None or isinstance(node, kinds))

    def before(node: ir.Node) -> Any:
        return preorder(node) if preorder is not None and seen(node) else None

    def after(node: ir.Node) -> Any:
        new = postorder(node) if postorder is not None and seen(node) else None
        return node if new is None else new

    return ir.rewrite(stmt, after, pre=before)


def _expression(name: str) -> type:
    from weft import tir  # its __init__ imports the whole package, so not at the top

    found = getattr(tir, name, None)
    if not isinstance(found, type):
        raise error.InvalidArgument(f"there is no kind of node '{name}'", help="name classes, such as 'tir.For'")
    return found
