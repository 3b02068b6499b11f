"""Private functions and where they are called: what passes that change a function and its callers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Call, Expr, Function, GlobalVar, IRModule, children, walk
from weft.relax.infer import function_type
from weft.relax.rewriter import rewrite_bindings


def used_as_values(mod: IRModule) -> set[str]:
    """Collect the names of functions that Relax functions mention without calling them."""
    found: set[str] = set()
    for _, f in mod.items():
        for n in walk(f) if isinstance(f, Function) else ():
            values = n.args if isinstance(n, Call) else children(n)
            found |= {child.name_hint for child in values if isinstance(child, GlobalVar)}
    return found


def called_only(mod: IRModule) -> dict[str, Function]:
    """List by name the private Relax functions that are called directly and never used as values."""
    values = used_as_values(mod)
    return {
        v.name_hint: f
        for v, f in mod.items()
        if isinstance(f, Function) and not f.attrs.get("global_symbol") and v.name_hint not in values
    }


def change_calls(mod: IRModule, functions: dict[str, Function], change: Callable[[str, Call], Expr | None]) -> IRModule:
    """Replace functions, and every call of them by what ``change(name, call)`` returns."""
    if not functions:
        return mod
    out = mod.with_functions({v: functions.get(v.name_hint, f) for v, f in mod.items()})

    def rule(_binding: object, value: Expr, _bb: object) -> Expr | None:
        if isinstance(value, Call) and isinstance(value.op, GlobalVar) and value.op.name_hint in functions:
            return change(value.op.name_hint, value)
        return None

    new = {v: rewrite_bindings(f, out, rule) if isinstance(f, Function) else f for v, f in out.items()}
    return out.with_functions(new)


def with_params(func: Function, params: tuple[Any, ...], body: Expr | None = None) -> Function:
    """Return a function with other parameters, and perhaps another body."""
    new = func.replace(params=params, body=func.body if body is None else body)
    return new.replace(ty=function_type(new))
