"""Running object code in this process: what `weft.runtime` cannot place, ORC links, resolves and keeps alive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

import weft.ffi  # noqa: F401 - loads libweft_runtime, whose weft_* functions kernels call
from weft import error, runtime
from weft.runtime.wasm_object import MAGIC as WASM_MAGIC
from weft.target.llvm.object import initialise

_PREFIX = "__tvm_ffi_"
_CONTEXT = "__tvm_ffi__library_ctx"
_COUNT = itertools.count()


class _Engine:
    """Owns linked code for as long as a function of it may run."""

    __slots__ = ("_jit", "_tracker", "addresses", "context")

    def __init__(self, objects: Sequence[bytes], names: Sequence[str]) -> None:
        initialise()
        library = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            library.add_object_img(data)
        for name in names:
            library.export_symbol(_PREFIX + name)
        imports = any(_CONTEXT.encode() in data for data in objects)
        if imports:
            library.export_symbol(_CONTEXT)
        self._jit = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        try:
            self._tracker: Any = library.link(self._jit, f"weft{next(_COUNT)}")
        except RuntimeError as e:
            raise error.CodegenError(
                "the compiled code does not link",
                found=str(e).strip(),
                help="is it for this machine, and is every external function of the program loaded?",
            ) from e
        self.addresses = [self._tracker[_PREFIX + name] for name in names]
        self.context = self._tracker[_CONTEXT] if imports else 0


def load_objects(objects: Sequence[bytes], names: Sequence[str]) -> runtime.Module:
    """Link objects into this process and return a module of their functions.

    Parameters
    ----------
    objects : sequence of bytes
        Object files. Those of another machine can be exported, and calling their functions is an error.
    names : sequence of str
        The functions (``__tvm_ffi_<name>``) to offer.

    Raises
    ------
    CodegenError
        When an object lacks a function, or needs one that the process does not have.
    """
    if any(runtime.is_foreign(data) or data.startswith(WASM_MAGIC) for data in objects):  # to be exported
        return runtime.jit_module(list(names), [0] * len(names), list(objects), None, 0)
    placed = runtime.placed_module(objects, names)  # quicker, and LLVM's linker may stay out of memory
    if placed is not None:
        return placed
    engine = _Engine(objects, names)
    return runtime.jit_module(list(names), engine.addresses, list(objects), engine, engine.context)
