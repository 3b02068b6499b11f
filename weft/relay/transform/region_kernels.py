"""What a region becomes: calls of kernels, which Relax's passes make."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, cast

from weft import ir
from weft.relay.expr import Var
from weft.relay.from_relax import Bindings, from_relax
from weft.relay.transform.kernels import KernelTable
from weft.relay.transform.plain_dims import with_plain_dims
from weft.relay.transform.regions import Region

_LARGE = 1024
"""Elements from which a constant is known by its memory rather than by its contents."""


class Kernels(KernelTable):
    """The kernels of the module that is made, and what regions became.

    Parameters
    ----------
    mod : IRModule
        The module.
    passes : Pass
        What takes a region to calls of kernels.
    """

    def __init__(self, mod: ir.IRModule, passes: ir.Pass) -> None:
        super().__init__(mod)
        self.passes = passes
        self._lowered: dict[str, _Lowered] = {}

    def lower(self, mod: ir.IRModule) -> _Lowered:
        """Return the legalized form of a region's function ``main``, or of one of equal structure."""
        key = _key(mod)
        known = self._lowered.get(key)
        if known is None:
            named, derived = with_plain_dims(mod)
            done = self.passes(named)
            known = self._lowered[key] = _Lowered(cast(ir.Function, done["main"]), done, derived, mod)
        return known

    def bindings(self, region: Region, outputs: list[Var]) -> Bindings:
        """Return a region's bindings in the lowered form; of its variables, `outputs` are bound."""
        made = self.lower(region.finish(outputs))
        bindings, atoms = from_relax(
            made.main,
            region.args,
            region.element_args,
            made.derived,
            lambda g: self.add(made.mod[g], _primitive(g.name_hint)),
        )
        named = region.assembled(outputs, atoms)
        return _needed(region.before, _used(bindings + named)) + _renamed(bindings, named)


class _Lowered(NamedTuple):
    """What a region became: its function, the module with its kernels, and what the function's named dimensions are."""

    main: ir.Function
    mod: ir.IRModule
    derived: list[tuple[ir.Var, ir.PrimExpr]]
    source: ir.IRModule
    """The region itself, whose constants the key knows by their places in memory."""


def _key(mod: ir.IRModule) -> str:
    """Tell a region's structure, in which large constants are the same where their data is."""
    data: list[int] = []

    def placeholder(node: ir.Node) -> Any:
        if not isinstance(node, ir.Constant) or prod(node.data.shape) < _LARGE:
            return None
        data.append(id(node.data))
        return ir.ExprVar("constant", node.ty)

    functions = [ir.fingerprint(ir.rewrite(f, lambda n: n, pre=placeholder)) for _, f in mod.items()]
    return " ".join([*functions, *map(str, data)])


def _primitive(name: str) -> str:
    """Name a kernel as programs that list an executable's primitives know it."""
    return name if name.startswith("fused_") else f"fused_{name}"


def _used(bindings: Bindings) -> set[Var]:
    return {n for _, value in bindings for n in ir.find(value, Var)}


def _needed(before: Bindings, used: set[Var]) -> Bindings:
    """Return the bindings of what is used, and of the tuples that it is taken from."""
    kept: Bindings = []
    for binding in reversed(before):
        if binding[0] in used:
            used |= _used([binding])
            kept.append(binding)
    return kept[::-1]


def _renamed(bindings: Bindings, named: Bindings) -> Bindings:
    """Bind the region's variables: in place of those that the lowered form made up, where they are just that."""
    own = {v: i for i, (v, _) in enumerate(bindings)}
    renamed: dict[Any, Any] = {}
    rest: Bindings = []
    for v, value in named:
        at = own.get(value)
        if at is not None and value not in renamed:
            renamed[value] = v
            bindings[at] = v, bindings[at][1]
        else:
            rest.append((v, value))
    return [(v, ir.substitute(value, renamed)) for v, value in (*bindings, *rest)]
