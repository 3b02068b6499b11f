"""Replacing variables by expressions: ``relay.bind`` and the parameters of functions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import error, ir
from weft.relay.expr import Constant, Function, Var, const
from weft.relay.transform.copying import fresh_copy
from weft.relay.transform.free import Captures
from weft.relay.walk import bound_by, subexpressions, substitute


def bind(expr: ir.Expr, binds: Mapping[Var, Any]) -> Any:
    """Replace free variables of an expression, or parameters of a function, by expressions.

    Parameters
    ----------
    expr : Expr
        If it is a function, the parameters that are bound go, and what the new body uses freely become parameters
        behind the others.
    binds : mapping of Var to Expr
        What stands for what.
    """
    func = expr if type(expr) is Function else Function((), expr)
    free = Captures().variables(func.replace(params=()))
    used = {v: value for v, value in binds.items() if v in free}
    if not used and not any(p in binds for p in func.params):
        return expr
    taken = {v for value in used.values() for v in Captures().variables(Function((), value))}
    renamed = {p: Var(p.name_hint, p.ty, span=p.span) for p in func.params if p in taken and p not in binds}
    body = substitute(_apart(func.body, taken), {**used, **renamed})
    if func is not expr:
        return body
    before = Captures().variables(func)
    bound = func.replace(params=tuple(renamed.get(p, p) for p in func.params if p not in binds), body=body)
    return bound.replace(params=(*bound.params, *(v for v in Captures().variables(bound) if v not in before)))


def _apart(expr: ir.Expr, taken: set[Var]) -> Any:
    """Rename what an expression binds where that is free in what is to be put into it."""
    clashes = bool(taken) and any(v in taken for e in subexpressions(expr) for v in bound_by(e))
    return fresh_copy(expr) if clashes else expr


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """Replace parameters of a function by constants, by name; names that it has not are ignored.

    Parameters
    ----------
    params : mapping of str to Tensor, array or Constant
        The values.

    Raises
    ------
    InvalidArgument
        When two parameters have the name.
    """
    named: dict[str, Var] = {}
    for p in func.params:
        if p.name_hint in params and p.name_hint in named:
            raise error.InvalidArgument(f"two parameters are called '{p.name_hint}'", help="bind them with relay.bind")
        named[p.name_hint] = p
    given = {n: v for n, v in params.items() if n in named}
    return bind(func, {named[n]: v if isinstance(v, Constant) else _typed(named[n], v) for n, v in given.items()})


def _typed(param: Var, value: Any) -> Constant:
    """Return a constant of a parameter's data type; an integer is not made of what lies between two."""
    made = const(value, getattr(param.ty, "dtype", None))
    found = made.data.numpy()
    if found.dtype.kind in "iu" and (found != np.asarray(value.numpy() if hasattr(value, "numpy") else value)).any():
        raise error.InvalidArgument(f"the value of '{param.name_hint}' is no {found.dtype}", found=str(value))
    return made
