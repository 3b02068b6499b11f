"""The Relay instruction set as data, and instructions: made, encoded as words, decoded, printed.

The table comes from ``native/src/relay_ops.def`` through the library, so that the loop, the verifier, the constructors
here and the listings cannot disagree. An instruction is a row of 64-bit words: its number, then its operands, where a
list is its length and its items (see ``docs/reference/relay-executable.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi import get_global_func


class RelayOpcodeInfo(NamedTuple):
    """One row of the instruction table."""

    name: str
    number: int
    operands: str
    """One letter a word, as the head of ``relay_ops.def`` lists them."""
    fields: tuple[str, ...]
    """The names of the words, without ``args`` and the like, whose length is a word before them."""
    meaning: str


_table: Any = get_global_func("weft.relay_opcodes")
_ROWS, _SCALARS = _table()

RELAY_OPCODES: dict[str, RelayOpcodeInfo] = {
    str(name): RelayOpcodeInfo(str(name), int(number), str(operands), tuple(str(fields).split()), str(meaning))
    for name, number, operands, fields, meaning in _ROWS
}
"""The table, by name."""
SCALAR_OPERATIONS: dict[str, int] = {str(name): int(number) for name, number in _SCALARS}
"""What the instruction ``Scalar`` computes, and the number of each operation."""

# Field names and operand letters; a length has no field of its own.
_OPERANDS: dict[str, list[tuple[str | None, str]]] = {
    row.name: [(None if kind in "ns" else field, kind) for field, kind in zip(row.fields, row.operands, strict=True)]
    for row in RELAY_OPCODES.values()
}
_BY_NUMBER = {row.number: row for row in RELAY_OPCODES.values()}
_SCALAR_NAMES = {number: name for name, number in SCALAR_OPERATIONS.items()}

_TEXT = {
    "Move": "move ${dst} ${src}",
    "Ret": "ret ${result}",
    "Invoke": "invoke ${dst} VMFunc[{func_index}]({args})",
    "InvokeClosure": "invoke_closure ${dst} ${closure}({args})",
    "InvokePacked": "invoke_packed PackedFunc[{packed_index}] (in: {inputs}, out: {outputs})",
    "AllocTensor": "alloc_tensor ${dst} ${storage} {offset} {shape} {dtype}",
    "AllocTensorReg": "alloc_tensor_reg ${dst} ${storage} {offset} ${shape_register} {dtype}",
    "AllocADT": "alloc_data ${dst} tag({tag}) [{fields}]",
    "AllocClosure": "alloc_closure ${dst} VMFunc[{func_index}]({free_vars})",
    "GetField": "get_field ${dst} ${object}[{field_index}]",
    "If": "if ${test} ${target} {true_offset} {false_offset}",
    "LoadConst": "load_const ${dst} Const[{const_index}]",
    "Goto": "goto {pc_offset}",
    "GetTag": "get_tag ${dst} ${object}",
    "LoadConsti": "load_consti ${dst} {val}",
    "Fatal": "fatal {message}",
    "AllocStorage": "alloc_storage ${dst} ${size} {alignment} {dtype_hint} {device_index}",
    "ShapeOf": "shape_of ${dst} ${tensor}",
    "ReshapeTensor": "reshape_tensor ${dst} ${tensor} ${newshape}",
    "DeviceCopy": "device_copy ${dst} ${src} {dst_device_index} {src_device_index}",
    "KillRegister": "kill_register ${dst}",
    "AllocRef": "alloc_ref ${dst} ${value}",
    "ReadRef": "read_ref ${dst} ${ref}",
    "WriteRef": "write_ref ${ref} ${value}",
    "Scalar": "{operation} ${dst} ${lhs} ${rhs}",
}


def _dtype_word(dtype: Any) -> int:
    value = tvm_ffi.dtype(str(dtype))
    return int(value.type_code) | int(value.bits) << 8 | int(value.lanes) << 16


def _dtype_name(word: int) -> str:
    code, bits, lanes = word & 0xFF, word >> 8 & 0xFF, word >> 16
    return str(tvm_ffi.dtype.from_dlpack_data_type((code, bits, lanes)))


class Instruction:
    """One instruction of the Relay virtual machine; made by the static methods, one an opcode.

    Registers are numbers. Jumps count instructions from this one. Fields are attributes: ``goto(3).pc_offset == 3``.

    Parameters
    ----------
    name : str
        The opcode's name, such as ``"AllocADT"``.
    **fields
        Its operands by name; registers of a list and shapes as sequences, dtypes as strings.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, **fields: Any) -> None:
        row = RELAY_OPCODES.get(name)
        if row is None:
            raise InvalidArgument("unknown instruction", found=name, expected=", ".join(RELAY_OPCODES))
        expected = [f for f, _ in _OPERANDS[row.name] if f is not None]
        if set(expected) != set(fields):
            raise InvalidArgument(f"{name}: wrong fields", expected=", ".join(expected), found=", ".join(fields))
        self.name = name
        self.fields: dict[str, Any] = {
            f: tuple(int(v) for v in fields[f])
            if kind in "ax"
            else str(tvm_ffi.dtype(str(fields[f])))
            if kind == "t"
            else fields[f]
            if kind == "c"
            else int(fields[f])
            for f, kind in _OPERANDS[row.name]
            if f is not None
        }

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"the instruction {self.name} has no field '{name}'") from None

    @property
    def opcode(self) -> int:
        """The opcode's number."""
        return RELAY_OPCODES[self.name].number

    def words(self) -> list[int]:
        """Return the instruction as words of the executable's code."""
        row = RELAY_OPCODES[self.name]
        out = [row.number]
        counted = 0
        for field, kind in _OPERANDS[row.name]:
            if field is None:  # a length: of the list that follows
                counted = len(out)
                out.append(0)
                continue
            value = self.fields[field]
            if kind in "ax":
                out[counted] = len(value)
                out += value
            else:
                out.append(_dtype_word(value) if kind == "t" else _scalar_number(value) if kind == "c" else value)
        return out

    @staticmethod
    def decode(words: Sequence[int]) -> Iterator[Instruction]:
        """Yield the instructions of a verified function's words."""
        at = 0
        while at < len(words):
            row = _BY_NUMBER[words[at]]
            at += 1
            fields: dict[str, Any] = {}
            n = 0
            for field, kind in _OPERANDS[row.name]:
                if kind in "ax":
                    fields[str(field)] = words[at : at + n]
                    at += n
                    continue
                value = words[at]
                at += 1
                if field is None:
                    n = value
                else:
                    fields[field] = (
                        _dtype_name(value) if kind == "t" else _SCALAR_NAMES[value] if kind == "c" else value
                    )
            yield Instruction(row.name, **fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instruction) and self.words() == other.words()

    def __hash__(self) -> int:
        return hash(tuple(self.words()))

    def __str__(self) -> str:
        values: dict[str, Any] = {}
        for field, kind in _OPERANDS[self.name]:
            if field is not None:
                value = self.fields[field]
                values[field] = _registers(value) if kind == "a" else list(value) if kind == "x" else value
        if self.name == "InvokePacked":
            args, n = self.fields["args"], len(self.fields["args"]) - self.fields["output_size"]
            values |= {"inputs": _registers(args[:n]), "outputs": _registers(args[n:])}
        if self.name == "Fatal":
            values["message"] = "" if self.fields["message"] < 0 else f"Const[{self.fields['message']}]"
        return _TEXT[self.name].format_map(values).rstrip()

    __repr__ = __str__

    @staticmethod
    def move(src: int, dst: int) -> Instruction:
        """``dst := src``."""
        return Instruction("Move", src=src, dst=dst)

    @staticmethod
    def ret(result: int) -> Instruction:
        """Return the value of a register; right behind the call that made it, that is a tail call."""
        return Instruction("Ret", result=result)

    @staticmethod
    def fatal(message: int = -1) -> Instruction:
        """Fail, with the text of a constant where `message` is one's index."""
        return Instruction("Fatal", message=message)

    @staticmethod
    def invoke(func_index: int, args: Sequence[int], dst: int) -> Instruction:
        """``dst := function(args...)``."""
        return Instruction("Invoke", func_index=func_index, args=args, dst=dst)

    @staticmethod
    def invoke_closure(closure: int, args: Sequence[int], dst: int) -> Instruction:
        """``dst := closure(args...)``; the function gets the free variables first."""
        return Instruction("InvokeClosure", closure=closure, args=args, dst=dst)

    @staticmethod
    def invoke_packed(packed_index: int, arity: int, output_size: int, args: Sequence[int]) -> Instruction:
        """Call a primitive with `arity` registers, of which it writes the last `output_size` tensors.

        A tuple is passed as its fields; what the primitive returns is dropped.
        """
        if arity != len(args):
            raise InvalidArgument("invoke_packed: wrong arity", expected=f"{arity} arguments", found=str(len(args)))
        return Instruction("InvokePacked", packed_index=packed_index, output_size=output_size, args=args)

    @staticmethod
    def alloc_tensor(storage: int, offset: int, shape: Sequence[int], dtype: Any, dst: int) -> Instruction:
        """``dst :=`` a tensor of a constant shape, `offset` bytes into a storage."""
        return Instruction("AllocTensor", storage=storage, offset=offset, shape=shape, dtype=dtype, dst=dst)

    @staticmethod
    def alloc_tensor_reg(storage: int, offset: int, shape_register: int, dtype: Any, dst: int) -> Instruction:
        """``dst :=`` a tensor of the shape in a register, `offset` bytes into a storage."""
        return Instruction(
            "AllocTensorReg", storage=storage, offset=offset, shape_register=shape_register, dtype=dtype, dst=dst
        )

    @staticmethod
    def alloc_storage(size: int, alignment: int, dtype_hint: Any, device_index: int, dst: int) -> Instruction:
        """``dst :=`` a storage on a device, of as many bytes as the scalar in register `size` says."""
        return Instruction(
            "AllocStorage", size=size, alignment=alignment, dtype_hint=dtype_hint, device_index=device_index, dst=dst
        )

    @staticmethod
    def alloc_adt(tag: int, fields: Sequence[int], dst: int) -> Instruction:
        """``dst :=`` a value of a data type; tag 0 is a tuple."""
        return Instruction("AllocADT", tag=tag, fields=fields, dst=dst)

    @staticmethod
    def alloc_closure(func_index: int, free_vars: Sequence[int], dst: int) -> Instruction:
        """``dst :=`` a closure, whose free variables are the first parameters of its function."""
        return Instruction("AllocClosure", func_index=func_index, free_vars=free_vars, dst=dst)

    @staticmethod
    def get_field(object: int, field_index: int, dst: int) -> Instruction:
        """``dst := object[field_index]``."""
        return Instruction("GetField", object=object, field_index=field_index, dst=dst)

    @staticmethod
    def get_tag(object: int, dst: int) -> Instruction:
        """``dst :=`` the tag of a data type's value."""
        return Instruction("GetTag", object=object, dst=dst)

    @staticmethod
    def if_(test: int, target: int, true_offset: int, false_offset: int) -> Instruction:
        """Jump by `true_offset` when the scalars `test` and `target` are equal, else by `false_offset`."""
        return Instruction("If", test=test, target=target, true_offset=true_offset, false_offset=false_offset)

    @staticmethod
    def goto(pc_offset: int) -> Instruction:
        """Jump."""
        return Instruction("Goto", pc_offset=pc_offset)

    @staticmethod
    def load_const(const_index: int, dst: int) -> Instruction:
        """``dst :=`` a constant."""
        return Instruction("LoadConst", const_index=const_index, dst=dst)

    @staticmethod
    def load_consti(val: int, dst: int) -> Instruction:
        """``dst :=`` an int64 scalar."""
        return Instruction("LoadConsti", val=val, dst=dst)

    @staticmethod
    def shape_of(tensor: int, dst: int) -> Instruction:
        """``dst :=`` the shape, an int64 vector on the host."""
        return Instruction("ShapeOf", tensor=tensor, dst=dst)

    @staticmethod
    def reshape_tensor(tensor: int, newshape: int, dst: int) -> Instruction:
        """``dst :=`` the same memory under the shape in a register."""
        return Instruction("ReshapeTensor", tensor=tensor, newshape=newshape, dst=dst)

    @staticmethod
    def device_copy(src: int, src_device_index: int, dst_device_index: int, dst: int) -> Instruction:
        """``dst :=`` a copy of a tensor on another device."""
        return Instruction(
            "DeviceCopy", src=src, src_device_index=src_device_index, dst_device_index=dst_device_index, dst=dst
        )

    @staticmethod
    def kill_register(dst: int) -> Instruction:
        """Empty a register, which frees what only it holds."""
        return Instruction("KillRegister", dst=dst)

    @staticmethod
    def alloc_ref(value: int, dst: int) -> Instruction:
        """``dst :=`` a cell that holds a value."""
        return Instruction("AllocRef", value=value, dst=dst)

    @staticmethod
    def read_ref(ref: int, dst: int) -> Instruction:
        """``dst :=`` what a cell holds."""
        return Instruction("ReadRef", ref=ref, dst=dst)

    @staticmethod
    def write_ref(ref: int, value: int) -> Instruction:
        """Let a cell hold a value."""
        return Instruction("WriteRef", ref=ref, value=value)

    @staticmethod
    def scalar(operation: str, lhs: int, rhs: int, dst: int) -> Instruction:
        """``dst := lhs operation rhs`` on int32, int64 or bool scalars; operations are `SCALAR_OPERATIONS`."""
        _scalar_number(operation)
        return Instruction("Scalar", operation=operation, lhs=lhs, rhs=rhs, dst=dst)


def _registers(values: Sequence[int]) -> str:
    return ", ".join(f"${v}" for v in values)


def _scalar_number(operation: str) -> int:
    number = SCALAR_OPERATIONS.get(operation)
    if number is None:
        raise InvalidArgument("unknown scalar operation", found=operation, expected=", ".join(SCALAR_OPERATIONS))
    return number
