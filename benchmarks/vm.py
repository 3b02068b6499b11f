"""Costs of the virtual machine, in nanoseconds: calls, small kernels, allocation, Python. Prints JSON.

Run ``python benchmarks/vm.py`` (needs a C compiler for the kernels). Each number is the least of several repeats;
per-call numbers are the difference of a program of 200 calls and one of 100.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

import numpy as np
import tvm_ffi

from weft import runtime
from weft.ffi import find_library
from weft.runtime.opcodes import VM_REGISTER, VOID_REGISTER, Opcode, const_arg, imm_arg, register_arg

KERNELS = """
#include <tvm/ffi/c_api.h>
int32_t __tvm_ffi_nothing(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) { return 0; }
int32_t __tvm_ffi_add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* ret) {
  float* data[3];
  int64_t rows = 0;
  if (n != 3) return -1;
  for (int i = 0; i < 3; ++i) {
    if (args[i].type_index != kTVMFFITensor) return -1;
    DLTensor* t = (DLTensor*)((char*)args[i].v_ptr + sizeof(TVMFFIObject));
    if (t->dtype.code != kDLFloat || t->dtype.bits != 32 || t->ndim != 2 || t->shape[1] != 4) return -1;
    if (i == 0) rows = t->shape[0];
    if (t->shape[0] != rows) return -1;
    data[i] = (float*)((char*)t->data + t->byte_offset);
  }
  for (int64_t i = 0; i < rows * 4; ++i) data[2][i] = data[0][i] + data[1][i];
  return 0;
}
"""
VM, VOID, r, imm = register_arg(VM_REGISTER), VOID_REGISTER, register_arg, imm_arg


class Program:
    """One function ``main(x)`` being written, with helper functions before it."""

    def __init__(self, kernels: runtime.Module) -> None:
        self.kernels, self.names, self.rows = kernels, [], []
        self.constants, self.offset, self.data = [], [], []

    def func(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
            self.rows.append(runtime.VMFuncInfo(0, name))
        return self.names.index(name)

    def const(self, value: object) -> int:
        self.constants.append(value)
        return const_arg(len(self.constants) - 1)

    def emit(self, *words: int) -> None:
        self.offset.append(len(self.data))
        self.data += words

    def call(self, dst: int, name: str, *args: int) -> None:
        self.emit(Opcode.CALL, dst, self.func(name), len(args), *args)

    def define(self, name: str, registers: int, body: object) -> None:
        index, start = self.func(name), len(self.offset)
        body()
        self.rows[index] = runtime.VMFuncInfo(1, name, start, len(self.offset), 1, registers, ("x",))

    def machine(self) -> runtime.VirtualMachine:
        ex = runtime.VMExecutable.from_parts(self.rows, self.constants, {}, self.offset, self.data, [self.kernels])
        return runtime.VirtualMachine(ex)


def compile_kernels() -> runtime.Module:
    """The two kernels of this benchmark, from C."""
    directory = Path(tempfile.mkdtemp(prefix="weft-benchmark-"))
    (directory / "kernels.c").write_text(KERNELS)
    flags = [f"-I{p}" for p in tvm_ffi.libinfo.include_paths()]
    library = directory / "kernels.so"
    subprocess.run(
        ["cc", "-O2", "-fPIC", "-shared", *flags, str(directory / "kernels.c"), "-o", str(library)], check=True
    )
    opened = ctypes.CDLL(str(library))
    names = ["nothing", "add"]
    addresses = [ctypes.cast(getattr(opened, "__tvm_ffi_" + n), ctypes.c_void_p).value for n in names]
    return runtime.jit_module(names, addresses, [], opened)


def chain(kernels: runtime.Module, kind: str, length: int) -> runtime.VirtualMachine:  # noqa: C901 - one case a body
    """``main`` with `length` calls of one kind."""
    p = Program(kernels)
    dtype, scope = p.const(runtime.dtype_constant("float32")), p.const("global")
    shape, context = p.const(runtime.shape_constant((1, 4))), p.const("x")
    if kind == "vm":
        p.func("main")
        p.define("same", 1, lambda: p.emit(Opcode.RET, 0))

    def nothing() -> None:
        for _ in range(length):
            p.call(VOID, "same" if kind == "vm" else "nothing", r(0))
        p.emit(Opcode.RET, 0)

    def hoisted() -> None:
        p.call(1, "vm.builtin.alloc_storage", VM, shape, imm(0), dtype, scope)
        p.call(2, "vm.builtin.alloc_tensor", r(1), imm(0), shape, dtype)
        for _ in range(length):
            p.call(VOID, "add", r(0), r(0), r(2))
        p.emit(Opcode.RET, 2)

    def planned() -> None:
        for i in (1, 2):
            p.call(i, "vm.builtin.alloc_storage", VM, shape, imm(0), dtype, scope)
        source = 0
        for i in range(length):
            p.call(3 + i % 2, "vm.builtin.alloc_tensor", r(1 + i % 2), imm(0), shape, dtype)
            p.call(VOID, "add", r(source), r(source), r(3 + i % 2))
            if source:
                p.call(source, "vm.builtin.null_value")
            source = 3 + i % 2
        p.emit(Opcode.RET, source)

    def symbolic() -> None:
        p.call(1, "vm.builtin.alloc_shape_heap", VM, imm(2))
        p.call(VOID, "vm.builtin.match_shape", r(0), r(1), imm(2), imm(1), imm(0), imm(0), imm(4), context)
        source = 0
        for i in range(length):
            out = 4 + i % 2
            p.call(2, "vm.builtin.make_shape", r(1), imm(2), imm(1), imm(0), imm(0), imm(4))
            p.call(3, "vm.builtin.alloc_storage", VM, r(2), imm(0), dtype, scope)
            p.call(out, "vm.builtin.alloc_tensor", r(3), imm(0), r(2), dtype)
            p.call(VOID, "add", r(source), r(source), r(out))
            if source:
                p.call(source, "vm.builtin.null_value")
            source = out
        p.emit(Opcode.RET, source)

    bodies = {"nothing": nothing, "vm": nothing, "hoisted": hoisted, "planned": planned, "symbolic": symbolic}
    p.define("main", 8, bodies[kind])
    return p.machine()


def per_call(kernels: runtime.Module, kind: str, x: runtime.Tensor) -> float:
    """Nanoseconds of one more call."""
    least = []
    for length in (100, 200):
        timer = chain(kernels, kind, length).time_evaluator("main", number=1000, repeat=15)
        least.append(timer(x).min)
    return (least[1] - least[0]) * 1e9 / 100


def per_python_call(function: object, *args: object) -> float:
    """Nanoseconds of a call from Python."""
    number = 50_000
    return min(timeit.repeat(lambda: function(*args), number=number, repeat=7)) / number * 1e9


def import_seconds(module: str) -> float:
    """Seconds that importing a module takes in a fresh process."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3))


