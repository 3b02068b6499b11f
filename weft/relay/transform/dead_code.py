"""DeadCodeElimination: bindings that nothing uses go away."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.ir import Expr, IRModule, module_pass
from weft.relay.expr import Function, Let, Var
from weft.relay.transform.effects import Effects
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import parts, rewrite, subexpressions


@module_pass
def dead_code_elimination(mod: IRModule, inline_once: bool = False, ignore_impurity: bool = False) -> IRModule:
    """Remove lets whose variables are not used and whose values have no effects.

    Parameters
    ----------
    inline_once : bool
        Whether values that are used once take the place of their variables, where they are computed as often there.
    ignore_impurity : bool
        Whether effects may be removed, too.

    Requires: Any form.
    Ensures: The same form (less A-normal with `inline_once`); every let is used or has effects.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          let %a = add(%x, %x);
          let %b = multiply(%a, %x);
          let %c = negative(%x);
          %c
        }

    After::

        def @main(%x: Tensor[(2), float32]) {
          let %c = negative(%x);
          %c
        }
    Cost: Linear.
    Source: TVM's ``DeadCodeElimination``.
    """
    effects = None if ignore_impurity else Effects(mod)
    return mod.with_functions(
        {
            v: _without_dead(f, effects, inline_once) if type(f) is Function and not is_primitive(f) else f
            for v, f in mod.items()
        }
    )


def _without_dead(func: Function, effects: Effects | None, inline_once: bool) -> Function:
    live, _ = _live(func, effects)
    func = rewrite(func, lambda e: e.body if type(e) is Let and e.var not in live else e)
    if not inline_once:
        return func
    _, counts = _live(func, effects)
    inlined = _used_once(func, counts, effects)
    return rewrite(func, lambda e: e.body if type(e) is Let and e.var in inlined else e, instead=inlined)


def _live(func: Function, effects: Effects | None) -> tuple[set[Var], Counter[Var]]:
    """Return the variables of lets that are needed, and how often those that are needed stand for something."""
    live: set[Var] = set()
    counts: Counter[Var] = Counter()
    waiting: dict[Var, Any] = {}
    seen: set[Expr] = set()
    stack: list[Any] = [func]
    while stack:
        e = stack.pop()
        if type(e) is Var:
            counts[e] += 1
            live.add(e)
            if e in waiting:
                stack.append(waiting.pop(e))
            continue
        if e in seen:
            continue
        seen.add(e)
        if type(e) is not Let:
            stack.extend(parts(e))
            continue
        stack.append(e.body)
        if e.var in live or (effects is not None and effects.any(e.value)):
            live.add(e.var)
            stack.append(e.value)
        else:
            waiting[e.var] = e.value
    return live, counts


def _used_once(func: Function, counts: Counter[Var], effects: Effects | None) -> dict[Var, Any]:
    """Return what takes the place of variables: values without effects, used once in the function that binds them."""
    found: dict[Var, Any] = {}
    functions = [func]
    while functions:
        bound: dict[Var, Any] = {}
        used: set[Any] = set()
        for e in subexpressions(functions.pop().body, lambda e: type(e) is not Function):
            if type(e) is Let and counts[e.var] == 1:
                bound[e.var] = e.value
            elif type(e) is Var:
                used.add(e)
            elif type(e) is Function:
                functions.append(e)
        for var, value in bound.items():
            if var in used and not (effects is not None and effects.any(value)):
                found[var] = value
    return found
