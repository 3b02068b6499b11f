"""target.build: TIR functions to a native module; code generators are found by name in the function registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import CodegenError
from weft.ffi import get_global_func, register_global_func
from weft.ir import IRModule
from weft.runtime import Module, register_object_loader
from weft.target.llvm import emit_assembly, emit_ir, emit_object
from weft.target.llvm import load_objects as _llvm_load
from weft.target.target import Target
from weft.tir import PrimFunc
from weft.tir.pipeline import lower
from weft.tir.transform.make_packed_api import PREFIX

__all__ = ["build", "compile_func", "get_source", "load_objects"]


_FORMATS = {"c": "c", "cuda": "cuda"}


def _registered(what: str, kind: str) -> Any:
    """Find the function that a kind of target registered: Weft's own under a name that TVM does not take, too."""
    found = get_global_func(f"weft.target.{what}.{kind}", allow_missing=True)
    return found if found is not None else get_global_func(f"target.{what}.{kind}", allow_missing=True)


def _named(mod: IRModule | PrimFunc | Mapping[str, Any]) -> list[PrimFunc]:
    if isinstance(mod, PrimFunc):
        mod = IRModule({mod.attrs.get("global_symbol") or "main": mod})
    return [
        f if f.attrs.get("global_symbol") else f.with_attr("global_symbol", getattr(v, "name_hint", v))
        for v, f in mod.items()
        if isinstance(f, PrimFunc)
    ]


def compile_func(func: PrimFunc, target: Target, linkage: str = "internal") -> bytes:
    """Compile one scheduled function to an object file that exports ``__tvm_ffi_<global_symbol>``.

    With `linkage` ``"hidden"`` other objects of the same library may call its body, ``<global_symbol>_impl``.
    """
    return emit_object([lower(func, target)], target, linkage=linkage)


def load_objects(objects: list[bytes], names: list[str]) -> Module:
    """Link objects into this process and return a module of the functions `names`."""
    return _llvm_load(objects, names)


def build(mod: IRModule | PrimFunc, target: Any = None) -> Module:
    """Compile TIR functions.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        Functions in block form (scheduled or not) or lowered.
    target : Target or str, optional
        By default the host's CPU.

    Returns
    -------
    weft.runtime.Module
        One function for each PrimFunc, by its ``global_symbol``.

    Raises
    ------
    CodegenError
        When the target has no code generator, or cannot express something.
    """
    target = target if isinstance(target, Target) else Target(target or "llvm")
    kind = target.kind.name
    generator = _registered("build", kind)
    if generator is None:
        raise CodegenError(
            f"target '{kind}' has no code generator",
            help=f"register one, generator(mod, target) -> Module, as 'target.build.{kind}'",
        )
    named = IRModule({f.attrs["global_symbol"]: f for f in _named(mod)})
    built = generator(named, target)
    if isinstance(built, Module) and not built.has_source:
        built.set_source(lambda fmt: get_source(named, target, fmt or _FORMATS.get(kind, "ll")))
    return built


def get_source(mod: IRModule | PrimFunc, target: Any = None, fmt: str = "ll") -> str:
    """Return the LLVM IR (``"ll"``) or assembly (``"asm"``) of TIR functions, or the text of another kind of target.

    Other kinds register ``target.source.<kind>``, a function of the module, the target and `fmt`.

    Raises
    ------
    CodegenError
        When the target has no source of that kind.
    """
    target = target if isinstance(target, Target) else Target(target or "llvm")
    kind = target.kind.name
    writer = _registered("source", kind)
    if writer is not None:
        return str(writer(IRModule({f.attrs["global_symbol"]: f for f in _named(mod)}), target, fmt))
    if kind != "llvm":
        raise CodegenError(
            f"target '{kind}' shows no source",
            help=f"register a writer, writer(mod, target, fmt) -> str, as 'target.source.{kind}'",
        )
    lowered = [lower(f, target) for f in _named(mod)]
    if fmt == "ll":
        return emit_ir(lowered, target)
    if fmt == "asm":
        return emit_assembly(lowered, target)
    raise CodegenError(f"there is no source of kind '{fmt}'", expected="'ll' or 'asm'")


def _build_llvm(mod: IRModule, target: Target) -> Module:
    functions = _named(mod)
    names = [str(f.attrs["global_symbol"]).removeprefix(PREFIX) for f in functions]
    return load_objects([compile_func(f, target) for f in functions], names)


register_global_func("weft.target.build.llvm", _build_llvm, override=True)
register_object_loader(lambda objects, names=(): load_objects(list(objects), list(names)))
