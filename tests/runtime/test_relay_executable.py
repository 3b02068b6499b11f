"""Files of Relay executables: their layout, and what is refused, one by one."""

import struct

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.runtime.relay_programs import I, countdown, executable, fold_sum, function, kernels, machine, make_list
from weft.error import ExecutableError, InvalidArgument
from weft.runtime.relay_instruction import Instruction
from weft.runtime.relay_vm import Executable, VirtualMachine, VMFunction

F = np.arange(6, dtype=np.float32).reshape(2, 3)


class Words(Instruction):
    """An instruction of any words."""

    __slots__ = ("given",)

    def __init__(self, *given):
        self.given = list(given)

    def words(self):
        return self.given


def sample():
    return executable(
        countdown(),
        make_list(),
        fold_sum(index=2),
        function("place", ["x", "y"], 3, I.load_const(0, 2), I.ret(2), devices=[0, 1]),
        constants=[F, "text", 7, 2.5, weft.runtime.shape_constant((2, 3)), weft.runtime.dtype_constant("int8")],
        constant_devices=[0, 1, 0, 0, 0, 0],
        primitives=["vm.builtin.copy"],
    )


def test_what_is_saved_is_what_is_loaded():
    exe = sample()
    code, lib = exe.save()
    assert lib is None
    again = Executable.load_exec(bytes(code), lib)
    assert again.save()[0] == code
    assert again.functions == exe.functions
    assert again.functions[3].param_device_indexes == (0, 1)
    values = again.constant_values
    np.testing.assert_array_equal(values[0].numpy(), F)
    assert values[1:4] == ["text", 7, 2.5]
    assert tuple(values[4]) == (2, 3)
    assert again.constants.splitlines()[1] == "VM Const[1]: 'text' on device index 1"


def test_the_library_is_saved_beside_the_code(tmp_path):
    double = function("main", ["x", "out"], 2, I.invoke_packed(0, 2, 1, [0, 1]), I.ret(1))
    code, lib = executable(double, primitives=["double"], lib=kernels()).save()
    (tmp_path / "code.ro").write_bytes(code)
    lib.export_library(tmp_path / "lib.so")
    loaded = Executable.load_exec((tmp_path / "code.ro").read_bytes(), weft.runtime.load_module(tmp_path / "lib.so"))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(VirtualMachine(loaded).run(x, np.zeros_like(x)).numpy(), 2 * x)
    assert VirtualMachine(loaded.mod).run(x, np.zeros_like(x)).shape == (5,)
    refuses(ExecutableError, "- double", VirtualMachine, Executable.load_exec(code, None))


def test_an_executable_in_a_library(tmp_path):
    """The module goes into a shared library with its kernels, as any other."""
    double = function("main", ["x", "out"], 2, I.invoke_packed(0, 2, 1, [0, 1]), I.ret(1))
    executable(double, primitives=["double"], lib=kernels()).mod.export_library(tmp_path / "model.so")
    loaded = Executable(weft.runtime.load_module(tmp_path / "model.so"))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(VirtualMachine(loaded).run(x, np.zeros_like(x)).numpy(), 2 * x)


def test_layout():
    """The first bytes and one whole small file, word by word, as the reference says."""
    code = bytes(
        executable(function("f", ["x"], 2, I.load_const(0, 1), I.ret(1)), constants=[5], primitives=["p"]).save()[0]
    )
    text = lambda t: struct.pack("<Q", len(t)) + t.encode()  # noqa: E731
    words = lambda *w: struct.pack(f"<Q{len(w)}q", len(w), *w)  # noqa: E731
    expected = struct.pack("<Q", 0xD225DE2F42145752) + text("1")
    expected += struct.pack("<Q", 1) + text("f")
    expected += struct.pack("<QqiQ", 1, 0, 1, 5)
    expected += struct.pack("<Q", 1) + text("p")
    expected += struct.pack("<Q", 1) + struct.pack("<Q", 1) + text("x") + words() + struct.pack("<q", 2)
    expected += words(11, 0, 1, 1, 1)
    assert code == expected


