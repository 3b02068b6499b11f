"""ExecBuilder: assembles bytecode function by function. Source: TVM's ``relax.ExecBuilder``, whose names it keeps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.runtime import VMExecutable, VMFuncInfo
from weft.runtime.opcodes import FuncKind, Opcode

__all__ = ["ExecBuilder", "SpecialReg"]


class SpecialReg:
    """Register numbers with a meaning of their own."""

    VOID_ARG = 1 << 54
    VM_STATE = (1 << 54) + 1


_IMMEDIATE, _CONSTANT, _FUNCTION = 1, 2, 3
_MASK = (1 << 56) - 1


class ExecBuilder:
    """Builds a :class:`~weft.runtime.VMExecutable`.

    Examples
    --------
    >>> ib = ExecBuilder()
    >>> with ib.function("main", num_inputs=2):
    ...     ib.emit_call("add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
    ...     ib.emit_ret(ib.r(2))
    >>> ex = ib.get()
    """

    def __init__(self) -> None:
        self._functions: list[dict[str, Any]] = []
        self._index: dict[str, int] = {}
        self._constants: list[Any] = []
        self._constant_index: dict[Any, int] = {}
        self._offsets: list[int] = []
        self._data: list[int] = []
        self._current: dict[str, Any] | None = None
        self._max_register = -1

    # --- operands
    # ------------------------------------------------------------------------------------------------------

    def r(self, index: int) -> int:
        """Operand: a register."""
        return int(index)

    def imm(self, value: int) -> int:
        """Operand: an immediate of 56 bits."""
        if not -(1 << 55) <= value < (1 << 55):
            raise InvalidArgument("an immediate has 56 bits", found=str(value), help="use a constant")
        return (_IMMEDIATE << 56) | (int(value) & _MASK)

    def c(self, index: int) -> int:
        """Operand: a constant of the pool."""
        return (_CONSTANT << 56) | int(index)

    def f(self, name: str) -> int:
        """Operand: a function, declared as a packed function if it is new."""
        return (_FUNCTION << 56) | self.function_index(name)

    def void_arg(self) -> int:
        """Operand: nothing."""
        return SpecialReg.VOID_ARG

    def vm_state(self) -> int:
        """Operand: the virtual machine itself."""
        return SpecialReg.VM_STATE

    def convert_constant(self, value: Any, key: Any = None) -> int:
        """Put a value into the constant pool, once for equal keys, and return its operand."""
        if key is None and isinstance(value, (str, int, float)):
            key = (type(value), value)
        if key is not None and key in self._constant_index:
            return self.c(self._constant_index[key])
        self._constants.append(value)
        if key is not None:
            self._constant_index[key] = len(self._constants) - 1
        return self.c(len(self._constants) - 1)

    # --- functions
    # -----------------------------------------------------------------------------------------------------

    def function_index(self, name: str) -> int:
        """Return the index of a function, declaring a packed one if it is new."""
        if name not in self._index:
            self.declare_function(name, FuncKind.PACKED_FUNC)
        return self._index[name]

    def declare_function(self, name: str, kind: int) -> None:
        """Declare a function before its body is emitted, so that others may call it."""
        if name in self._index:
            known = self._functions[self._index[name]]
            known["kind"] = kind if known["kind"] == FuncKind.PACKED_FUNC else known["kind"]
            return
        self._index[name] = len(self._functions)
        self._functions.append(
            {
                "kind": kind,
                "name": name,
                "start": 0,
                "end": 0,
                "num_args": -1 if kind == FuncKind.PACKED_FUNC else 0,
                "registers": 0,
                "params": (),
            }
        )

    @contextmanager
    def function(
        self, name: str, num_inputs: int = 0, param_names: Sequence[str] | None = None
    ) -> Generator[ExecBuilder, None, None]:
        """Emit the body of a function; it must end in :meth:`emit_ret` on every way."""
        self.declare_function(name, FuncKind.VM_FUNC)
        info = self._functions[self._index[name]]
        self._current, self._max_register = info, num_inputs - 1
        info.update(
            start=len(self._offsets),
            num_args=num_inputs,
            params=tuple(param_names or (f"arg{i}" for i in range(num_inputs))),
        )
        yield self
        info.update(end=len(self._offsets), registers=self._max_register + 1)
        self._current = None

    def emit_call(self, name: str | int, args: Sequence[Any] = (), dst: int | None = None) -> None:
        """Emit ``dst = name(args)``; Python ints among `args` that are not operands of this builder are registers."""
        index = name if isinstance(name, int) else self.function_index(name)
        words = [self._operand(a) for a in args]
        self._emit(
            Opcode.CALL, self._use(SpecialReg.VOID_ARG if dst is None else dst), index & _MASK, len(words), *words
        )

    def emit_ret(self, result: int) -> None:
        """Emit a return of a register."""
        self._emit(Opcode.RET, self._use(result))

    def emit_goto(self, offset: int) -> None:
        """Emit a jump by `offset` instructions."""
        self._emit(Opcode.GOTO, offset)

    def emit_if(self, cond: int, false_offset: int) -> None:
        """Emit a jump by `false_offset` instructions when a register is zero."""
        self._emit(Opcode.IF, self._use(cond), false_offset)

    def next_instruction(self) -> int:
        """The number of the instruction that will be emitted next."""
        return len(self._offsets)

    def patch_offset(self, instruction: int, target: int) -> None:
        """Set the jump of an emitted ``If`` or ``Goto`` to reach `target`."""
        start = self._offsets[instruction]
        self._data[start + (2 if self._data[start] == Opcode.IF else 1)] = target - instruction

    def _operand(self, arg: Any) -> int:
        if isinstance(arg, int):
            kind = (arg >> 56) & 0xFF
            return self._use(arg) if kind == 0 else arg
        return self.convert_constant(arg)

    def _use(self, register: int) -> int:
        if register < SpecialReg.VOID_ARG:
            self._max_register = max(self._max_register, register)
        return register

    def _emit(self, *words: int) -> None:
        if self._current is None:
            raise InvalidArgument(
                "an instruction stands outside of a function", help="use `with builder.function(name, num_inputs):`"
            )
        self._offsets.append(len(self._data))
        self._data.extend(w - (1 << 64) if w >= (1 << 63) else w for w in words)

    def get(self, imports: Sequence[Any] = ()) -> VMExecutable:
        """Return the executable, checked by the verifier when it is loaded into a machine."""
        infos = [
            VMFuncInfo(f["kind"], f["name"], f["start"], f["end"], f["num_args"], f["registers"], tuple(f["params"]))
            for f in self._functions
        ]
        return VMExecutable.from_parts(
            infos,
            list(self._constants),
            {},
            np.asarray(self._offsets, np.int64),
            np.asarray(self._data, np.int64),
            list(imports),
        )
