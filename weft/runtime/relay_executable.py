"""Relay executables: functions of instructions, constants and primitives; saved as code bytes and a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from weft import error, ffi
from weft.runtime.jit import Recompilable
from weft.runtime.module import Module
from weft.runtime.relay_instruction import RELAY_OPCODES, Instruction

_from_parts = tvm_ffi.get_global_func("weft.relay_from_parts")
_from_bytes = tvm_ffi.get_global_func("weft.relay_from_bytes")
_to_bytes = tvm_ffi.get_global_func("weft.relay_to_bytes")
_parts = tvm_ffi.get_global_func("weft.relay_parts")


class VMFunction(NamedTuple):
    """One function of a Relay executable.

    Its arguments arrive in registers 0, 1, ...; the others are empty.
    """

    name: str
    params: Sequence[str]
    register_file_size: int
    instructions: Sequence[Instruction]
    param_device_indexes: Sequence[int] = ()
    """A device a parameter, to which calls from outside copy tensors; none: tensors stay where they are."""


class Executable:
    """A Relay executable and the library with its kernels.

    Parameters
    ----------
    mod : Module
        A module of kind ``weft.RelayExecutable``.

    Attributes
    ----------
    recompilable : dict of str to Recompilable
        Primitives that can be compiled for a shape. The compiler sets it; it is not saved.
    """

    def __init__(self, mod: Module) -> None:
        if mod.kind != "weft.RelayExecutable":
            raise error.InvalidArgument(
                "not a Relay executable", expected="a module of kind 'weft.RelayExecutable'", found=mod.kind
            )
        self.mod = mod
        self.recompilable: dict[str, Recompilable] = {}
        functions, constants, primitives = _parts(mod)
        self._functions = [
            VMFunction(
                str(name),
                tuple(str(p) for p in params),
                int(size),
                tuple(Instruction.decode(np.from_dlpack(words).tolist())),
                tuple(np.from_dlpack(devices).tolist()),
            )
            for name, params, devices, size, words in functions
        ]
        self._constants = [(int(device), ffi.wrap(value)) for device, value in constants]
        self._primitives = [str(p) for p in primitives]

    @staticmethod
    def from_parts(
        functions: Sequence[VMFunction],
        constants: Sequence[Any] = (),
        primitive_ops: Sequence[str] = (),
        lib: Any = None,
        constant_device_indexes: Sequence[int] | None = None,
    ) -> Executable:
        """Make an executable of its parts, and verify it.

        Parameters
        ----------
        functions : sequence of VMFunction
            Functions; instructions refer to them by their place.
        constants : sequence
            Tensors or arrays, ``str``, ``int``, ``float``, shapes; ``LoadConst`` and ``Fatal`` refer to them.
        primitive_ops : sequence of str
            Names that ``InvokePacked`` refers to: functions of `lib`, builtins, or registered globally.
        lib : Module, optional
            The kernels.
        constant_device_indexes : sequence of int, optional
            The device of each constant; the first unless given.

        Raises
        ------
        ExecutableError
            When verification fails; it lists all that is wrong.
        """
        rows = [
            [
                f.name,
                list(f.params),
                np.array(f.param_device_indexes, np.int64),
                int(f.register_file_size),
                np.array([w for i in f.instructions for w in i.words()], np.int64),
            ]
            for f in functions
        ]
        devices = list(constant_device_indexes) if constant_device_indexes is not None else [0] * len(constants)
        pool = [[int(d), ffi.convert_argument(c)] for d, c in zip(devices, constants, strict=True)]
        return Executable(Module(_from_parts(rows, pool, list(primitive_ops), _imports(lib))))

    def save(self) -> tuple[bytearray, Module | None]:
        """Return the code (functions, constants, names) as bytes, and the library with the kernels."""
        return bytearray(_to_bytes(self.mod)), self.lib

    @staticmethod
    def load_exec(bytecode: Any, lib: Any) -> Executable:
        """Make an executable of what `save` returned; the bytes are verified.

        Parameters
        ----------
        bytecode : bytes
            The code.
        lib : Module or None
            The library.
        """
        if not isinstance(bytecode, (bytes, bytearray)):
            raise error.InvalidArgument("the code of an executable is bytes", found=type(bytecode).__name__)
        mod = Module(_from_bytes(bytes(bytecode)))
        for module in _imports(lib):
            mod.import_module(Module(module))
        return Executable(mod)

    @property
    def lib(self) -> Module | None:
        """The library with the kernels."""
        imports = self.mod.imports
        return imports[0] if imports else None

    @property
    def module(self) -> Module:
        """The module itself."""
        return self.mod

    def __tvm_ffi_object__(self) -> tvm_ffi.Module:
        return self.mod.__tvm_ffi_object__()

    @property
    def functions(self) -> list[VMFunction]:
        """The functions."""
        return list(self._functions)

    @property
    def globals(self) -> list[str]:
        """The names of the functions."""
        return [f.name for f in self._functions]

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the primitives, at their indexes."""
        return list(self._primitives)

    @property
    def constant_values(self) -> list[Any]:
        """The constants."""
        return [value for _, value in self._constants]

    def function(self, name: str) -> VMFunction:
        """One function by name."""
        for f in self._functions:
            if f.name == name:
                return f
        raise error.InvalidArgument(f"the executable has no function '{name}'", found=", ".join(self.globals))

    def get_function_params(self, func_name: str) -> list[str]:
        """Return the names of a function's parameters."""
        return list(self.function(func_name).params)

    @property
    def bytecode(self) -> str:
        """The code as text, one instruction a line: its words, then what it says."""
        lines: list[str] = []
        for index, f in enumerate(self._functions):
            lines += [
                f"VM Function[{index}]: {f.name}({', '.join(f.params)})",
                f"# reg file size = {f.register_file_size}",
                f"# instruction count = {len(f.instructions)}",
                "opcode, fields # inst(text):",
            ]
            words = [" ".join(map(str, i.words())) for i in f.instructions]
            width = max(map(len, words), default=0)
            lines += [
                f"{pc:3}: {w:<{width}} # {i}" for pc, (w, i) in enumerate(zip(words, f.instructions, strict=True))
            ]
            lines.append("")
        return "\n".join(lines)

    @property
    def constants(self) -> str:
        """The constants as text: what each is and, with more devices than one, where."""
        return "\n".join(
            f"VM Const[{i}]: {_summary(value)}" + (f" on device index {device}" if device else "")
            for i, (device, value) in enumerate(self._constants)
        )

    @property
    def stats(self) -> str:
        """Summary: constants, functions and primitives."""
        shapes = [_summary(value) for _, value in self._constants]
        names = ", ".join(f'("{f.name}", {i})' for i, f in enumerate(self._functions))
        return (
            "Relay VM executable statistics:\n"
            f"  Constant shapes (# {len(shapes)}): [{', '.join(shapes)}]\n"
            f"  Globals (# {len(self._functions)}): [{names}]\n"
            f"  Primitive ops (# {len(self._primitives)}): [{', '.join(self._primitives)}]\n"
            f"  Instructions (# {sum(len(f.instructions) for f in self._functions)}): "
            f"[{', '.join(_counts(self._functions))}]\n"
        )

    def __repr__(self) -> str:
        return f"Executable({', '.join(self.globals)})"


def _imports(lib: Any) -> list[Any]:
    if lib is None:
        return []
    return [lib.__tvm_ffi_object__() if hasattr(lib, "__tvm_ffi_object__") else lib]


def _summary(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype}{list(shape)}"


def _counts(functions: Sequence[VMFunction]) -> list[str]:
    counts = dict.fromkeys(RELAY_OPCODES, 0)
    for f in functions:
        for i in f.instructions:
            counts[i.name] += 1
    return [f"{name} {n}" for name, n in counts.items() if n]
