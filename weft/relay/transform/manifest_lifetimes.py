"""ManifestLifetimes: where a variable has been used for the last time, ``memory.kill`` says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.ir import Attrs, Expr, IRModule, Op, module_pass, with_deep_stack
from weft.relay.adt import Clause, Match
from weft.relay.expr import Call, Function, If, Var, let_chain, lets
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import bound_by, subexpressions

_KILL = "memory.kill"


@module_pass(name="ManifestLifetimes")
def manifest_lifetimes(mod: IRModule) -> IRModule:
    """Say behind its last use that a variable is not needed any more, so that what it alone held is freed.

    Requires: A-normal form; of other expressions the variables of lets and parameters live until the end.
    Ensures: A-normal form. A branch ends the lives of what nothing behind it needs and it uses; what a local function
        captures lives as long as the function.
    Before::

        def @main(%x: Tensor[(3), float32]) -> Tensor[(3), float32] {
          let %y: Tensor[(3), float32] = add(%x, %x);
          negative(%y)
        }

    After::

        def @main(%x: Tensor[(3), float32]) -> Tensor[(3), float32] {
          let %y: Tensor[(3), float32] = add(%x, %x);
          let %_0 = memory.kill(%x);
          negative(%y)
        }
    Cost: The size of the program times the depth of its branches.
    Source: TVM's ``ManifestLifetimes``.
    """
    functions = {
        v: with_deep_stack(lambda f=f: _of_function(f, set())) if type(f) is Function else f for v, f in mod.items()
    }
    return mod.with_functions(functions)


def _of_function(func: Function, captured: set[Var]) -> Function:
    return func if is_primitive(func) else func.replace(body=_ended(func.body, captured))


def _used(exprs: Iterable[Any]) -> set[Var]:
    """Find the variables that expressions use and do not bind."""
    used: set[Var] = set()
    bound: set[Var] = set()
    for e in exprs:
        for s in subexpressions(e):
            bound.update(bound_by(s))
            if type(s) is Var:
                used.add(s)
    return used - bound


def _ended(body: Expr, needed: set[Var]) -> Any:
    """End the lives of variables in a chain of lets, behind which `needed` are used."""
    bindings, tail = let_chain(body)
    live = _used([tail]) | needed
    if type(tail) in (If, Match):
        tail = _in_value(tail, needed)
    made: list[tuple[Var, Any]] = []
    for var, value in reversed(bindings):
        behind = live - {var}
        used = _used([value])
        by_branches = _used(_branches(value))  # they end it themselves
        over = [v for v in used if v not in live and v not in by_branches]
        kill = type(value) is not Call or getattr(value.op, "name", "") != _KILL
        made += [
            (Var("_"), Call(Op.get(_KILL), (v,), Attrs.of())) for v in sorted(over, key=lambda v: v.name_hint) if kill
        ]
        made.append((var, _in_value(value, live | set(over))))
        live = behind | used
    return lets(made[::-1], tail)


def _branches(value: Any) -> list[Expr]:
    if type(value) is If:
        return [value.true_branch, value.false_branch]
    return [c.rhs for c in value.clauses] if type(value) is Match else []


def _in_value(value: Any, needed: set[Var]) -> Any:
    """End the lives of variables inside of what a let binds."""
    if type(value) is Function:
        return _of_function(value, _used([value]))
    if type(value) is If:
        branches = [_ended(b, needed) for b in _branches(value)]
        return If(value.cond, *branches, ty=value.ty, span=value.span)
    if type(value) is Match:
        clauses = tuple(Clause(c.lhs, _ended(c.rhs, needed), span=c.span) for c in value.clauses)
        return Match(value.data, clauses, value.complete, ty=value.ty, span=value.span)
    return value
