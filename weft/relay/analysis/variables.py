"""The variables, type variables and data types of Relay programs, each once, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft import ir
from weft.ir import Expr, IRModule, Type
from weft.relay.expr import Function, Let, Var
from weft.relay.types import FuncType, TensorType, TypeVar, type_parts
from weft.relay.walk import bound_by, parts, subexpressions

__all__ = [
    "all_dtypes", "all_type_vars", "all_vars", "bound_type_vars", "bound_vars", "free_type_vars", "free_vars",
    "post_order_visit",
]  # fmt: skip


def _roots(program: Any) -> list[Any]:
    if not isinstance(program, IRModule):
        return [program]
    return [f for f in program.functions.values() if isinstance(f, Function)]


def _distinct(found: Iterator[Any]) -> list[Any]:
    return list({id(x): x for x in found}.values())


def bound_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression introduces: parameters and those of lets and patterns."""
    return _distinct(v for e in subexpressions(expr) for v in bound_by(e))


def free_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression uses and does not introduce."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in _used(expr) if id(v) not in bound]


def all_vars(expr: Expr) -> list[Var]:
    """List the variables that an expression introduces or uses."""
    return _distinct(iter([*_used(expr), *bound_vars(expr)]))


def _used(expr: Expr) -> list[Var]:
    return [e for e in subexpressions(expr) if isinstance(e, Var)]


def post_order_visit(expr: Expr, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on each expression, operands first; a shared one is visited once."""
    seen: set[int] = {id(expr)}
    stack: list[tuple[Any, Iterator[Any]]] = [(expr, _below(expr))]
    while stack:
        node, below = stack[-1]
        for e in below:
            if id(e) not in seen:
                seen.add(id(e))
                stack.append((e, _below(e)))
                break
        else:
            stack.pop()
            fvisit(node)


def _below(expr: Any) -> Iterator[Any]:
    yield from bound_by(expr) if isinstance(expr, (Function, Let)) else ()
    yield from parts(expr)


def _annotations(expr: Any) -> Iterator[Type]:
    """Yield the types that stand in an expression or type: annotations and type arguments."""
    if isinstance(expr, Type):
        yield expr
        return
    for e in subexpressions(expr):
        yield from (v.ty for v in bound_by(e) if v.ty is not None)
        if isinstance(e, Var) and e.ty is not None:
            yield e.ty
        elif isinstance(e, ir.Call):
            yield from e.ty_args
        elif isinstance(e, Function) and e.ret_type is not None:
            yield e.ret_type


def _type_vars(expr: Any, mod: IRModule | None) -> tuple[list[TypeVar], list[TypeVar]]:
    """List the type variables that are introduced, and those that are used."""
    functions = [] if isinstance(expr, Type) else [e for e in subexpressions(expr) if isinstance(e, Function)]
    bound: list[TypeVar] = [v for f in functions for v in f.type_params]
    used: list[TypeVar] = []
    stack: list[Any] = list(_annotations(expr))[::-1]
    if mod is not None and isinstance(expr, ir.GlobalVar):
        stack.append(mod[expr].ty)
    while stack:
        ty = stack.pop()
        if isinstance(ty, TypeVar):
            used.append(ty)
            continue
        if isinstance(ty, FuncType):
            bound += ty.type_params
        elif hasattr(ty, "type_vars"):  # a definition of a data type
            bound += ty.type_vars
            stack += [t for c in reversed(ty.constructors) for t in reversed(c.inputs)]
        stack.extend(reversed(type_parts(ty)))
    return _distinct(iter(bound)), _distinct(iter(used))


def bound_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type introduces."""
    return _type_vars(expr, mod)[0]


def free_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type uses and does not introduce."""
    bound, used = _type_vars(expr, mod)
    return [v for v in used if not any(v is b for b in bound)]


def all_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """List the type variables that an expression or type introduces or uses."""
    bound, used = _type_vars(expr, mod)
    return _distinct(iter([*bound, *used]))


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
