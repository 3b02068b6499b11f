import random
import struct
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

from tests.refusals import refuses
from tests.runtime.programs import VOID, Assembler, add_twice, imm, r
from weft import runtime
from weft.error import ExecutableError, WeftError
from weft.runtime import VMExecutable, VMFuncInfo
from weft.runtime.opcodes import VM_REGISTER, VOID_REGISTER, ArgKind, Opcode, decode_arg, encode_arg


def constants_program():
    a = Assembler()
    values = [
        runtime.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)),
        tvm_ffi.Shape((2, 3)),
        "text",
        7,
        2.5,
        tvm_ffi.dtype("bfloat16"),
        np.array([True, False]),
    ]
    words = [a.const(v) for v in values]
    a.begin("main", ["x"], 2)
    a.call(1, "vm.builtin.make_tuple", *words)
    a.end(1)
    return a.build()


def test_constants_round_trip():
    ex = constants_program()
    for e in (ex, VMExecutable.from_bytes(ex.bytes)):
        tensor, shape, text, seven, half, dtype, flags = runtime.VirtualMachine(e)["main"](0)
        np.testing.assert_array_equal(tensor.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))
        assert tuple(shape) == (2, 3)
        assert (str(text), seven, half, str(dtype)) == ("text", 7, 2.5, "bfloat16")
        assert flags.numpy().tolist() == [True, False]
    assert VMExecutable.from_bytes(ex.bytes).bytes == ex.bytes


def test_file_layout():
    data = constants_program().bytes
    assert struct.unpack_from("<Q", data)[0] == 0xD225DE2F4214151E
    assert data[8:20] == struct.pack("<Q", 4) + b"0.14"
    at = data.index(struct.pack("<QQ", 0xDD5E40F096B4A13F, 0))
    assert struct.unpack_from("<iiiBBHqqq", data, at + 16) == (1, 0, 2, 2, 32, 1, 2, 3, 24)
    assert data[at - 4 : at] == struct.pack("<i", 70)


def test_old_magic_has_no_scopes():
    data = constants_program().bytes
    scopes = data.index(struct.pack("<QQ", 0, 7) + struct.pack("<i", 70))
    old = struct.pack("<Q", 0xD225DE2F4214151D) + data[8:scopes] + data[scopes + 8 :]
    assert VMExecutable.from_bytes(old).bytes == data


def test_text():
    ex = add_twice(1)
    text = ex.as_text()
    assert "@main:" in text
    assert "call  vm.builtin.alloc_shape_heap in: %vm, i2" in text
    assert "@add packed_func;" in text
    assert "dst: %void" in text
    python = ex.as_python()
    assert "with ib.function('main', num_inputs=1, param_names=['x'], register_file_size=" in python
    assert "ib.emit_ret(ib.r(5))" in python
    assert "Globals (#10): [main, vm.builtin.alloc_shape_heap" in ex.stats()


def test_argument_words():
    for kind in ArgKind:
        for value in (0, 1, -1, 2**55 - 1, -(2**55)):
            assert decode_arg(encode_arg(kind, value)) == (kind, value)
    assert [o.value for o in Opcode] == [1, 2, 3, 4]
    assert (VOID_REGISTER, VM_REGISTER) == (2**54, 2**54 + 1)


def test_every_truncation_is_an_error():
    data = add_twice(1).bytes
    for n in range(len(data)):
        with pytest.raises(ExecutableError, match=r"section (header|globals|memory scopes|constants|code), offset \d+"):
            VMExecutable.from_bytes(data[:n])
    refuses(ExecutableError, "1 bytes after the end", VMExecutable.from_bytes, data + b"\0")


def test_header_errors():
    data = add_twice(1).bytes
    refuses(ExecutableError, "not an executable", VMExecutable.from_bytes, b"x" * 100)
    with pytest.raises(ExecutableError, match='expected version "0.14", found "0.99"'):
        VMExecutable.from_bytes(data.replace(b"0.14", b"0.99", 1))


def test_counts_are_bounded_by_the_file():
    data = bytearray(add_twice(1).bytes)
    data[20:28] = struct.pack("<Q", 1 << 60)
    refuses(ExecutableError, "do not fit", VMExecutable.from_bytes, bytes(data))


def build(words, offset=(0,), functions=None, constants=()):
    functions = functions or [VMFuncInfo(1, "main", 0, len(offset), 1, 2, ("x",)), VMFuncInfo(0, "g")]
    return VMExecutable.from_parts(functions, list(constants), {}, list(offset), words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([Opcode.Ret, 2], "register 2 of 2"),
        ([Opcode.Ret, -1], "register -1 of 2"),
        ([9, 1], "unknown opcode 9"),
        ([Opcode.Ret], "cut short"),
        ([Opcode.Ret, 0, 0], "3 words, expected 2"),
        ([Opcode.Goto, 1], "jump by 1 leaves the function"),
        ([Opcode.Goto, -1], "leaves the function"),
        ([Opcode.If, 0, 0], "falls off the end"),
        ([Opcode.Call, 0, 1, 0], "falls off the end"),
        ([Opcode.Call, 5, 1, 0], "destination register 5"),
        ([Opcode.Call, 0, 2, 0], "function 2 of 2"),
        ([Opcode.Call, 0, 1, 2, 0], "2 arguments in 1 words"),
        ([Opcode.Call, 0, 1, -1], "-1 arguments"),
        ([Opcode.Call, 0, 1, 1, r(7)], "register 7 of 2"),
        ([Opcode.Call, 0, 1, 1, encode_arg(2, 0)], "constant 0 of 0"),
        ([Opcode.Call, 0, 1, 1, encode_arg(3, 4)], "function 4 of 2"),
        ([Opcode.Call, 0, 1, 1, encode_arg(9, 4)], "unknown argument kind 9"),
        ([Opcode.Call, 0, 0, 0], 'calls "main" with 0 arguments, it takes 1'),
    ],
)
def test_verifier(words, message):
    refuses(ExecutableError, message, build, words)


