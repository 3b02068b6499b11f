"""target.build: TIR functions to a native module; what makes it is found in the target's kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import CodegenError, DuplicateSymbol
from weft.garbage import rarely_collected
from weft.ir import IRModule, dumped, show_text
from weft.runtime import Module
from weft.target.llvm import load_objects as _llvm_load
from weft.target.target import Target
from weft.tir import PrimFunc


def _named(mod: IRModule | PrimFunc | Mapping[str, Any]) -> list[PrimFunc]:
    if isinstance(mod, PrimFunc):
        mod = IRModule({mod.attrs.get("global_symbol") or "main": mod})
    named: dict[str, tuple[str, PrimFunc]] = {}
    for v, f in mod.items():
        if not isinstance(f, PrimFunc):
            continue
        key = str(getattr(v, "name_hint", v))
        symbol = str(f.attrs.get("global_symbol") or key)
        if symbol in named:
            raise DuplicateSymbol(
                f"Duplicate PrimFunc global_symbol '{symbol}'",
                found=f"{named[symbol][0]}, {key}",
                help="give each function of the module a name of its own",
            )
        named[symbol] = key, f if f.attrs.get("global_symbol") else f.with_attr("global_symbol", symbol)
    return [f for _, f in named.values()]


def compile_func(func: PrimFunc, target: Target, linkage: str = "internal", *, beside: bool = False) -> bytes:
    """Compile one scheduled function to an object file that exports ``__tvm_ffi_<global_symbol>``.

    With `linkage` ``"hidden"`` other objects of the same library may call its body, ``<global_symbol>_impl``; with
    `beside` it needs those of :func:`services` beside it.

    Raises
    ------
    CodegenError
        When the target makes no objects, but modules only.
    """
    if target.kind.compile is None:
        raise CodegenError(f"target '{target.kind}' makes no object code of single functions", help="use build")
    if beside and target.kind.services is not None:
        return target.kind.compile(func, target, linkage, beside=True)
    return target.kind.compile(func, target, linkage)


def services(target: Target) -> list[bytes]:
    """Return what objects that were compiled with ``beside=True`` need in their library."""
    return [target.kind.services(target)] if target.kind.services is not None else []


def load_objects(objects: list[bytes], names: list[str]) -> Module:
    """Link objects into this process and return a module of the functions `names`."""
    return _llvm_load(objects, names)


@rarely_collected()
@dumped
def build(mod: IRModule | PrimFunc, target: Target | str | None = None) -> Module:
    """Compile TIR functions.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        Functions in block form (scheduled or not) or lowered.
    target : Target or str, optional
        By default that of ``with Target(...)``, else the host's CPU.

    Returns
    -------
    weft.runtime.Module
        One function for each PrimFunc, by its ``global_symbol``.

    Raises
    ------
    CodegenError
        When the target has no code generator, or cannot express something.
    """
    target = target or Target.current() or "llvm"
    target = target if isinstance(target, Target) else Target(target)
    kind = target.kind
    if kind.build is None:
        raise CodegenError(f"target '{kind}' has no code generator", help="its TargetKind has no build=")
    named = IRModule({f.attrs["global_symbol"]: f for f in _named(mod)})
    built = kind.build(named, target)
    if isinstance(built, Module) and not built.has_source:
        built.set_source(lambda fmt: get_source(named, target, fmt))
    if kind.source is not None and kind.source_format != "ll":  # LLVM shows each function's
        show_text(next(iter(named)).name_hint, f"source.{kind.source_format}", lambda: built.get_source())
    return built


def get_source(mod: IRModule | PrimFunc, target: Target | str | None = None, fmt: str = "") -> Any:
    """Return the text of TIR functions as a target has it: LLVM IR (``"ll"``), assembly (``"asm"``), ``"c"``.

    LLVM's binary form (``"bc"``) comes as bytes.

    Raises
    ------
    CodegenError
        When the target has no source of that kind.
    """
    target = target if isinstance(target, Target) else Target(target or "llvm")
    kind = target.kind
    if kind.source is None:
        raise CodegenError(f"target '{kind}' shows no source", help="its TargetKind has no source=")
    named = IRModule({f.attrs["global_symbol"]: f for f in _named(mod)})
    return kind.source(named, target, fmt or kind.source_format)
