"""Programs whose files the fuzzer mutates: each kind of constant, instruction and builtin occurs in one of them."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

from tests.runtime.programs import VM, VOID, Assembler, add_twice, context, imm, kernel_module, r
from weft import runtime

_append = tvm_ffi.get_global_func("weft.executable_append")


class Base(NamedTuple):
    """The bytes of a file, the modules it imports, and arguments of its ``main``."""

    data: bytes
    imports: list[Any]
    args: tuple[Any, ...]


def weights() -> runtime.VMExecutable:
    """``main(x: (3, 4))`` adds a constant and returns it with constants of all kinds; scopes and a view as well."""
    a = Assembler()
    where = a.const(context("main", 0, "x", 'R.Tensor((3, 4), dtype="float32")'))
    weight = a.const(np.arange(12, dtype=np.float32).reshape(3, 4))
    large = a.const(np.zeros((40, 13), np.int16))
    shape, flat = a.const(runtime.shape_constant((3, 4))), a.const(runtime.shape_constant((12,)))
    dtype, scope = a.const(tvm_ffi.dtype("float32")), a.const("global")
    others = [a.const(v) for v in (7, -1.5, "text", np.array(True), np.zeros((0, 3), np.uint8))]
    a.begin("main", ["x"], 8)
    a.call(VOID, "vm.builtin.check_tensor_info", r(0), imm(2), dtype, where)
    a.call(VOID, "vm.builtin.match_shape", r(0), r(1), imm(2), imm(0), imm(3), imm(0), imm(4), where)
    a.call(1, "vm.builtin.alloc_storage", VM, shape, imm(0), dtype, scope)
    a.call(2, "vm.builtin.alloc_tensor", r(1), imm(0), shape, dtype)
    a.call(1, "vm.builtin.null_value")
    a.call(VOID, "add", r(0), weight, r(2))
    a.call(3, "vm.builtin.reshape", r(2), flat)
    a.call(4, "vm.builtin.make_tuple", r(2), r(3), large, *others)
    a.call(5, "vm.builtin.tuple_getitem", r(4), imm(1))
    a.call(6, "vm.builtin.shape_of", r(5))
    a.call(7, "vm.builtin.make_tuple", r(4), r(6))
    a.end(7)
    scopes = {1: "global", 2: "global.texture"}
    return runtime.VMExecutable.from_parts(a.functions, a.constants, scopes, a.offset, a.data, [kernel_module()])


def jumps() -> runtime.VMExecutable:
    """``main(x, flag)`` chooses a branch, then goes round a loop once."""
    a = Assembler()
    truth = a.const(np.array(True))
    a.begin("main", ["x", "flag"], 6)
    a.call(2, "vm.builtin.read_if_cond", r(1))
    a.if_(2, 3)
    a.call(3, "vm.builtin.copy", r(0))
    a.goto(2)
    a.call(3, "vm.builtin.shape_of", r(0))
    a.call(4, "vm.builtin.read_if_cond", truth)
    a.if_(4, 4)
    a.call(5, "vm.builtin.make_tuple", r(3), r(4))
    a.call(4, "vm.builtin.copy", imm(0))
    a.goto(-3)
    a.end(5)
    return a.build()


def closures() -> runtime.VMExecutable:
    """``main(x, y)``: closures of VM functions and kernels, direct calls, and a call of itself behind a condition."""
    a = Assembler()
    for name in ("pair", "main"):
        a.func(name)
    a.begin("pair", ["x", "y"], 3)
    a.call(2, "vm.builtin.make_tuple", r(0), r(1))
    a.end(2)
    a.begin("main", ["x", "y"], 8)
    a.call(2, "vm.builtin.make_closure", a.f("pair"), r(1))
    a.call(3, "vm.builtin.invoke_closure", VM, r(2), r(0))
    a.call(4, "pair", r(3), r(2))
    a.call(5, "vm.builtin.make_closure", a.f("vm.builtin.make_tuple"), r(4), r(4))
    a.call(6, "vm.builtin.invoke_closure", VM, r(5))
    a.call(7, "vm.builtin.read_if_cond", r(1))
    a.if_(7, 3)
    a.call(6, "main", r(0), a.const(np.array(False)))
    a.goto(2)
    a.call(VOID, "vm.builtin.check_func_info", r(2), a.const("closure"))
    a.end(6)
    return a.build()


def padded(executable: runtime.VMExecutable) -> bytes:
    """The file as a library has it, with padding constants in front of large tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "padded"
        path.touch()
        _append(executable.mod, str(path), 1)
        return path.read_bytes()


def bases() -> list[Base]:
    """All programs."""
    x, flag = np.ones((3, 4), np.float32), np.array(True)
    made: list[tuple[Callable[[], runtime.VMExecutable], tuple[Any, ...]]] = [
        (partial(add_twice, 2), (x,)),
        (weights, (x,)),
        (jumps, (x, flag)),
        (closures, (x, flag)),
    ]
    out = []
    for make, args in made:
        executable = make()
        out.append(Base(executable.bytes, executable.imports, args))
    executable = weights()
    out.append(Base(padded(executable), executable.imports, (x,)))
    return out