def test_every_truncation_is_refused_with_its_place():
    code = bytes(sample().save()[0])
    for size in range(len(code)):
        refuses(ExecutableError, r"executable: section [a-z ]+, offset \d+: ", Executable.load_exec, code[:size], None)
    with pytest.raises(ExecutableError, match="section code, offset [0-9]+: 3 bytes after the end"):
        Executable.load_exec(code + b"abc", None)


def test_other_files_are_refused():
    code = bytes(sample().save()[0])
    with pytest.raises(ExecutableError, match="not a Relay executable: expected magic number 0xD225DE2F42145752"):
        Executable.load_exec(b"\x00" + code[1:], None)
    with pytest.raises(ExecutableError, match='expected version "1", found "2"'):
        Executable.load_exec(code.replace(struct.pack("<Q", 1) + b"1", struct.pack("<Q", 1) + b"2", 1), None)
    refuses(InvalidArgument, "bytes", Executable.load_exec, "text", None)
    refuses(InvalidArgument, "weft.RelayExecutable", Executable, kernels())
    huge = struct.pack("<Q", 0xD225DE2F42145752) + struct.pack("<Q", 1) + b"1" + struct.pack("<Q", 1 << 60)
    with pytest.raises(ExecutableError, match="section globals, offset 25: cut short: 1152921504606846976 func"):
        Executable.load_exec(huge, None)


ONE = function("one", ["x"], 1, I.ret(0))
FLOAT32 = 2 | 32 << 8 | 1 << 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0, 4, 0], "register 4 of 4"),
        ([0, -1, 0], "register -1 of 4"),
        ([0, 0, 4], "destination register 4 of 4"),
        ([1, 2**40], "register 1099511627776 of 4"),
        ([2, 2, 0, 0], "function 2 of 2"),
        ([2, 1, 0, 0], 'passes 0 values to "one", which takes 1'),
        ([2, 1, 0, 2, 0, 0], 'passes 2 values to "one", which takes 1'),
        ([2, 1, 0, 1, 9], "register 9 of 4"),
        ([2, 1, 0, 7, 0], "7 registers in the 3 words left"),
        ([2, 1, 0, -1], "-1 registers in the 2 words left"),
        ([3, 9, 0, 0], "register 9 of 4"),
        ([4, 1, 0, 0], "primitive 1 of 1"),
        ([4, 0, 2, 1, 0], "2 outputs of 1 arguments"),
        ([4, 0, -1, 0], "negative number -1"),
        ([5, 0, 0, FLOAT32, 1, -5, 1], r"impossible shape \[-5\]"),
        ([5, 0, 0, FLOAT32, 2, 2**40, 2**40, 1], "impossible shape"),
        ([5, 0, -1, FLOAT32, 0, 1], "negative number -1"),
        ([5, 0, 0, 99, 0, 1], "dtype 99"),
        ([5, 0, 0, 2**33, 0, 1], "dtype 8589934592"),
        ([5, 0, 0, FLOAT32, 2**62, 1], "4611686018427387904 dimensions in the"),
        ([6, 0, 0, 4, FLOAT32, 1], "register 4 of 4"),
        ([7, -1, 0, 0], "negative number -1"),
        ([7, 0, 0, 1, 4], "register 4 of 4"),
        ([8, 1, 0, 2, 0, 0], 'binds 2 values to "one", which takes 1'),
        ([8, -1, 0, 0], "function -1 of 2"),
        ([9, 0, -1, 0], "negative number -1"),
        ([10, 0, 0, 1, 2], "jump by 2 leaves the function"),
        ([10, 0, 0, -1, 0], "jump by -1 leaves the function"),
        ([10, 0, 0, 2**63 - 1, 0], "leaves the function"),
        ([12, -(2**63)], "jump by -9223372036854775808 leaves the function"),
        ([11, 2, 0], "constant 2 of 2"),
        ([15, 2], "constant 2 of 2"),
        ([15, -2], "constant -2 of 2"),
        ([16, 0, 3, FLOAT32, 0, 1], "alignment 3: expected a power of 2 of at most 64"),
        ([16, 0, 128, FLOAT32, 0, 1], "alignment 128"),
        ([16, 0, 64, FLOAT32, 64, 1], "device 64 of at most 64"),
        ([19, 0, -1, 0, 1], "device -1 of at most 64"),
        ([67, 16, 0, 0, 0], "unknown scalar operation 16"),
        ([21], "unknown opcode 21"),
        ([-1], "unknown opcode -1"),
    ],
)
def test_instructions_that_are_refused(words, message):
    program = [function("main", ["x"], 4, Words(*words), I.ret(0)), ONE]
    where = r'section code: function "main", instruction 0 \(word 0\): '
    with pytest.raises(ExecutableError, match="1 error in verification|2 errors in verification") as caught:
        Executable.from_parts(program, [F, "text"], ["vm.builtin.copy"])
    assert caught.match(where + ".*" + message)


