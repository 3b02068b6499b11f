"""What a region becomes: calls of kernels, which Relax's passes make."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.ir import Function as RelaxFunction
from weft.ir import IRModule, Pass, fingerprint
from weft.relay.expr import Var
from weft.relay.from_relax import Bindings, from_relax
from weft.relay.transform.kernels import KernelTable
from weft.relay.transform.plain_dims import with_plain_dims
from weft.relay.transform.regions import Region

__all__ = ["Kernels"]


class Kernels(KernelTable):
    """The kernels of the module that is made, and what regions became.

    Parameters
    ----------
    mod : IRModule
        The module.
    passes : Pass
        What takes a region to calls of kernels.
    """

    def __init__(self, mod: IRModule, passes: Pass) -> None:
        super().__init__(mod)
        self.passes = passes
        self._lowered: dict[str, tuple[RelaxFunction, IRModule]] = {}

    def lower(self, mod: IRModule) -> tuple[RelaxFunction, IRModule]:
        """Return the legalized form of a region's function ``main``, and the module with its kernels."""
        key = "".join(fingerprint(f) for _, f in mod.items())
        known = self._lowered.get(key)
        if known is None:
            done = self.passes(mod)
            known = self._lowered[key] = done["main"], done  # type: ignore[assignment]
        return known

    def bindings(self, region: Region, outputs: list[Var]) -> Bindings:
        """Return a region's bindings in the lowered form; of its variables, `outputs` are bound."""
        made, derived = with_plain_dims(region.finish(outputs))
        func, mod = self.lower(made)
        bindings, atoms = from_relax(
            func, region.args, region.element_args, derived, lambda g: self.add(mod[g], g.name_hint)
        )
        named = region.assembled(outputs, atoms)
        used = _used(bindings + named)
        return [b for b in region.before if id(b[0]) in used] + _renamed(bindings, named)


def _used(bindings: Bindings) -> set[int]:
    return {id(n) for _, value in bindings for n in ir.walk(value) if isinstance(n, Var)}


def _renamed(bindings: Bindings, named: Bindings) -> Bindings:
    """Bind the region's variables: in place of those that the lowered form made up, where they are just that."""
    own = {id(v): i for i, (v, _) in enumerate(bindings)}
    renamed: dict[Any, Any] = {}
    rest: Bindings = []
    for v, value in named:
        at = own.get(id(value))
        if at is not None and value not in renamed:
            renamed[value] = v
            bindings[at] = v, bindings[at][1]
        else:
            rest.append((v, value))
    return [(v, ir.substitute(value, renamed)) for v, value in (*bindings, *rest)]
