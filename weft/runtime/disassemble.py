"""Text of bytecode: a listing, a Python program that rebuilds it, statistics. Reads the table of `opcodes`."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.runtime.bytecode import Bytecode, VMFuncInfo
from weft.runtime.opcodes import OPCODES, VM_REGISTER, VOID_REGISTER, ArgKind, FuncKind, decode_arg
from weft.runtime.tensor import Tensor

_BY_NUMBER = {row.number: row for row in OPCODES}


def instructions(executable: Bytecode, function: VMFuncInfo) -> Iterator[tuple[str, list[int]]]:
    """Name and operand words of each instruction of a function."""
    data = executable.instr_data
    offset = [*executable.instr_offset.tolist(), len(data)]
    for i in range(function.start_instr, function.end_instr):
        words = data[offset[i] : offset[i + 1]].tolist()
        yield _BY_NUMBER[words[0]].name, words[1:]


def _register(index: int) -> str:
    return {VOID_REGISTER: "%void", VM_REGISTER: "%vm"}.get(index, f"%{index}")


def as_text(executable: Bytecode) -> str:
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
                lines.append(f"  If    {_register(words[0])}, {words[1]}")
        blocks.append("\n".join(lines) + "\n")
    return "".join(f"{b}\n" for b in blocks)


def as_python(executable: Bytecode) -> str:
    """Return a program that makes ``ex``, the same executable without its imports, with ``ExecBuilder``.

    Raises
    ------
    InvalidArgument
        When instructions belong to no function or to several.
    """
    functions = executable.functions
    scopes = executable.memory_scopes
    lines = [
        "import base64",
        "import struct",
        "",
        "import numpy as np",
        "",
        "from weft import relax as rx",
        "from weft import runtime",
        "",
        "ib = rx.ExecBuilder()",
    ]
    for i, value in enumerate(executable.constants):
        scope = f", memory_scope={scopes[i]!r}" if i in scopes else ""
        lines.append(f"ib.add_constant({_constant_python(value)}{scope})")
    for f in functions:
        options = f", {int(f.kind)}" if f.kind != FuncKind.PACKED_FUNC else ""
        if f.kind != FuncKind.VM_FUNC:
            options += f", num_inputs={f.num_args}" if f.num_args != -2 else ""
            options += f", register_file_size={f.register_file_size}" if f.register_file_size else ""
            options += f", param_names={list(f.param_names)!r}" if f.param_names else ""
        lines.append(f"ib.declare_function({f.name!r}{options})")
    end = 0
    for f in sorted((f for f in functions if f.kind == FuncKind.VM_FUNC), key=lambda f: f.start_instr):
        if f.start_instr != end:
            break
        end = f.end_instr
        lines += _function_python(executable, f, [g.name for g in functions])
    if end != len(executable.instr_offset):
        raise InvalidArgument(
            "instructions of this executable belong to no function or to several",
            found=f"the first is instruction {end}",
        )
    lines.append("ex = ib.get()")
    return "\n".join(lines) + "\n"


def _function_python(executable: Bytecode, f: VMFuncInfo, names: list[str]) -> list[str]:
    used = f.num_args - 1

    def register(index: int) -> str:
        nonlocal used
        if index in (VOID_REGISTER, VM_REGISTER):
            return "ib.void_arg()" if index == VOID_REGISTER else "ib.vm_state()"
        used = max(used, index)
        return f"ib.r({index})"

    def argument(word: int) -> str:
        kind, value = decode_arg(word)
        if kind == ArgKind.REGISTER:
            return register(value)
        if kind == ArgKind.IMMEDIATE:
            return f"ib.imm({value})"
        return f"ib.c({value})" if kind == ArgKind.CONSTANT else f"ib.f({names[value]!r})"

    lines: list[str] = []
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
    default = f.param_names == tuple(f"arg{i}" for i in range(f.num_args))
    params = "" if default else f", param_names={list(f.param_names)!r}"
    registers = "" if f.register_file_size == used + 1 else f", register_file_size={f.register_file_size}"
    return [f"with ib.function({f.name!r}, num_inputs={f.num_args}{params}{registers}):", *lines]


_LITERAL_ELEMENTS = 16  # tensors up to this size are written as numbers


def _constant_python(value: Any) -> str:
    if isinstance(value, Tensor):
        array, name = value.numpy(), str(value.dtype)
        if array.dtype.isbuiltin and array.size <= _LITERAL_ELEMENTS and np.isfinite(array).all():
            text = f"np.array({array.ravel().tolist()!r}, {name!r}).reshape({array.shape!r})"
        else:
            data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            text = f"np.frombuffer(base64.b64decode({data!r}), runtime.numpy_dtype({name!r})).reshape({array.shape!r})"
        return f"runtime.tensor({text})"
    if isinstance(value, tvm_ffi.Shape):
        return f"runtime.shape_constant({tuple(value)!r})"
    if isinstance(value, tvm_ffi.dtype):
        return f"runtime.dtype_constant({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"struct.unpack('<d', bytes.fromhex({struct.pack('<d', value).hex()!r}))[0]"
    return repr(str(value) if isinstance(value, str) else value)


def _constant_text(value: Any) -> str:
    if isinstance(value, Tensor):
        return "[" + ", ".join(map(str, value.shape)) + "]"
    if isinstance(value, tvm_ffi.Shape):
        return f"shapetuple[{', '.join(map(str, value))}]"
    if isinstance(value, str) and not isinstance(value, tvm_ffi.dtype):
        return f'"{value}"'
    return str(value)


def stats(executable: Bytecode) -> str:
    """The constants (shapes of tensors, values of others) and the functions, with their numbers, as TVM writes them."""
    constants = executable.constants
    names = [f.name for f in executable.functions]
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(constants)}): [{', '.join(map(_constant_text, constants))}]\n"
        f"  Globals (#{len(names)}): [{', '.join(names)}]\n"
    )
