"""The variables, type variables and data types of Relay programs, each once, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft import ir
from weft.ir import Expr, IRModule, Type
from weft.relay.adt import Match
from weft.relay.expr import Function, Let, Var
from weft.relay.types import FuncType, TensorType, TypeVar, type_parts
from weft.relay.walk import bound_by, parts, pattern_vars, subexpressions


def _roots(program: Any) -> list[Any]:
    if not isinstance(program, IRModule):
        return [program]
    return [f for f in program.functions.values() if isinstance(f, Function)]


def _distinct(found: Iterator[Any]) -> list[Any]:
    return list(dict.fromkeys(found))


def bound_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression introduces: parameters and those of lets and patterns."""
    return _distinct(v for e in subexpressions(expr) for v in bound_by(e))


def free_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression uses and does not introduce."""
    bound = set(bound_vars(expr))
    return [v for v in _used(expr) if v not in bound]


def all_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression introduces or uses."""
    return _distinct(e for e in ir.operands_first((expr,), _as_it_stands) if isinstance(e, Var))


def _as_it_stands(expr: ir.Node) -> Iterator[ir.Node]:
    if not isinstance(expr, Match):
        yield from _below(expr)
        return
    yield expr.data
    for clause in expr.clauses:
        yield from pattern_vars(clause.lhs)
        yield clause.rhs


def _used(expr: Expr) -> list[Var]:
    return [e for e in subexpressions(expr) if isinstance(e, Var)]


def post_order_visit(expr: Expr, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on each expression, operands first; a shared one is visited once."""
    for node in ir.operands_first((expr,), _below):
        fvisit(node)


def _below(expr: ir.Node) -> Iterator[Any]:
    yield from bound_by(expr) if isinstance(expr, (Function, Let)) else ()
    yield from parts(expr)


def _annotations(e: ir.Node) -> Iterator[Type]:
    """Yield the types that stand in an expression itself: annotations of what it binds, type arguments."""
    yield from (v.ty for v in bound_by(e) if v.ty is not None)
    if isinstance(e, ir.Call):
        yield from e.ty_args
    elif isinstance(e, Function):
        yield from () if e.ret_type is None else (e.ret_type,)
    elif isinstance(e, Var) and e.ty is not None:
        yield e.ty


def _inner_types(ty: Any) -> tuple[Type, ...]:
    return tuple(t for c in ty.constructors for t in c.inputs) if hasattr(ty, "constructors") else type_parts(ty)


def _parameters(ty: Type) -> tuple[TypeVar, ...]:
    return ty.type_params if isinstance(ty, FuncType) else getattr(ty, "type_vars", ())


def bound_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type introduces."""
    found: list[TypeVar] = []
    types: list[Any] = [expr] if isinstance(expr, Type) else []
    for e in [] if types else subexpressions(expr):
        found += e.type_params if isinstance(e, Function) else ()
        types += _annotations(e)
    types.reverse()
    while types:
        ty = types.pop()
        if not isinstance(ty, TensorType):
            found += _parameters(ty)
            types.extend(reversed(_inner_types(ty)))
    return _distinct(iter(found))


def free_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type uses outside of what introduces them."""
    return list(_free_in(expr) if isinstance(expr, Type) else _free_of(expr, {}))


def _free_of(expr: Expr, known: dict[Function, dict[TypeVar, None]]) -> dict[TypeVar, None]:
    """Collect the free type variables of an expression; those of the functions in it are remembered."""
    found: dict[TypeVar, None] = {}
    for e in subexpressions(expr, lambda e: e is expr or not isinstance(e, Function)):
        if isinstance(e, Function) and e is not expr:
            if e not in known:
                known[e] = _free_of(e, known)
            found.update(known[e])
        else:
            for ty in _annotations(e):
                found.update(_free_in(ty))
    for v in expr.type_params if isinstance(expr, Function) else ():
        found.pop(v, None)
    return found


def _free_in(ty: Type) -> dict[TypeVar, None]:
    if isinstance(ty, TypeVar):
        return {ty: None}
    found: dict[TypeVar, None] = {}
    for t in () if isinstance(ty, TensorType) else _inner_types(ty):
        found.update(_free_in(t))
    for v in _parameters(ty):
        found.pop(v, None)
    return found


def all_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type introduces or uses."""
    return _distinct(iter([*bound_type_vars(expr), *free_type_vars(expr)]))


def all_dtypes(expr: Expr | IRModule) -> set[str]:
    """Return the data types of all tensors in a program whose types are inferred."""
    found: set[str] = set()
    for root in _roots(expr):
        for e in subexpressions(root):
            stack: list[Any] = [getattr(e, "ty", None), *(v.ty for v in bound_by(e))]
            while stack:
                ty = stack.pop()
                if isinstance(ty, TensorType):
                    found.add(str(ty.dtype))
                stack.extend(type_parts(ty))
    return found
