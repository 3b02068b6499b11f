"""The variables that functions capture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft import ir
from weft.relay.expr import Function, Var
from weft.relay.types import FuncType, TypeVar
from weft.relay.walk import bound_by, subexpressions


class Captures:
    """Free variables and type variables of functions, each function looked at once however deep they nest."""

    def __init__(self) -> None:
        self._vars: dict[Function, dict[Var, None]] = {}
        self._types: dict[Function, dict[TypeVar, None]] = {}

    def variables(self, func: Function) -> dict[Var, None]:
        """Return the variables that a function uses and does not bind, in the order of their first use."""
        self._analyze(func)
        return self._vars[func]

    def type_variables(self, func: Function) -> dict[TypeVar, None]:
        """Return the type variables that stand in a function and are not its own or an inner function's."""
        self._analyze(func)
        return self._types[func]

    def _analyze(self, func: Function) -> None:
        def unknown(functions: Iterable[Function]) -> list[Function]:
            return [f for f in functions if f not in self._vars]

        for f in ir.operands_first(unknown([func]), lambda f: unknown(_inner(f))):
            self._of_one(f)

    def _of_one(self, func: Function) -> None:
        """Find what a function captures; the functions in it are known."""
        used: dict[Var, None] = {}
        type_vars: dict[TypeVar, None] = {}
        bound: set[Var] = set(func.params)
        types: list[Any] = [func.ret_type, *(p.ty for p in func.params)]
        for e in subexpressions(func.body, lambda e: type(e) is not Function):
            if type(e) is Var:
                used[e] = None
            elif type(e) is Function:
                used.update(self._vars[e])
                type_vars.update(self._types[e])
            else:
                binders = list(bound_by(e))
                bound.update(binders)
                types += [v.ty for v in binders]
                if isinstance(e, ir.Call):
                    types += e.ty_args
        type_vars.update(free_type_variables(types))
        self._vars[func] = {v: None for v in used if v not in bound}
        self._types[func] = {t: None for t in type_vars if t not in func.type_params}


def free_type_variables(types: list[Any]) -> dict[TypeVar, None]:
    """Return the type variables that stand in types, some of which may be None, and that no type in them binds."""
    mentioned = list(ir.walk(tuple(t for t in types if t is not None)))
    bound = {p for t in mentioned if isinstance(t, FuncType) for p in t.type_params}
    return {t: None for t in mentioned if isinstance(t, TypeVar) and t not in bound}


def _inner(func: Function) -> list[Function]:
    """List the functions in a function's body that are in no other."""
    return [e for e in subexpressions(func.body, lambda e: type(e) is not Function) if type(e) is Function]
