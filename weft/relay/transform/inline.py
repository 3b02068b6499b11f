"""Inline: bodies of functions take the place of calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft import ir
from weft.ir import IRModule, module_pass
from weft.relay.expr import Call, Function, GlobalVar, Var
from weft.relay.transform.copying import body_for_call, fresh_copy
from weft.relay.transform.effects import Effects
from weft.relay.transform.lambda_lift import is_closure
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import ATOMS, map_parts, parts, rewrite, subexpressions


@module_pass
def inline(mod: IRModule, used_once: bool = False) -> IRModule:
    """Replace calls of functions marked ``Inline=1`` by their bodies; those that nothing refers to any more go.

    Parameters
    ----------
    used_once : bool
        Whether unmarked functions that are called from one place are inlined, too.

    Requires: Any form.
    Ensures: No calls of functions with ``Inline=1``, but of recursive ones. Arguments that have effects, or that only
        functions within the body use, get names; others stand where the parameter stood.
    Before::

        def @double(%a: Tensor[(2), float32], Inline=1) { add(%a, %a) }

        def @main(%x: Tensor[(2), float32]) { @double(negative(%x)) }

    After::

        def @main(%x: Tensor[(2), float32]) {
          %0 = negative(%x);
          add(%0, %0)
        }
    Cost: Linear in the result.
    Source: TVM's ``Inline``.
    """
    uses = {v.name_hint: _uses(f) for v, f in mod.items() if isinstance(f, Function)}
    total: Counter[str] = Counter()
    for counts in uses.values():
        total.update(counts)
    order, recursive = _callees_first(uses)
    wanted = {n for n in uses if n not in recursive and _may_go(mod[n], used_once and total[n] == 1)}
    effects, done = Effects(mod), dict[str, Any]()
    for name in order:
        func: Any = mod[name]
        bodies = {n: done[n] for n in uses[name] if n in wanted}
        done[name] = _inlined(func, bodies, effects) if bodies and not is_primitive(func) else func
    left = {n for f in done.values() for n in _uses(f)}
    gone = {n for n in wanted if total[n] and n not in left}
    return mod.with_functions({v: done.get(v.name_hint, f) for v, f in mod.items() if v.name_hint not in gone})


def _uses(func: Function) -> Counter[str]:
    """Count the references to functions of the module."""
    return Counter(p.name_hint for e in subexpressions(func) for p in parts(e) if type(p) is GlobalVar)


def _may_go(func: Any, once: bool) -> bool:
    return bool((func.attrs.get("Inline") or (once and not func.attrs)) and not is_closure(func))


def _callees_first(uses: dict[str, Counter[str]]) -> tuple[list[str], set[str]]:
    """Order functions so that each comes behind those that it refers to; find those that reach themselves."""
    order = ir.operands_first(uses, lambda name: [c for c in uses[name] if c in uses])
    return order, _in_cycles(uses, order)


def _in_cycles(uses: dict[str, Counter[str]], order: list[str]) -> set[str]:
    """Return what stands in cycles: walking against the references, last finished first, meets a cycle at once."""
    users: dict[str, list[str]] = {n: [] for n in uses}
    for name, counts in uses.items():
        for callee in counts:
            users.get(callee, []).append(name)
    found = {n for n, counts in uses.items() if n in counts}
    seen: set[str] = set()
    for root in reversed(order):
        cycle, stack = list[str](), [root]
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                cycle.append(name)
                stack += users[name]
        found.update(cycle if len(cycle) > 1 else ())
    return found


def _inlined(func: Function, bodies: dict[str, Function], effects: Effects) -> Function:
    def value(e: ir.Node) -> Any:
        return fresh_copy(bodies[e.name_hint]) if type(e) is GlobalVar and e.name_hint in bodies else e

    def rule(e: ir.Node) -> Any:
        if type(e) is not Call or type(e.op) is not GlobalVar or e.op.name_hint not in bodies:
            return map_parts(e, value)
        callee, args = bodies[e.op.name_hint], tuple(map(value, e.args))
        if is_primitive(callee):
            return Call(fresh_copy(callee), args, e.attrs, e.ty_args, ty=e.ty, span=e.span)
        return body_for_call(callee, args, e.ty_args, arguments_to_name(callee, args, effects))

    return rewrite(func, rule)


def arguments_to_name(func: Function, args: tuple[Any, ...], effects: Effects) -> list[bool]:
    """Say which arguments must be computed under a name before the body of a function that takes them."""
    own = {e for e in subexpressions(func.body, lambda e: type(e) is not Function) if type(e) is Var}
    return [
        not isinstance(a, ATOMS) and (p not in own or effects.any(a)) for p, a in zip(func.params, args, strict=True)
    ]
