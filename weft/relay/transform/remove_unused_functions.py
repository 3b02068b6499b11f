"""RemoveUnusedFunctions: what the entries do not reach goes away."""

from __future__ import annotations

from collections.abc import Iterable

from weft.ir import IRModule, module_pass, reached, walk
from weft.relay.expr import Function, GlobalVar
from weft.relay.walk import subexpressions


@module_pass
def remove_unused_functions(mod: IRModule, entry_functions: Iterable[str] = ("main",)) -> IRModule:
    """Remove the functions that no entry calls or refers to, even through others.

    Parameters
    ----------
    entry_functions : iterable of str
        The names of functions that are called from outside.

    Requires: Any form.
    Ensures: The same form; every function is an entry or reached from one.
    Before::

        def @helper(%x: Tensor[(2), float32]) { add(%x, %x) }
        def @main(%x: Tensor[(2), float32]) { negative(%x) }

    After::

        def @main(%x: Tensor[(2), float32]) { negative(%x) }
    Cost: Linear.
    Source: TVM's ``RemoveUnusedFunctions``.
    """
    kept = reached_from(mod, entry_functions)
    return mod.with_functions({v: f for v, f in mod.items() if v.name_hint in kept})


def reached_from(mod: IRModule, entries: Iterable[str]) -> set[str]:
    """Return the names of entries and of all functions that they reach."""

    def used(name: str) -> list[str]:
        func = mod[name]
        inside = subexpressions(func) if isinstance(func, Function) else walk(func)
        return [e.name_hint for e in inside if isinstance(e, GlobalVar) and e.name_hint in mod]

    return set(reached((name for name in entries if name in mod), used))
