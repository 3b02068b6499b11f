"""EliminateCommonSubexpr and DeadCodeElimination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import MatchCast
from weft.relax.rewriter import rewrite_bindings
from weft.relax.unused import remove_all_unused
from weft.tir import PrimFunc


@ir.function_pass(kind=ir.Function, opt_level=1)
def eliminate_common_subexpr(func: ir.Function, mod: ir.IRModule, call_only: bool = False) -> ir.Function:
    """Compute equal pure operations once, within each dataflow block or sequence of bindings.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
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

    Options:
        ``call_only``: leave elements of tuples alone.
    Cost: Linear.
    Source: TVM's ``EliminateCommonSubexpr``.
    """
    known: dict[Any, ir.ExprVar] = {}
    mutable = mutable_variables(func, mod)
    blocks: list[Any] = []  # keeps the blocks' lists alive, so that their ids stay unique

    def rule(binding: Any, value: ir.Expr, bb: Any) -> ir.Expr | None:
        if isinstance(binding, MatchCast):
            return None
        if isinstance(value, ir.ExprVar):
            return value
        if not isinstance(value, ir.Call if call_only else (ir.Call, ir.TupleGetItem)):
            return None
        if not is_mergeable(value, binding.var, mutable, mod):
            return None
        key = (hashable(value), id(bb.bindings()))
        if key in known:
            return known[key]
        blocks.append(bb.bindings())
        known[key] = binding.var
        return None

    return rewrite_bindings(func, mod, rule)


def hashable(expr: ir.Node) -> Any:
    """Return a key, equal for equal operations on identical variables."""
    if isinstance(expr, ir.Call):
        return ("call", expr.op, tuple(hashable(a) for a in expr.args), _plain(expr.attrs), _plain(expr.ty_args))
    if isinstance(expr, ir.TupleGetItem):
        return ("item", hashable(expr.tuple_value), expr.index)
    if isinstance(expr, ir.Tuple):
        return ("tuple", tuple(hashable(f) for f in expr.fields))
    if isinstance(expr, (ir.ShapeExpr, ir.PrimValue)):
        return ("scalar", _plain(expr.values if isinstance(expr, ir.ShapeExpr) else expr.value))
    if isinstance(expr, ir.Constant):
        return ("constant", expr.data)
    return _plain(expr) if isinstance(expr, ir.Type) else expr


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, ir.Var):
        return ("variable", value)
    if isinstance(value, ir.Node):
        return (type(value), *(_plain(getattr(value, f)) for f in value.__struct_fields__ if f != "span"))
    return value


@ir.module_pass(opt_level=1)
def dead_code_elimination(mod: ir.IRModule, entry_functions: Sequence[str] | None = None) -> ir.IRModule:
    """Drop bindings without effects whose variables nothing uses, and private functions that nothing mentions.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
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

    Options:
        ``entry_functions``: only these functions, and what they mention, stay.
    Cost: Linear: one walk backwards.
    Source: TVM's ``DeadCodeElimination``.
    """
    names = {v.name_hint for v in mod}
    unknown = [n for n in entry_functions or () if n not in names]
    if unknown:
        raise InvalidArgument(f"the module has no function '{unknown[0]}'", expected=", ".join(sorted(names)))
    functions: dict[str, Any] = {
        v.name_hint: remove_all_unused(f, mod) if isinstance(f, ir.Function) else f for v, f in mod.items()
    }
    roots = entry_functions if entry_functions is not None else [
        n for n, f in functions.items() if f.attrs.get("global_symbol") or not isinstance(f, (ir.Function, PrimFunc))
    ]  # fmt: skip
    alive, waiting = set(roots), list(roots)
    while waiting:
        for n in ir.walk(functions[waiting.pop()]):
            if isinstance(n, ir.GlobalVar) and n.name_hint in functions and n.name_hint not in alive:
                alive.add(n.name_hint)
                waiting.append(n.name_hint)
    return mod.with_functions({v: functions[v.name_hint] for v in mod if v.name_hint in alive})
