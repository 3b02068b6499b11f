"""Executables: the program of a compiled model, its constants and bytecode, as data and as text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from weft import ffi, runtime
from weft.error import InvalidArgument, OutOfMemory, WeftError
from weft.runtime.bytecode import Bytecode, VMFuncInfo
from weft.runtime.jit import Recompilable
from weft.runtime.loading import load_module
from weft.runtime.module import Module
from weft.runtime.opcodes import FuncKind
from weft.runtime.tensor import Tensor, constant_view
from weft.runtime.weight_file import files_are_used, stored

_from_bytes = tvm_ffi.get_global_func("weft.executable_from_bytes")
_from_parts = tvm_ffi.get_global_func("weft.executable_from_parts")
_to_bytes = tvm_ffi.get_global_func("weft.executable_to_bytes")


def shape_constant(dims: Sequence[int]) -> tvm_ffi.Shape:
    """A shape for the constant pool."""
    return tvm_ffi.Shape(tuple(int(d) for d in dims))


def dtype_constant(dtype: str | tvm_ffi.dtype) -> tvm_ffi.dtype:
    """A dtype for the constant pool, from its name; ``"void"`` is the unknown dtype."""
    return tvm_ffi.dtype(str(dtype))


class Executable:
    """What a compiler made: a module, with the interface that all kinds of compiled programs share.

    What the module offers besides, such as ``time_evaluator``, the executable does, too.

    Parameters
    ----------
    mod : Module
        The compiled code.
    """

    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self._jitted_mod: Module | None = None

    def __tvm_ffi_object__(self) -> tvm_ffi.Module:
        """The tvm-ffi module."""
        return self.mod.__tvm_ffi_object__()

    def jit(self, *_args: Any, force_recompile: bool = False, **_kwargs: Any) -> Module:
        """The module, whose code is already in this process; with `force_recompile`, another wrapper of it."""
        if self._jitted_mod is None:
            self._jitted_mod = self.mod
        if force_recompile:
            self._jitted_mod = Module(self.mod)
            self._jitted_mod.__dict__.update(self.mod.__dict__)
        return self._jitted_mod

    def export_library(self, file_name: str | os.PathLike[str], host: str | None = None, **options: Any) -> Any:
        """Write a shared library; see :meth:`Module.export_library`."""
        return self.mod.export_library(file_name, host, **options)

    def __getitem__(self, name: str) -> Any:
        return self.jit().get_function(name, query_imports=True)

    def __call__(self, *args: Any) -> Any:
        """Call ``main``, or the only function."""
        return self.jit().entry_func(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "mod":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.mod, name)

    def __repr__(self) -> str:
        return f"Executable({self.mod!r})"


class VMExecutable(Bytecode, Executable):
    """An executable of the virtual machine and the modules that it needs.

    Parameters
    ----------
    mod : Module
        A module of kind ``weft.Executable``.

    Attributes
    ----------
    recompilable : dict of str to Recompilable
        Kernels that can be compiled for a shape. The compiler sets it; it is not saved.
    slow_kernels : tuple of str
        What the compiler warned of: kernels that no schedule rule suits and that cost much. Libraries do not hold it.
    places : mapping of str to sequence of (int, str)
        By function, the instructions from which on others come from another place of the program, and that place. The
        compiler sets it; it is not saved in libraries.
    """

    def __init__(self, mod: Module) -> None:
        if mod.kind != "weft.Executable":
            raise InvalidArgument("not an executable", expected="a module of kind 'weft.Executable'", found=mod.kind)
        super().__init__(mod)
        self.recompilable: dict[str, Recompilable] = {}
        self.slow_kernels: tuple[str, ...] = ()
        self.places: Mapping[str, Sequence[tuple[int, str]]] = {}

    def name_place(self, error: WeftError) -> None:
        """Let an error of a call say which place of the program it comes from."""
        place, trace = "", error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            for start, name in self.places.get(file[6:-1], ()) if file.startswith("<weft:") else ():
                place = name if start <= trace.tb_lineno else place
            trace = trace.tb_next
        if place and isinstance(error, OutOfMemory):
            error.what += f" for a result of {place}"
        elif place and error.where is None:
            error.where = place

    @staticmethod
    def from_parts(
        functions: Sequence[VMFuncInfo],
        constants: Sequence[Any],
        memory_scopes: Mapping[int, str],
        instr_offset: Any,
        instr_data: Any,
        imports: Sequence[Any] = (),
    ) -> VMExecutable:
        """Make an executable of its parts, and verify it.

        Parameters
        ----------
        functions : sequence of VMFuncInfo
            The function table.
        constants : sequence
            Tensors or arrays, :class:`tvm_ffi.Shape`, ``str``, ``int``, ``float``, :class:`tvm_ffi.dtype`.
            Memory is shared where it is contiguous and 64-byte aligned, else copied.
        memory_scopes : mapping of int to str
            Scope of constants by index.
        instr_offset, instr_data : array_like of int64
            Where each instruction begins, and the words.
        imports : sequence of Module
            Modules with the functions that the program calls.

        Raises
        ------
        ExecutableError
            When verification fails; it lists all that is wrong.
        """
        rows = [[int(f[0]), f[1], *map(int, f[2:6]), list(f[6])] for f in functions]
        scopes = [[int(i), s] for i, s in memory_scopes.items()]
        handles = [m.__tvm_ffi_object__() if hasattr(m, "__tvm_ffi_object__") else m for m in imports]
        offsets = np.array(instr_offset, np.int64).reshape(-1)
        words = np.array(instr_data, np.int64).reshape(-1)
        pool = [ffi.convert_argument(_on_a_line(c)) for c in constants]
        return VMExecutable(Module(_from_parts(rows, pool, scopes, offsets, words, handles)))

    @staticmethod
    def from_bytes(data: bytes, imports: Sequence[Any] = ()) -> VMExecutable:
        """Read the bytes of an executable file, and verify them."""
        mod = Module(_from_bytes(data))
        for m in imports:
            mod.import_module(m)
        return VMExecutable(mod)

    @staticmethod
    def load_from_file(path: str | os.PathLike[str]) -> VMExecutable:
        """Open an exported library."""
        return VMExecutable(load_module(path))

    @property
    def bytes(self) -> bytes:
        """The executable file."""
        return bytes(_to_bytes(self.mod))

    @property
    def imports(self) -> list[Module]:
        """Modules with the functions that the program calls."""
        return self.mod.imports

    def function(self, name: str) -> VMFuncInfo:
        """Entry of a function that the VM can run."""
        for f in self.functions:
            if f.name == name and f.kind != FuncKind.PACKED_FUNC:
                return f
        known = ", ".join(f.name for f in self.functions if f.kind != FuncKind.PACKED_FUNC)
        raise InvalidArgument(f"the executable has no function '{name}'", found=known)

    def as_text(self) -> str:
        """The bytecode as a listing, one instruction a line."""
        return runtime.disassemble.as_text(self)

    def as_python(self) -> str:
        """The bytecode as a Python program over ``ExecBuilder``, which rebuilds it."""
        return runtime.disassemble.as_python(self)

    def stats(self) -> str:
        """Summary: the constant pool and the functions."""
        return runtime.disassemble.stats(self)

    def __call__(self, *args: Any) -> Any:
        """Call ``main`` on a CPU virtual machine."""
        return self.mod.entry_func(*args)

    def __repr__(self) -> str:
        names = ", ".join(f.name for f in self.functions if f.kind != FuncKind.PACKED_FUNC)
        return f"VMExecutable({names})"


for _name in ("as_text", "as_python", "stats"):  # as functions of a module that was loaded

    @ffi.register_global_func(f"weft.Executable.{_name}", override=True)
    def _about(mod: Any, name: str = _name) -> str:
        return getattr(VMExecutable(Module(mod) if isinstance(mod, tvm_ffi.Module) else mod), name)()


def _on_a_line(constant: Any) -> Any:
    """A tensor of a model file in a file of its own where it would be copied, which happens only while compiling."""
    if not isinstance(constant, Tensor) or not files_are_used():
        return constant
    array = constant.numpy()
    placed = stored(array, 64)
    return constant if placed is array else constant_view(placed)
