"""ExecBuilder: assembles bytecode function by function. Source: TVM's ``relax.ExecBuilder``, whose names it keeps."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.ir import DataType
from weft.runtime import Device, Tensor, VMExecutable, VMFuncInfo, dtype_constant, shape_constant
from weft.runtime.opcodes import ArgKind, FuncKind, Opcode, const_arg, decode_arg, func_arg, imm_arg
from weft.spelling import also_called


class SpecialReg:
    """Register numbers with a meaning of their own."""

    VOID_ARG = 1 << 54
    VM_STATE = (1 << 54) + 1


_TEMPORARY = 1 << 53  # registers of the builder's own; they follow those of the user when a function ends


@dataclass
class _Row:
    """A row of the function table while it is made."""

    kind: int
    name: str
    start: int = 0
    end: int = 0
    num_args: int = -2
    registers: int = 0
    params: tuple[str, ...] = ()


class Insn(NamedTuple):
    """An instruction: its opcode and operand words."""

    opcode: int
    words: tuple[int, ...]

    @property
    def args(self) -> tuple[int, ...]:
        """The argument words of a call."""
        return self.words[3:]


class ExecBuilder:
    """Builds a :class:`~weft.runtime.VMExecutable`.

    Operands come from :meth:`r`, :meth:`imm`, :meth:`c`, :meth:`f`, :meth:`void_arg`, :meth:`vm_state` and
    :meth:`convert_constant`; where an operand stands other Python values become constants.

    Examples
    --------
    >>> ib = ExecBuilder()
    >>> with ib.function("main", num_inputs=2):
    ...     ib.emit_call("add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
    ...     ib.emit_ret(ib.r(2))
    >>> ex = ib.get()
    """

    def __init__(self) -> None:
        self._functions: list[_Row] = []
        self._index: dict[str, int] = {}
        self._constants: list[Any] = []
        self._scopes: dict[int, str] = {}
        self._constant_index: dict[Any, int] = {}
        self._offsets: list[int] = []
        self._places: dict[str, list[tuple[int, str]]] = {}
        self.span: Any = None
        """What the next instructions come from."""
        self._data: list[int] = []
        self._current: _Row | None = None
        self._n_temporaries = 0

    # --- operands ---

    def r(self, idx: int) -> int:
        """Operand: a register."""
        if not (0 <= idx < _TEMPORARY or idx in (SpecialReg.VOID_ARG, SpecialReg.VM_STATE)):
            raise InvalidArgument("registers are numbered from 0", found=str(idx))
        return int(idx)

    def imm(self, value: int) -> int:
        """Operand: an immediate of 56 bits."""
        if not -(1 << 55) <= value < (1 << 55):
            raise InvalidArgument("an immediate has 56 bits", found=str(value), help="use a constant")
        return imm_arg(int(value))

    def c(self, idx: int) -> int:
        """Operand: a constant of the pool, by its number."""
        if not 0 <= idx < len(self._constants):
            raise InvalidArgument(
                f"there is no constant {idx}",
                found=f"{len(self._constants)} constants",
                help="convert_constant adds one and returns its operand",
            )
        return const_arg(int(idx))

    def f(self, name: str) -> int:
        """Operand: a function, declared as a packed function if it is new."""
        return func_arg(self.function_index(name))

    def void_arg(self) -> int:
        """Operand: nothing."""
        return SpecialReg.VOID_ARG

    def vm_state(self) -> int:
        """Operand: the virtual machine itself."""
        return SpecialReg.VM_STATE

    def add_constant(self, value: Any, memory_scope: str | None = None) -> int:
        """Append a value to the constant pool, even if an equal one is there, and return its operand.

        Parameters
        ----------
        value : Tensor, ndarray, Shape, str, int, float or dtype
        memory_scope : str, optional
            Where on the device the constant lives.
        """
        if isinstance(value, (np.integer, np.floating)):
            value = value.item()
        if isinstance(value, DataType):
            value = dtype_constant(value)
        if isinstance(value, bool) or not isinstance(
            value, (Tensor, tvm_ffi.Tensor, np.ndarray, tvm_ffi.Shape, str, int, float, tvm_ffi.dtype)
        ):
            raise InvalidArgument(
                "not a value that a constant pool holds",
                found=f"{type(value).__name__}: {value!r}",
                expected="a tensor, Shape, str, int, float or dtype",
            )
        self._constants.append(value)
        if memory_scope is not None:
            self._scopes[len(self._constants) - 1] = memory_scope
        return const_arg(len(self._constants) - 1)

    @also_called(const="value")
    def convert_constant(self, value: Any, key: Any = None, memory_scope: str | None = None) -> int:
        """Return the operand of a value, which is put into the constant pool once.

        Parameters
        ----------
        value : object
            An ``int`` or ``bool`` of 56 bits is an immediate; a tuple of integers is a shape; other tuples, which may
            nest, are made by an instruction at this place; the rest is what :meth:`add_constant` takes.
        key : hashable, optional
            What values are shared by; by default equal strings, numbers, shapes, dtypes and tensors are.
        memory_scope : str, optional
            Where on the device the constant lives.
        """
        if isinstance(value, (bool, int, np.bool_, np.integer)):
            if -(1 << 55) <= value < (1 << 55):
                return imm_arg(int(value))
            value = int(value)
        if isinstance(value, DataType):
            value = dtype_constant(value)
        if isinstance(value, (tuple, list, tvm_ffi.Array)):
            if not all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in value):
                return self._tuple(value)
            value = shape_constant(value)
        if key is None:
            key = _sharing_key(value)
        if key is not None and (known := self._constant_index.get((key, memory_scope))) is not None:
            return const_arg(known)
        word = self.add_constant(value, memory_scope)
        if key is not None:
            self._constant_index[key, memory_scope] = len(self._constants) - 1
        return word

    def _tuple(self, values: Sequence[Any]) -> int:
        if self._current is None:
            raise InvalidArgument(
                "the constant pool holds no tuples, instructions make them",
                found=repr(values),
                help="use `with builder.function(name, num_inputs):`",
            )
        words = [self.convert_constant(v) for v in values]
        register = _TEMPORARY + self._n_temporaries
        self._n_temporaries += 1
        self.emit_call("vm.builtin.make_tuple", words, register)
        return register

    # --- functions ---

    def function_index(self, name: str) -> int:
        """Return the index of a function, declaring a packed one if it is new."""
        if name not in self._index:
            self.declare_function(name)
        return self._index[name]

    def find_function(self, name: str) -> int | None:
        """Return the index of a function that is declared."""
        return self._index.get(name)

    def function_name(self, index: int) -> str:
        """The name of a declared function."""
        return self._functions[index].name

    def constant(self, index: int) -> Any:
        """The value of a constant of the pool."""
        return self._constants[index]

    def function_kind(self, index: int) -> int:
        """The kind of a declared function."""
        return self._functions[index].kind

    def take_bodies(self) -> list[tuple[str, int, list[Insn]]]:
        """Take the bytecode of all functions out; they become functions compiled to native code.

        Returns
        -------
        list of (name, number of parameters, instructions)
        """
        taken = []
        ends = [*self._offsets[1:], len(self._data)]
        for row in self._functions:
            if row.kind == FuncKind.VM_FUNC:
                words = [self._data[self._offsets[i] : ends[i]] for i in range(row.start, row.end)]
                taken.append((row.name, row.num_args, [Insn(w[0], tuple(w[1:])) for w in words]))
                row.kind, row.start, row.end, row.registers = FuncKind.VMTIR_FUNC, 0, 0, row.registers + 1
        self._offsets, self._data = [], []
        return taken

    def declare_function(
        self,
        func_name: str,
        kind: int = FuncKind.PACKED_FUNC,
        *,
        num_inputs: int | None = None,
        register_file_size: int | None = None,
        param_names: Sequence[str] = (),
    ) -> None:
        """Declare a function before its body is emitted, or one without bytecode, so that others may call it.

        Parameters
        ----------
        func_name : str
        kind : FuncKind
        num_inputs, register_file_size, param_names : optional
            What the table says about it; only of interest for functions without bytecode.
        """
        if func_name not in self._index:
            self._index[func_name] = len(self._functions)
            self._functions.append(_Row(kind, func_name))
        row = self._functions[self._index[func_name]]
        row.kind = kind if row.kind == FuncKind.PACKED_FUNC else row.kind
        row.num_args = row.num_args if num_inputs is None else num_inputs
        row.registers = row.registers if register_file_size is None else register_file_size
        row.params = tuple(param_names) or row.params

    @contextmanager
    def function(
        self,
        func_name: str,
        num_inputs: int | None = 0,
        param_names: Sequence[str] | None = None,
        *,
        register_file_size: int | None = None,
    ) -> Generator[ExecBuilder, None, None]:
        """Emit the body of a function; it must end in :meth:`emit_ret` on every way.

        Parameters
        ----------
        func_name : str
        num_inputs : int
            Its arguments, in registers 0 to `num_inputs` - 1.
        param_names : sequence of str, optional
            By default ``arg0``, ``arg1``, and so on; empty for none.
        register_file_size : int, optional
            By default what its instructions use.
        """
        num_inputs = num_inputs or 0
        if self._current is not None:
            raise InvalidArgument(f"function '{func_name}' begins inside of function '{self._current.name}'")
        if param_names and len(param_names) != num_inputs:
            raise InvalidArgument(
                f"function '{func_name}': each argument has one name",
                expected=f"{num_inputs} names",
                found=str(list(param_names)),
            )
        self.declare_function(func_name, FuncKind.VM_FUNC)
        row = self._functions[self._index[func_name]]
        if row.kind != FuncKind.VM_FUNC or row.end:
            raise InvalidArgument(f"function '{func_name}' is there already")
        self._current, self._n_temporaries = row, 0
        row.start, row.num_args = len(self._offsets), num_inputs
        row.params = tuple((f"arg{i}" for i in range(num_inputs)) if param_names is None else param_names)
        try:
            yield self
        finally:
            self._current = None
        row.end = len(self._offsets)
        used = self._settle_registers(row, register_file_size is not None)
        row.registers = used if register_file_size is None else register_file_size

    def emit_call(self, name: str | int, args: Sequence[Any] | None = None, dst: int | None = None) -> None:
        """Emit ``dst = name(args)``; integers among `args` are operands, other values become constants."""
        index = self.function_index(name) if isinstance(name, str) else name & ((1 << 56) - 1)
        words = [self._operand(a) if type(a) is int else self.convert_constant(a) for a in args or ()]
        target = SpecialReg.VOID_ARG if dst is None else self._register(dst, "the destination of a call")
        self._emit(Opcode.CALL, target, index, len(words), *words)

    def emit_ret(self, result: int) -> None:
        """Emit a return of a register."""
        self._emit(Opcode.RET, self._register(result, "the result of a function"))

    def emit_goto(self, pc_offset: int) -> None:
        """Emit a jump by `pc_offset` instructions."""
        self._emit(Opcode.GOTO, pc_offset)

    def emit_if(self, cond: int, false_offset: int) -> None:
        """Emit a jump by `false_offset` instructions when a register is zero."""
        self._emit(Opcode.IF, self._register(cond, "the condition of an If"), false_offset)

    def next_instruction(self) -> int:
        """The number of the instruction that will be emitted next."""
        return len(self._offsets)

    def patch_offset(self, instruction: int, target: int) -> None:
        """Set the jump of an emitted ``If`` or ``Goto`` to reach `target`."""
        start = self._offsets[instruction]
        self._data[start + (2 if self._data[start] == Opcode.IF else 1)] = target - instruction

    def _operand(self, word: int) -> int:
        if not 0 <= word < 4 << 56:
            raise InvalidArgument(
                "an integer among the arguments of a call is an operand",
                found=str(word),
                expected="builder.r(n), builder.imm(value) or builder.convert_constant(value)",
            )
        return word

    def _register(self, word: Any, what: str) -> int:
        if type(word) is not int or word >> 56:
            raise InvalidArgument(
                f"{what} is a register",
                expected="builder.r(n)",
                found=repr(word),
                help="vm.builtin.copy puts a constant into a register",
            )
        return word

    def _emit(self, *words: int) -> None:
        if self._current is None:
            raise InvalidArgument(
                "an instruction stands outside of a function", help="use `with builder.function(name, num_inputs):`"
            )
        place, row = str(self.span) if self.span is not None else "", self._current
        places = self._places.setdefault(row.name, [])
        if place != (places[-1][1] if places else ""):
            places.append((len(self._offsets) - row.start, place))
        self._offsets.append(len(self._data))
        self._data.extend(w - (1 << 64) if w >= (1 << 63) else w for w in words)

    def _settle_registers(self, row: _Row, keep_gaps: bool) -> int:
        """Number the temporaries after the other registers, check that each is set before it is read, and count them.

        Registers whose numbers leave gaps are numbered again, in the order in which they are set.
        """
        places = self._register_places(row)
        self._check_order(row, places)
        used = list(dict.fromkeys(v for _, v, _ in places if v < _TEMPORARY and v >= row.num_args))
        named = max((*used, row.num_args - 1))
        numbers = {v: v for v in used}
        if not keep_gaps and named - row.num_args + 1 > len(used):
            numbers = {v: row.num_args + i for i, v in enumerate(used)}
            named = row.num_args + len(used) - 1
        for at, register, _ in places:
            if register >= _TEMPORARY:
                self._data[at] = named + 1 + register - _TEMPORARY
            elif register >= row.num_args:
                self._data[at] = numbers[register]
        return named + 1 + self._n_temporaries

    def _register_places(self, row: _Row) -> list[tuple[int, int, int]]:
        """List the words of registers, what each says, and its instruction; negative where it is the destination."""
        places: list[tuple[int, int, int]] = []
        for i in range(row.start, row.end):
            at = self._offsets[i]
            code = self._data[at]
            operands = range(at + 4, at + 4 + self._data[at + 3]) if code == Opcode.CALL else range(at + 1, at + 2)
            for p in operands if code != Opcode.GOTO else ():
                kind, value = decode_arg(self._data[p])
                if kind == ArgKind.REGISTER:
                    places.append((p, value, i - row.start))
            if code == Opcode.CALL:
                places.append((at + 1, self._data[at + 1], -1 - (i - row.start)))
        return [p for p in places if p[1] < SpecialReg.VOID_ARG]

    def _check_order(self, row: _Row, places: Sequence[tuple[int, int, int]]) -> None:
        """Refuse registers that are read before any instruction sets them; with jumps back, those that none sets."""
        jumps_back = any(
            self._data[at] in (Opcode.GOTO, Opcode.IF) and self._data[at + (self._data[at] == Opcode.IF) + 1] < 0
            for at in self._offsets[row.start : row.end]
        )
        written = set(range(row.num_args)) | ({v for _, v, i in places if i < 0} if jumps_back else set())
        for _, register, at in places:
            if at < 0:
                written.add(register)
            elif register not in written:
                raise InvalidArgument(
                    f"function '{row.name}', instruction {at} reads register {register}, which nothing sets before",
                    expected=f"an argument (it has {row.num_args}) or the destination of an earlier call",
                )

    def get(self, imports: Sequence[Any] = ()) -> VMExecutable:
        """Return the executable of what was built so far, which the verifier has accepted.

        Parameters
        ----------
        imports : sequence of Module
            Modules with the functions that the program calls.
        """
        infos = [VMFuncInfo(f.kind, f.name, f.start, f.end, f.num_args, f.registers, f.params) for f in self._functions]
        offsets, data = np.asarray(self._offsets, np.int64), np.asarray(self._data, np.int64)
        made = VMExecutable.from_parts(infos, list(self._constants), self._scopes, offsets, data, list(imports))
        made.places = {name: places for name, places in self._places.items() if places}
        return made


def _sharing_key(value: Any) -> Any:
    if isinstance(value, float):
        return "float", struct.pack("<d", value)  # 0.0 is not -0.0, and NaN is NaN
    if isinstance(value, (str, int)):
        return type(value).__name__, value
    if isinstance(value, tvm_ffi.Shape):
        return "shape", tuple(value)
    if isinstance(value, Tensor) and value.device.device_type == Device.kDLCPU:
        data = np.ascontiguousarray(value.numpy())
        return "tensor", str(value.dtype), value.shape, hashlib.sha256(data.view("uint8").data).digest()
    return ("dtype", str(value)) if isinstance(value, tvm_ffi.dtype) else None
