"""Rewriting from operands to results, where what stands for a value may be more than an expression."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from weft import ir
from weft.relay.expr import Call, Function, Tuple
from weft.relay.infer import infer_module
from weft.relay.walk import map_parts, parts, rewrite_with_original, subexpressions


class TempExpr(ir.Expr):
    """What stands for an expression while a pass rewrites a program; :meth:`realize` gives the expression."""

    def realize(self) -> Any:
        """Return the expression for operators that know nothing of this."""
        raise NotImplementedError


def realized(e: object) -> Any:
    """Return an expression for what stands for one."""
    if isinstance(e, TempExpr):
        return e.realize()
    return map_parts(e, realized) if type(e) is Tuple else e


def forward_op(ref_call: Call, args: Iterable[Any], **attrs: Any) -> Call:
    """Make the call with other arguments and some other attributes; it has no type yet."""
    given = ir.Attrs.of({**dict(ref_call.attrs.items), **attrs}) if attrs else ref_call.attrs
    return Call(ref_call.op, tuple(map(realized, args)), given, span=ref_call.span)


def forward_rewrite(func: Function, key: str, ctx: object = None, shared: Callable[[Any], Any] = lambda e: e) -> Any:
    """Ask the function that each operator has as its attribute `key` for what stands for a call.

    Parameters
    ----------
    key : str
        The attribute: ``fn(ref_call, new_args, ctx)`` gets the original call and what stands for its arguments, and
        returns an expression, a :class:`TempExpr`, or None for the same call.
    ctx : object
        What these functions are given.
    shared : callable
        Applied to what stands for a call that has several users.
    """
    users = Counter(p for e in subexpressions(func) for p in parts(e))

    def rule(old: Any, new: Any) -> Any:
        if type(new) is Tuple:
            return new
        fn = old.op.get_attr(key) if type(old) is Call and isinstance(old.op, ir.Op) else None
        made = fn(old, list(new.args), ctx) if fn is not None else None
        if made is None:
            made = map_parts(new, realized)
        return shared(made) if users[old] > 1 else made

    return realized(rewrite_with_original(func, rule))


def rewriting_pass(name: str, rewrite: Callable[[Function], Function]) -> ir.Pass:
    """Make a pass over Relay's functions, which have types before and after."""

    def run(mod: ir.IRModule) -> ir.IRModule:
        typed = infer_module(mod)
        return infer_module(
            typed.with_functions({v: rewrite(f) if type(f) is Function else f for v, f in typed.items()})
        )

    return ir.Pass(name, run, 1, rewrite.__doc__)