@pytest.mark.parametrize("last", [I.move(0, 0), I.load_consti(1, 0), I.invoke_packed(0, 0, 0, [])])
def test_falling_off_the_end(last):
    with pytest.raises(ExecutableError, match=r'"main", instruction 1 \(word 3\): falls off the end of the function'):
        Executable.from_parts([function("main", ["x"], 1, I.move(0, 0), last)], [], ["vm.builtin.copy"])


def test_functions_that_are_refused():
    def refused(message, *functions, **parts):
        refuses(ExecutableError, message, Executable.from_parts, functions, **parts)

    refused('function 1 "one" is defined twice', ONE, ONE)
    refused('function 0 "" has no name', VMFunction("", [], 1, [I.ret(0)]))
    refused('"main": 0 registers for 1 parameters', VMFunction("main", ["x"], 0, [I.goto(0)]))
    refused('"main": 1000000 registers', VMFunction("main", ["x"], 1_000_000, [I.ret(0)]))
    refused("the function has no instructions", VMFunction("main", ["x"], 1, []))
    refused("2 parameters but 1 device indexes", function("main", ["x", "y"], 2, I.ret(0), devices=[0]))
    refused("a parameter on device -1", function("main", ["x"], 2, I.ret(0), devices=[-1]))
    refused("primitive 0 has no name", ONE, primitive_ops=[""])
    refused("constant 0 is on device 99", ONE, constants=[1], constant_device_indexes=[99])
    refused("cut short", VMFunction("main", ["x"], 1, [Words(0, 0)]))
    refused("5000 parameters", VMFunction("main", [f"p{i}" for i in range(5000)], 5000, [I.ret(0)]))


def test_all_errors_are_told_at_once():
    many = [Words(0, i, 77) for i in range(3, 40)]
    with pytest.raises(ExecutableError, match="74 errors in verification") as caught:
        Executable.from_parts([function("main", ["x"], 3, *many, I.ret(0))])
    assert str(caught.value).count("\n- ") == 21
    assert str(caught.value).endswith("- ...")


def test_instructions_check_their_fields():
    refuses(InvalidArgument, "unknown instruction", Instruction, "Jump", to=1)
    refuses(InvalidArgument, "Goto: wrong fields", Instruction, "Goto", to=1)
    refuses(InvalidArgument, "invoke_packed: wrong arity", I.invoke_packed, 0, 3, 1, [0, 1])
    refuses(InvalidArgument, "unknown scalar operation", I.scalar, "sin", 0, 1, 2)
    assert I.goto(3).pc_offset == 3
    assert I.goto(3) == I.goto(3) != I.goto(4)
    refuses(AttributeError, "the instruction Goto has no field 'dst'", getattr, I.goto(3), "dst")


def test_a_fatal_whose_constant_is_no_text():
    with pytest.raises(RuntimeError, match="stopped at a Fatal instruction"):
        machine(function("main", [], 1, I.fatal(0)), constants=[3]).run()
