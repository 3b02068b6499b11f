"""BindSymbolicVars and UpdateParamType: what is known about the sizes and types of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Expr, ExprVar, Function, IRModule, Pass, PrimExpr, Type, Var, const, structural_equal, substitute
from weft.relax.analysis import defined_symbolic_vars, free_symbolic_vars
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type
from weft.relax.transform.bind_params import Retype, simplify_types
from weft.relax.transform.block_pass import over_functions
from weft.spelling import also_called


def BindSymbolicVars(binding_map: Mapping[Any, Any], func_name: str | None = None) -> Pass:
    """Make the pass that gives symbolic sizes of functions a value.

    Parameters
    ----------
    binding_map : mapping
        From a symbolic variable, or its name, to an integer or expression.
    func_name : str, optional
        The function; by default all that have the variables.

    Raises
    ------
    InvalidArgument
        When no function has the variable, several variables have its name, or the function does not exist.
    """

    def run(mod: IRModule) -> IRModule:
        """Bind the variables."""
        functions = {v: f for v, f in mod.items() if isinstance(f, Function)}
        if func_name is not None:
            functions = {v: f for v, f in functions.items() if v.name_hint == func_name}
            if not functions:
                raise InvalidArgument(f"the module has no Relax function '{func_name}'")
        known = {v: defined_symbolic_vars(f) for v, f in functions.items()}
        _check_known(binding_map, [n for names in known.values() for n in names], func_name or "all functions")
        new = {v: _bound(v.name_hint, f, known[v], binding_map) for v, f in functions.items()}
        return mod.with_functions({v: new.get(v, f) for v, f in mod.items()})

    return Pass("BindSymbolicVars", run, 0, BindSymbolicVars.__doc__)


def bind_function_symbols(func: Function, binding_map: Mapping[Any, Any]) -> Function:
    """Give symbolic sizes of one function, by themselves or by name, a value."""
    name = func.attrs.get("global_symbol") or "the function"
    known = defined_symbolic_vars(func)
    _check_known(binding_map, known, name)
    return _bound(name, func, known, binding_map)


def _check_known(binding_map: Mapping[Any, Any], known: list[Var], where: str) -> None:
    for key in binding_map:
        if not any(_named(key, n) for n in known):
            names = sorted({n.name for n in known})
            near = get_close_matches(str(key), names, 1)
            raise InvalidArgument(
                f"no symbolic variable '{getattr(key, 'name', key)}'",
                expected=", ".join(names) or "none",
                found=where,
                help=f"did you mean '{near[0]}'?" if near else None,
            )


def _named(key: Any, var: Var) -> bool:
    return var is key or (isinstance(key, str) and var.name == key)


def _bound(name: str, func: Function, symbols: list[Var], binding_map: Mapping[Any, Any]) -> Function:
    values: dict[Any, PrimExpr] = {}
    for key, value in binding_map.items():
        found = [n for n in symbols if _named(key, n)]
        if len(found) > 1:
            raise InvalidArgument(f"'{name}' has several symbolic variables '{key}'", help="give the variable itself")
        for var in found:
            if var in values:
                raise InvalidArgument(
                    f"'{name}' is told two values of '{var.name}'", help="name it or give it, not both"
                )
            values[var] = value if isinstance(value, PrimExpr) else const(int(value), var.dtype)
    if not values:
        return func
    new = simplify_types(substitute(func, values))
    if unbound := free_symbolic_vars(new):
        raise InvalidArgument(
            f"a value of '{name}' has variables that no parameter defines",
            found=", ".join(v.name for v in unbound),
            help="bind them, too",
        )
    return new.replace(ty=function_type(new))


@also_called(sinfo_func="ty_func")
def UpdateParamType(ty_func: Callable[[ExprVar], Type | None]) -> Pass:
    """Make the pass that changes the types of parameters; types that follow from them are inferred again.

    Parameters
    ----------
    ty_func : callable
        From a parameter to its new type, or None where it stays.
    """
    return over_functions(UpdateParamType, lambda f, mod: _retyped(f, ty_func, mod))


def _retyped(func: Function, ty_func: Callable[[ExprVar], Type | None], mod: IRModule) -> Function:
    types = {p: ty_func(p) for p in func.params}
    renamed: dict[Expr, Expr] = {
        p: RelaxVar(p.name_hint, ty, span=p.span)
        for p, ty in types.items()
        if ty is not None and not structural_equal(ty, p.ty)
    }
    return Retype(mod, renamed).visit_expr(func) if renamed else func
