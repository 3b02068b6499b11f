"""LowerRegions: runs of operator calls become calls of kernels, made by Relax's passes."""

from __future__ import annotations

from typing import Any

from weft.ir import IRModule, Pass, Sequential, walk
from weft.ir.deep import with_deep_stack
from weft.relax.pipeline import graph_passes
from weft.relax.transform import canonicalize_bindings
from weft.relay.adt import Constructor
from weft.relay.expr import Constant, Function, GlobalVar, Var, let_chain, lets
from weft.relay.scalars import scalar_operation
from weft.relay.transform.nested import with_bodies
from weft.relay.transform.regions import Kernels, Region, is_glue, is_operator

__all__ = ["LowerRegions", "region_passes"]


def region_passes(target: Any = None) -> Pass:
    """Return the passes that take a region's Relax function to calls of kernels."""
    first, *rest = graph_passes(target)
    return Sequential([first, canonicalize_bindings(), *rest], name="region")


def LowerRegions(target: Any = None) -> Pass:
    """Make the pass that replaces runs of operator calls by calls of kernels, which are put into the module.

    It needs Relay in A-normal form with types inferred. Afterwards calls of operators on tensors are
    ``vm.call_kernel`` and ``vm.view``, behind ``vm.bind_dims`` where dimensions are not numbers
    (``weft.relay.op.vm``). Arithmetic on scalars that the virtual machine does itself stays, unless it works on what
    a region computes. The cost is that of the Relax passes on each region; those of equal structure are lowered once.

    Parameters
    ----------
    target : Target, optional
        Decides how weights are packed.
    """
    return Pass("LowerRegions", lambda mod: _lower_regions(mod, target), 0, LowerRegions.__doc__)


def _lower_regions(mod: IRModule, target: Any) -> IRModule:
    out = mod.with_functions({v: f for v, f in mod.items() if not isinstance(f, Function)})
    state = _Lowering(Kernels(out, region_passes(target)))
    for gvar, func in mod.items():
        if isinstance(func, Function):
            out[gvar] = with_deep_stack(lambda f=func: with_bodies(f, state.body))
    return out


class _Lowering:
    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.outside: dict[int, Any] = {}

    def body(self, expr: Any) -> Any:
        """Lower a chain of lets, and those that its values hold; the chain itself if nothing changed."""
        bindings, tail = let_chain(expr)
        if not _is_atom(tail):
            last = Var("out", tail.ty)
            bindings, tail = [*bindings, (last, tail)], last
        run = _Run(self.kernels, self.outside, bindings, tail)
        nested = [value if is_operator(value) else with_bodies(value, self.body) for _, value in bindings]
        for i, (var, _) in enumerate(bindings):
            run.take(i, var, nested[i])
        run.flush(len(bindings))
        same = not run.lowered and all(new is old for new, (_, old) in zip(nested, bindings, strict=True))
        return expr if same else lets(_without_unused_glue(run.done, tail), tail)


class _Run:
    """The bindings of one body as they are lowered, and the region that is open.

    What does not depend on the open region is put in front of it, so a region goes on behind calls and branches.
    """

    def __init__(self, kernels: Kernels, outside: dict[int, Any], bindings: list[Any], tail: Any) -> None:
        self.kernels, self.outside = kernels, outside
        self.done: list[Any] = []
        self.region: Region | None = None
        self.inside: set[int] = set()
        self.lowered = False
        self.uses = [_variables(value) for _, value in bindings]
        self.last_use = {v: i for i, used in enumerate(self.uses) for v in used}
        self.last_use.update(dict.fromkeys(_variables(tail), len(bindings)))

    def take(self, i: int, var: Var, value: Any) -> None:
        """Put binding `i` into the region, in front of it, or behind it."""
        depends = not self.inside.isdisjoint(self.uses[i])
        if (is_operator(value) and (depends or scalar_operation(value) is None)) or (depends and is_glue(value)):
            if self.region is not None and not self.region.takes(value):
                self.flush(i)
            if self.region is None:
                self.region = Region(self.outside)
            self.region.add(var, value)
            self.inside.add(id(var))
            return
        if depends:
            self.flush(i)
        if is_glue(value):
            self.outside[id(var)] = value
        self.done.append((var, value))

    def flush(self, i: int) -> None:
        """Close the region; what is used from binding `i` on comes out of it."""
        region, self.region, self.inside = self.region, None, set()
        if region is not None:
            outputs = [v for v, _ in region.members if self.last_use.get(id(v), -1) >= i]
            self.done += region.close(outputs, self.kernels)
            self.lowered = True


def _without_unused_glue(bindings: list[Any], tail: Any) -> list[Any]:
    """Drop names and tuples that only regions used, which looked through them."""
    used = _variables(tail)
    kept = []
    for var, value in reversed(bindings):
        if id(var) in used or not is_glue(value):
            used |= _variables(value)
            kept.append((var, value))
    return kept[::-1]


def _variables(value: Any) -> set[int]:
    return {id(n) for n in walk(value) if isinstance(n, Var)}


def _is_atom(expr: Any) -> bool:
    return isinstance(expr, (Var, GlobalVar, Constant, Constructor))
