"""Each kernel: its compiled code against its own loops without a schedule, on what it gets in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import ir, relax, runtime, tir, tune
from weft.check.difference import Difference, Tolerance, compare
from weft.target import Target, compile_func, load_objects


class WrongKernel(NamedTuple):
    """A kernel whose code computes something else than its loops: which argument differs, and in which call."""

    name: str
    call: int
    argument: str
    difference: Difference
    nodes: tuple[str, ...]


class _Compared:
    """Runs kernels twice, and goes on with what their loops say."""

    def __init__(
        self, target: Target, sites: Mapping[str, Sequence[tuple[str, ...]]], tolerance: Tolerance, each: bool
    ) -> None:
        self.target, self.sites, self.tolerance, self.each = target, sites, tolerance, each
        self.plain, self.records = relax.UnscheduledKernels(), tune.Tuned(None, target)
        self.compiled: dict[tir.PrimFunc, Any] = {}
        self.calls: dict[str, int] = {}
        self.wrong: dict[str, WrongKernel] = {}

    def __call__(self, name: str, func: tir.PrimFunc, args: Sequence[Any]) -> None:
        call = self.calls[name] = self.calls.get(name, 0) + 1
        copies = [runtime.aligned(a.copy()) if isinstance(a, np.ndarray) else a for a in args]
        self.plain(name, func, args)
        if self.wrong and (not self.each or name in self.wrong):
            return
        found = self._difference(name, func, args, copies)
        if found is not None:
            sites = self.sites.get(name, ())
            nodes = sites[min(call, len(sites)) - 1] if sites else ()
            self.wrong[name] = WrongKernel(name, call, *found, nodes)

    def _difference(
        self, name: str, func: tir.PrimFunc, expected: Sequence[Any], args: Sequence[Any]
    ) -> tuple[str, Difference] | None:
        try:
            self._compile(name, func)(*args)
        except Exception as e:  # whatever a rule, a pass or the code generator does
            return "the kernel", Difference(f"cannot be compiled or run: {type(e).__name__}: {e}")
        buffers = dict(func.buffer_map)
        for param, a, b in zip(func.params, args, expected, strict=True):
            difference = compare(a, b, self.tolerance) if isinstance(b, np.ndarray) else None
            if difference is not None:
                return f"argument '{buffers[param].name if param in buffers else param.name}'", difference
        return None

    def _compile(self, name: str, func: tir.PrimFunc) -> Any:
        """Compile a kernel as for the model, anew: what is in the cache was made of the same, and nothing shows how."""
        if func not in self.compiled:
            scheduled = relax.schedule_kernel(func, name, self.target, self.records)
            self.compiled[func] = load_objects([compile_func(scheduled, self.target)], [name])[name]
        return self.compiled[func]


def program_of_kernels(programs: Mapping[str, ir.IRModule]) -> ir.IRModule | None:
    """The last stage that calls kernels for their results, or None."""
    calls = ("relax.call_tir", "relax.call_tir_inplace")
    for mod in reversed(list(programs.values())):
        functions = [f for _, f in mod.items() if not isinstance(f, tir.PrimFunc)]
        if any(getattr(getattr(n, "op", None), "name", "") in calls for f in functions for n in ir.walk(f)):
            return mod
    return None


def wrong_kernels(
    mod: ir.IRModule,
    feeds: Sequence[Any],
    target: Target,
    sites: Mapping[str, Sequence[tuple[str, ...]]],
    tolerance: Tolerance,
    each: bool = False,
) -> tuple[list[WrongKernel], int]:
    """Compare the kernels that a program calls, in the order of the calls.

    Parameters
    ----------
    mod : IRModule
        A program that calls kernels for their results.
    feeds : sequence of array
        For the parameters of ``main``.
    target : Target
        What the kernels are compiled for; this machine has to run it.
    sites : mapping of str to sequence of tuple of str
        The nodes of the model that the calls of each kernel compute.
    tolerance : Tolerance
    each : bool
        Go on behind the first that differs.

    Returns
    -------
    (list of WrongKernel, int)
        Those that differ, and how many there are.
    """
    compared = _Compared(target, sites, tolerance, each)
    relax.Interpreter(mod, compared).run("main", *feeds)
    return list(compared.wrong.values()), len(compared.calls)
