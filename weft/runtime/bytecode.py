"""What an executable of the virtual machine holds: functions, constants, and the words of instructions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from weft.ffi import wrap

_functions = tvm_ffi.get_global_func("weft.executable_functions")
_constants = tvm_ffi.get_global_func("weft.executable_constants")
_scopes = tvm_ffi.get_global_func("weft.executable_scopes")
_code = tvm_ffi.get_global_func("weft.executable_code")


class VMFuncInfo(NamedTuple):
    """One entry of the function table.

    Packed functions (kind 0) have ``num_args`` -2, as TVM writes them, and no instructions.
    """

    kind: int
    name: str
    start_instr: int = 0
    end_instr: int = 0
    num_args: int = -2
    register_file_size: int = 0
    param_names: tuple[str, ...] = ()


class Bytecode:
    """The parts of an executable.

    Attributes
    ----------
    mod : Module
        A module of kind ``weft.Executable``.
    """

    mod: Any

    @property
    def functions(self) -> list[VMFuncInfo]:
        """The function table."""
        return [
            VMFuncInfo(int(k), str(n), int(s), int(e), int(a), int(r), tuple(str(p) for p in params))
            for k, n, s, e, a, r, params in _functions(self.mod)
        ]

    @property
    def constants(self) -> list[Any]:
        """The constant pool."""
        return [wrap(c) for c in _constants(self.mod)]

    @property
    def memory_scopes(self) -> dict[int, str]:
        """Scope of constants by index."""
        return {int(i): str(s) for i, s in _scopes(self.mod)}

    @property
    def instr_offset(self) -> np.ndarray[Any, Any]:
        """Where each instruction begins in `instr_data`."""
        return np.from_dlpack(_code(self.mod)[0])

    @property
    def instr_data(self) -> np.ndarray[Any, Any]:
        """The words of the bytecode."""
        return np.from_dlpack(_code(self.mod)[1])
