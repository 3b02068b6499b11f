"""LowerRegions: runs of operator calls become calls of kernels, made by Relax's passes."""

from __future__ import annotations

from weft.ir import IRModule, Pass, Sequential
from weft.ir.deep import with_deep_stack
from weft.relax.pipeline import graph_passes
from weft.relax.transform import canonicalize_bindings
from weft.relay.expr import Function
from weft.relay.transform.nested import with_bodies
from weft.relay.transform.region_kernels import Kernels
from weft.relay.transform.runs import Runs
from weft.target import Target


def region_passes(target: Target | str | None = None) -> Pass:
    """Return the passes that take a region's Relax function to calls of kernels."""
    first, *rest = graph_passes(target, check_indices=False)
    return Sequential([first, canonicalize_bindings(), *rest], name="region")


def LowerRegions(target: Target | str | None = None) -> Pass:
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
    return Pass("LowerRegions", lambda mod: _lower_regions(mod, target), 0, LowerRegions.__doc__, "relay.anf")


def _lower_regions(mod: IRModule, target: Target | str | None) -> IRModule:
    out = mod.with_functions({v: f for v, f in mod.items() if not isinstance(f, Function)})
    kernels = Kernels(out, region_passes(target))
    runs = Runs(kernels.bindings, scalars=False)
    for gvar, func in mod.items():
        if isinstance(func, Function):
            out[gvar] = with_deep_stack(lambda f=func: with_bodies(f, runs.body))
    return out