def test_verifier_tables():
    ret = [Opcode.Ret, 0]
    with pytest.raises(ExecutableError, match="defined twice"):
        build(ret, functions=[VMFuncInfo(1, "f", 0, 1, 1, 1), VMFuncInfo(0, "f")])
    refuses(ExecutableError, "unknown function kind 5", build, ret, functions=[VMFuncInfo(5, "f", 0, 1, 1, 1)])
    refuses(ExecutableError, r"instructions \[0, 2\) of 1", build, ret, functions=[VMFuncInfo(1, "f", 0, 2, 1, 1)])
    refuses(ExecutableError, "1 registers for 2 arguments", build, ret, functions=[VMFuncInfo(1, "f", 0, 1, 2, 1)])
    refuses(ExecutableError, "2 arguments but 1 names", build, ret, functions=[VMFuncInfo(1, "f", 0, 1, 2, 2, ("x",))])
    refuses(ExecutableError, "registers for", build, ret, functions=[VMFuncInfo(1, "f", 0, 1, 1, 1 << 40)])
    refuses(ExecutableError, "instruction 1 has words", build, ret * 2, offset=(0, 9))
    with pytest.raises(ExecutableError, match="constant 3 does not exist"):
        VMExecutable.from_parts([VMFuncInfo(1, "f", 0, 1, 1, 1)], [], {3: "global"}, [0], ret)


def test_verifier_collects_all():
    info = refuses(ExecutableError, "2 errors", build, [Opcode.Call, 0, 1, 1, r(7), Opcode.Ret, 9], offset=(0, 5))
    assert "register 7" in str(info)
    assert "register 9" in str(info)


def test_void_register_reads_as_none():
    a = Assembler()
    a.begin("f", ["x"], 2)
    a.call(1, "vm.builtin.make_tuple", r(0), r(VOID), imm(4))
    a.end(1)
    assert runtime.VirtualMachine(a.build())["f"](1) == (1, None, 4)


def test_vmtir_function_needs_its_native_code():
    """A function of kind kVMTIRFunc is read and written; a machine is refused without ``__vmtir__<name>``."""
    ex = build([Opcode.Ret, 0], functions=[VMFuncInfo(1, "f", 0, 1, 1, 1), VMFuncInfo(2, "g", 0, 0, 1, 1)])
    again = VMExecutable.from_bytes(ex.bytes)
    assert again.functions == ex.functions
    assert "@g num_inputs=1 vm_tir_func;" in again.as_text()
    refuses(ExecutableError, "__vmtir__g", runtime.VirtualMachine, again)


def test_mutations_never_crash():
    """A bounded run of the fuzzer: damaged files are refused or run into clean errors."""
    ex = add_twice(2)
    data = ex.bytes
    rng = random.Random(0)
    x = np.ones((2, 4), np.float32)
    outcomes = {"refused": 0, "error": 0, "ran": 0}
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(damaged))
            damaged[at] = rng.choice((damaged[at] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 255))
        try:
            vm = runtime.VirtualMachine(VMExecutable.from_bytes(bytes(damaged), imports=ex.imports))
        except WeftError:
            outcomes["refused"] += 1
            continue
        if any(w < 0 for w in _jumps(vm.executable)):
            continue  # a corrupt backward jump may loop for ever
        for f in vm.executable.functions:
            if f.kind != 1:
                continue
            try:
                vm[f.name](x)
                outcomes["ran"] += 1
            except (WeftError, ValueError, TypeError, IndexError, MemoryError, RuntimeError):
                outcomes["error"] += 1
    assert outcomes["refused"] > 500
    assert outcomes["ran"] > 0


def _jumps(executable):
    from weft.runtime.disassemble import instructions

    for f in executable.functions:
        if f.kind == 1:
            for name, words in instructions(executable, f):
                if name in ("Goto", "If"):
                    yield words[-1] - (words[-1] == 0)


def test_file_that_apache_tvm_wrote():
    """An executable with two functions, an If and symbolic shapes, written by Apache TVM 0.27: read and rewritten."""
    data = (Path(__file__).parent / "tvm_executable.bin").read_bytes()
    ex = VMExecutable.from_bytes(data)
    assert ex.bytes == data
    assert [f.name for f in ex.functions if f.kind == 1] == ["main", "sub"]
    assert ex.function("main").param_names == ("x", "c", "t")
    assert "  If    %6, 9" in ex.as_text()
    assert "vm.builtin.read_if_cond" in ex.as_text()
