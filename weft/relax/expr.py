"""Relax's own expressions: bindings, sequences, dataflow variables. The rest is shared with Relay in ``weft.ir``.

A function body in normal form is a :class:`SeqExpr`: blocks of bindings, each of one operation on atoms (variables,
constants, shapes, ...), then an atom as result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from weft.ir import Expr, ExprVar, Node, Type, TypedExpr

__all__ = ["Binding", "BindingBlock", "DataflowBlock", "DataflowVar", "MatchCast", "SeqExpr", "Var", "VarBinding"]

Var = ExprVar


class DataflowVar(ExprVar):
    """A variable that is visible only inside its dataflow block."""


class Binding(Node):
    """Binds a variable. Every subclass has a ``value``."""

    if TYPE_CHECKING:

        def __getattr__(self, name: Literal["value"]) -> Any: ...

    var: ExprVar


class VarBinding(Binding):
    """``var = value``."""

    value: Expr


class MatchCast(Binding):
    """``var = match_cast(value, ty)``.

    Checks at run time that `value` has type `ty`, binding its new symbolic variables.
    """

    value: Expr
    ty: Type


class BindingBlock(Node):
    """Bindings in order, which may have effects."""

    bindings: tuple[Binding, ...]


class DataflowBlock(BindingBlock):
    """Bindings without effects or control flow."""


class SeqExpr(TypedExpr):
    """Blocks, then the result."""

    blocks: tuple[BindingBlock, ...]
    body: Any
