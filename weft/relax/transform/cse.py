"""EliminateCommonSubexpr and DeadCodeElimination."""

from __future__ import annotations

from typing import Any

from weft.ir import (
    Call,
    Constant,
    Expr,
    ExprVar,
    Function,
    If,
    IRModule,
    Node,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    function_pass,
)
from weft.relax.expr import MatchCast
from weft.relax.infer import is_pure_call
from weft.relax.rewriter import rewrite_bindings
from weft.relax.unused import remove_all_unused

__all__ = ["dead_code_elimination", "eliminate_common_subexpr"]


@function_pass(kind=Function, opt_level=1)
def eliminate_common_subexpr(func: Function, mod: IRModule) -> Function:
    """Compute equal pure operations once, within each dataflow block or sequence of bindings.

    Requires
        ``relax.normalized``.
    Ensures
        ``relax.normalized``.
    Example
        Before::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                with R.dataflow():
                    a = R.exp(x)
                    b = R.exp(x)
                    c = R.add(a, b)
                    R.output(c)
                return c

        After::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
                with R.dataflow():
                    a: R.Tensor((2, 3), "float32") = R.exp(x)
                    c: R.Tensor((2, 3), "float32") = R.add(a, a)
                    R.output(c)
                return c
    Cost
        Linear.
    Source
        TVM's ``EliminateCommonSubexpr``.
    """
    if any(isinstance(b.value, If) for block in getattr(func.body, "blocks", ()) for b in block.bindings):
        return func
    known: dict[Any, ExprVar] = {}
    blocks: list[Any] = []  # keeps the blocks' lists alive, so that their ids stay unique

    def rule(binding: Any, value: Expr, bb: Any) -> Expr | None:
        if isinstance(binding, MatchCast):
            return None
        if isinstance(value, ExprVar):
            return value
        if not isinstance(value, (Call, TupleGetItem)) or (isinstance(value, Call) and not is_pure_call(value)):
            return None
        key = (_key(value), id(bb.bindings()))
        if key in known:
            return known[key]
        blocks.append(bb.bindings())
        known[key] = binding.var
        return None

    return rewrite_bindings(func, mod, rule)


def _key(expr: Any) -> Any:
    """A hashable key, equal for equal operations on identical variables."""
    if isinstance(expr, Call):
        return ("call", id(expr.op), tuple(_key(a) for a in expr.args), _plain(expr.attrs), _plain(expr.ty_args))
    if isinstance(expr, TupleGetItem):
        return ("item", _key(expr.tuple_value), expr.index)
    if isinstance(expr, Tuple):
        return ("tuple", tuple(_key(f) for f in expr.fields))
    if isinstance(expr, (ShapeExpr, PrimValue)):
        return ("scalar", _plain(expr.values if isinstance(expr, ShapeExpr) else expr.value))
    if isinstance(expr, Constant):
        return ("constant", id(expr.data))
    return id(expr)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, Var):
        return ("variable", id(value))
    if isinstance(value, Node):
        return (type(value), *(_plain(getattr(value, f)) for f in value.__struct_fields__ if f != "span"))
    return value


@function_pass(kind=Function, opt_level=1)
def dead_code_elimination(func: Function, mod: IRModule) -> Function:
    """Drop bindings of pure operations whose variables nothing uses.

    Requires
        ``relax.normalized``.
    Ensures
        ``relax.normalized``.
    Example
        Before::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                with R.dataflow():
                    a = R.exp(x)
                    b = R.sin(x)
                    R.output(b)
                return b

        After::

            @R.function
            def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
                with R.dataflow():
                    b: R.Tensor((2, 3), "float32") = R.sin(x)
                    R.output(b)
                return b
    Cost
        Linear: one walk backwards.
    Source
        TVM's ``DeadCodeElimination``.
    """
    return remove_all_unused(func)
