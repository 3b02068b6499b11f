"""Hand-made bytecode for the tests: a tiny assembler, and a kernel in C that follows the safe-call convention."""

import subprocess
from functools import cache
from pathlib import Path

import tvm_ffi
from tvm_ffi.libinfo import find_libtvm_ffi

import weft
from weft import runtime
from weft.runtime.opcodes import VM_REGISTER, VOID_REGISTER, Opcode, const_arg, func_arg, imm_arg, register_arg

NATIVE = Path(weft.__file__).resolve().parent.parent / "native"
HERE = Path(__file__).resolve().parent.parent / "native"
VM = register_arg(VM_REGISTER)
VOID = VOID_REGISTER
r, imm, c = register_arg, imm_arg, const_arg


class Assembler:
    """Collects functions and constants and makes an executable of them."""

    def __init__(self):
        self.names, self.functions, self.constants, self.offset, self.data = [], [], [], [], []

    def func(self, name):
        if name not in self.names:
            self.names.append(name)
            self.functions.append(runtime.VMFuncInfo(0, name))
        return self.names.index(name)

    def f(self, name):
        return func_arg(self.func(name))

    def const(self, value):
        self.constants.append(value)
        return const_arg(len(self.constants) - 1)

    def begin(self, name, params, registers):
        self._open = (self.func(name), name, len(self.offset), tuple(params), registers)

    def emit(self, *words):
        self.offset.append(len(self.data))
        self.data += words

    def call(self, dst, name, *args):
        self.emit(Opcode.Call, dst, self.func(name), len(args), *args)

    def ret(self, register):
        self.emit(Opcode.Ret, register)

    def goto(self, offset):
        self.emit(Opcode.Goto, offset)

    def if_(self, cond, offset):
        self.emit(Opcode.If, cond, offset)

    def end(self, result=None):
        """End the function, with the return of a register where nothing has returned before."""
        if result is not None:
            self.ret(result)
        index, name, start, params, registers = self._open
        self.functions[index] = runtime.VMFuncInfo(1, name, start, len(self.offset), len(params), registers, params)

    def build(self, *imports):
        return runtime.VMExecutable.from_parts(self.functions, self.constants, {}, self.offset, self.data, imports)


def context(function, index, name, annotation):
    return f"ErrorContext(fn={function}, loc=param[{index}], param={name}, annotation={annotation}) "


def include_flags():
    return [f"-I{NATIVE / 'include'}", *[f"-I{p}" for p in tvm_ffi.libinfo.include_paths()]]


@cache
def kernel_object() -> bytes:
    """Object file of tests/native/add_kernel.c."""
    import tempfile

    with tempfile.TemporaryDirectory() as d:
        out = Path(d) / "add.o"
        subprocess.run(
            ["cc", "-O2", "-fPIC", "-c", str(HERE / "add_kernel.c"), "-o", str(out), *include_flags()], check=True
        )
        return out.read_bytes()


_KEEP = []


@cache
def kernel_module():
    """The kernel as a JIT module: the same code, linked into a library that this process has open."""
    import ctypes
    import tempfile

    d = tempfile.mkdtemp()
    lib = Path(d) / "add.so"
    obj = Path(d) / "add.o"
    obj.write_bytes(kernel_object())
    subprocess.run(["cc", "-shared", "-o", str(lib), str(obj)], check=True)
    library = ctypes.CDLL(str(lib))
    _KEEP.append(library)
    address = ctypes.cast(library.__tvm_ffi_add, ctypes.c_void_p).value
    return runtime.jit_module(["add"], [address], [kernel_object()], library)


def libraries():
    return str(find_libtvm_ffi()), str(weft.ffi.find_library())


def linked(source: str, program: Path) -> Path:
    """Compile a C++ file of tests/native to a program that has the runtime."""
    command = ["c++", "-std=c++17", "-O1", str(HERE / source), *include_flags(), *reversed(libraries())]
    folders = [f"-Wl,-rpath,{Path(library).parent}" for library in libraries()]
    subprocess.run([*command, *folders, "-o", str(program)], check=True)
    return program


def add_twice(steps=2):
    """main(x: (n, 4) float32): x doubled `steps` times, with a symbolic first dimension, storage planned per step."""
    a = Assembler()
    ctx = a.const(context("main", 0, "x", 'R.Tensor((n, 4), dtype="float32")'))
    dtype, u8, scope = a.const(tvm_ffi.dtype("float32")), a.const(tvm_ffi.dtype("uint8")), a.const("global")
    a.begin("main", ["x"], 3 + 4 * steps)
    a.call(1, "vm.builtin.alloc_shape_heap", VM, imm(2))
    a.call(VOID, "vm.builtin.check_tensor_info", r(0), imm(2), dtype, ctx)
    a.call(VOID, "vm.builtin.match_shape", r(0), r(1), imm(2), imm(1), imm(0), imm(0), imm(4), ctx)
    source, free = 0, 2
    for _ in range(steps):
        shape, flat, storage, out = free, free + 1, free + 2, free + 3
        free += 4
        a.call(shape, "vm.builtin.make_shape", r(1), imm(2), imm(1), imm(0), imm(0), imm(4))
        a.call(flat, "vm.builtin.shape_of", r(source))
        a.call(storage, "vm.builtin.alloc_storage", VM, r(flat), imm(0), dtype, scope)
        a.call(out, "vm.builtin.alloc_tensor", r(storage), imm(0), r(shape), dtype)
        a.call(storage, "vm.builtin.null_value")
        a.call(VOID, "add", r(source), r(source), r(out))
        source = out
    a.end(source)
    assert u8
    return a.build(kernel_module())
