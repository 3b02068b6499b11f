"""Kernels of symbolic shapes beside their executable, to be compiled for shapes that stay hot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from weft import error, ir, op, tir
from weft.runtime import Module
from weft.runtime.jit import Recompilable
from weft.tir.specialize import dimension_places, specialize

_MOST_DIMS = 4  # that the machine compares at each call


def recompilable_kernels(mod: ir.IRModule, compile: Callable[[ir.IRModule], Module | None]) -> dict[str, Recompilable]:
    """Find the TIR functions of a module that are worth compiling for given dimensions of their arguments, by name.

    Products and convolutions are not: their tiles take symbolic rows as they are, a shape of their own gains some
    percent, and compiling them takes a core for seconds.

    Parameters
    ----------
    mod : IRModule
        The functions, before they are scheduled.
    compile : callable
        From TIR functions to a module.
    """
    out: dict[str, Recompilable] = {}
    for v, func in mod.items():
        if (
            isinstance(func, tir.PrimFunc)
            and not func.attrs.get("tir.is_scheduled")
            and func.attrs.get("op_pattern", 0) <= op.Fusion.REDUCTION
        ):
            places = dimension_places(func)
            if places and len(places) <= _MOST_DIMS:
                name = func.attrs.get("global_symbol") or v.name_hint
                out[name] = Recompilable([p[1:] for p in places], _Source(func, name, [p[0] for p in places], compile))
    return out


class _Source:
    """A function to be compiled for values of its dimensions, in the contexts of the first compilation."""

    def __init__(
        self, func: tir.PrimFunc, name: str, dims: Sequence[Any], compile: Callable[[ir.IRModule], Module | None]
    ) -> None:
        self.func, self.name, self.dims, self.compile = func, name, dims, compile
        self.contexts = copy_context()

    def __call__(self, shape: Sequence[int]) -> tuple[Module, str]:
        """Compile."""
        made = specialize(self.func, dict(zip(self.dims, shape, strict=True)))
        module = self.contexts.copy().run(self.compile, ir.IRModule({self.name: made}))
        if module is None:
            raise error.InternalError("a kernel became no code", found=self.name)
        return module, self.name


def kernels_to_json(kernels: Mapping[str, Recompilable]) -> dict[str, Any] | None:
    """Write kernels that :func:`recompilable_kernels` found, for another process.

    Returns
    -------
    dict or None
        ``places`` of each and all of them as ``module``, the text for :func:`kernels_from_json`; None without kernels.
    """
    if not kernels:
        return None
    places = {name: [list(p) for p in k.places] for name, k in kernels.items()}
    sources = {name: k.compile.func for name, k in kernels.items() if isinstance(k.compile, _Source)}
    return {"places": places, "module": ir.save_json(ir.IRModule(sources))}


def kernels_from_json(text: str, compile: Callable[[ir.IRModule], Module | None]) -> dict[str, Recompilable]:
    """Read the module that :func:`kernels_to_json` wrote.

    Parameters
    ----------
    text : str
        The module.
    compile : callable
        From TIR functions to a module.
    """
    return recompilable_kernels(ir.load_json(text), compile)