def main() -> None:
    """Measure and print."""
    kernels = compile_kernels()
    x = runtime.tensor(np.ones((1, 4), np.float32))
    x34 = np.ones((3, 4), np.float32)
    one_op = chain(kernels, "symbolic", 1)["main"]
    events = [0]

    def instrument(*_args: object) -> int:
        events[0] += 1
        return 0

    watched = chain(kernels, "nothing", 1000)
    watched.set_instrument(instrument)
    watched_ns = min(timeit.repeat(lambda: watched["main"](x), number=1, repeat=10)) * 1e9  # timeit stops the collector
    instrument_ns = watched_ns / (events[0] / 10)
    print(
        json.dumps(
            {
                "call of a native function that does nothing, ns": per_call(kernels, "nothing", x),
                "call of a VM function, ns": per_call(kernels, "vm", x),
                "add of 4 floats, tensors made once, ns": per_call(kernels, "hoisted", x),
                "add of 4 floats, storage planned, ns": per_call(kernels, "planned", x),
                "add of 4 floats, shapes symbolic, ns": per_call(kernels, "symbolic", x),
                "Python instrument, per callback, ns": instrument_ns,
                "Python call of a 1-op function, tensor 3x4, ns": per_python_call(one_op, runtime.tensor(x34)),
                "Python call of a 1-op function, NumPy 3x4, ns": per_python_call(one_op, x34),
                "import weft, s": import_seconds("weft"),
                "import weft.runtime, s": import_seconds("weft.runtime"),
                "libweft_runtime, bytes": find_library().stat().st_size,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
