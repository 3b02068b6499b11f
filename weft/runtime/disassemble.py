"""Text of bytecode: a listing, a Python program that rebuilds it, statistics. Reads the table of `opcodes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tvm_ffi

from weft.runtime.opcodes import OPCODES, VM_REGISTER, VOID_REGISTER, ArgKind, FuncKind, decode_arg
from weft.runtime.tensor import Tensor

if TYPE_CHECKING:
    from weft.runtime.executable import VMExecutable, VMFuncInfo

__all__ = ["as_python", "as_text", "instructions", "stats"]

_BY_NUMBER = {row.number: row for row in OPCODES}


def instructions(executable: VMExecutable, function: VMFuncInfo) -> Iterator[tuple[str, list[int]]]:
    """Name and operand words of each instruction of a function."""
    data = executable.instr_data
    offset = [*executable.instr_offset.tolist(), len(data)]
    for i in range(function.start_instr, function.end_instr):
        words = data[offset[i] : offset[i + 1]].tolist()
        yield _BY_NUMBER[words[0]].name, words[1:]


def _register(index: int) -> str:
    return {VOID_REGISTER: "%void", VM_REGISTER: "%vm"}.get(index, f"%{index}")


def as_text(executable: VMExecutable) -> str:
    """One block a function: ``call f in: args dst: register``, ``ret``, ``goto``, ``if``."""
    functions = executable.functions
    names = [f.name for f in functions]

    def argument(word: int) -> str:
        kind, value = decode_arg(word)
        if kind == ArgKind.REGISTER:
            return _register(value)
        if kind == ArgKind.IMMEDIATE:
            return f"i{value}"
        return f"c[{value}]" if kind == ArgKind.CONSTANT else f"f[{names[value]}]"

    blocks: list[str] = []
    for f in functions:
        if f.kind == FuncKind.PACKED_FUNC:
            blocks.append(f"@{f.name} packed_func;\n")
            continue
        if f.kind == FuncKind.VMTIR_FUNC:
            blocks.append(f"@{f.name} num_inputs={f.num_args} vm_tir_func;\n")
            continue
        lines = [f"@{f.name}:"]
        for name, words in instructions(executable, f):
            if name == "Call":
                args = ", ".join(argument(w) for w in words[3:])
                lines.append(f"  call  {names[words[1]]:<16} in: {args:<12} dst: {_register(words[0])}")
            elif name == "Ret":
                lines.append(f"  ret   {_register(words[0])}")
            elif name == "Goto":
                lines.append(f"  goto  {words[0]}")
            else:
                lines.append(f"  if    {_register(words[0])}, {words[1]}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def as_python(executable: VMExecutable) -> str:
    """A program that makes the same bytecode with ``ExecBuilder``; constants are referred to by index."""
    functions = executable.functions
    names = [f.name for f in functions]

    def register(index: int) -> str:
        return {VOID_REGISTER: "ib.void_arg()", VM_REGISTER: "ib.vm_state()"}.get(index, f"ib.r({index})")

    def argument(word: int) -> str:
        kind, value = decode_arg(word)
        if kind == ArgKind.REGISTER:
            return register(value)
        if kind == ArgKind.IMMEDIATE:
            return f"ib.imm({value})"
        return f"ib.c({value})" if kind == ArgKind.CONSTANT else f"ib.f({names[value]!r})"

    lines = ["ib = rx.Builder()"]
    for f in functions:
        if f.kind != FuncKind.VM_FUNC:
            continue
        params = f", param_names={list(f.param_names)!r}" if f.param_names else ""
        lines.append(f"with ib.function({f.name!r}, num_inputs={f.num_args}{params}):")
        for name, words in instructions(executable, f):
            if name == "Call":
                args = ", ".join(argument(w) for w in words[3:])
                dst = "" if words[0] == VOID_REGISTER else f", dst={register(words[0])}"
                lines.append(f"    ib.emit_call({names[words[1]]!r}, args=[{args}]{dst})")
            elif name == "Ret":
                lines.append(f"    ib.emit_ret({register(words[0])})")
            elif name == "Goto":
                lines.append(f"    ib.emit_goto({words[0]})")
            else:
                lines.append(f"    ib.emit_if({register(words[0])}, {words[1]})")
    return "\n".join(lines) + "\n"


def _constant_text(value: Any) -> str:
    if isinstance(value, Tensor):
        return "[" + ", ".join(map(str, value.shape)) + "]"
    if isinstance(value, tvm_ffi.dtype):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


def stats(executable: VMExecutable) -> str:
    """The constants (shapes of tensors, values of others) and the functions, with their numbers."""
    constants = executable.constants
    functions = executable.functions
    nbytes = sum(c.nbytes for c in constants if isinstance(c, Tensor))
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(constants)}): [{', '.join(map(_constant_text, constants))}]\n"
        f"  Constant bytes: {nbytes}\n"
        f"  Globals (#{len(functions)}): [{', '.join(f.name for f in functions)}]\n"
        f"  Instructions: {len(executable.instr_offset)}\n"
    )
