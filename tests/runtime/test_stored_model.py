"""Stored models: what is written comes back, on cache lines; what is damaged is refused."""

import numpy as np
import tvm_ffi

from tests.refusals import refuses
from weft import error, ffi
from weft.runtime import VirtualMachine, VMExecutable, VMFuncInfo, dtype_constant, from_dlpack, shape_constant
from weft.runtime.opcodes import FuncKind
from weft.runtime.stored_model import read_model, write_model

_RET, _CALL = 2, 1
_CONSTANT = 2 << 56


def executable(constants) -> VMExecutable:
    """A function for each constant that returns a copy of it."""
    functions = [VMFuncInfo(int(FuncKind.PACKED_FUNC), "vm.builtin.copy")]
    offsets, words = [], []
    for i in range(len(constants)):
        start = len(offsets)
        offsets += [len(words), len(words) + 5]
        words += [_CALL, 0, 0, 1, _CONSTANT | i, _RET, 0]
        functions.append(VMFuncInfo(int(FuncKind.VM_FUNC), f"c{i}", start, start + 2, 0, 1, ()))
    return VMExecutable.from_parts(functions, constants, {0: "global"}, offsets, words)


def values(exe: VMExecutable, n: int) -> list:
    machine = VirtualMachine(exe)
    return [machine[f"c{i}"]() for i in range(n)]


CONSTANTS = [
    np.arange(37, dtype="float32").reshape(37, 1),
    np.zeros((0, 5), "int64"),
    np.array(3.5, "float64"),
    np.arange(1 << 20, dtype="float32"),
    np.array([True, False, True]),
    shape_constant([1, 2, 3]),
    "text",
    7,
    2.5,
    dtype_constant("float16"),
    np.arange(3, dtype="uint8"),
]


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "m"
    assert write_model(path, executable(CONSTANTS), {"a": [1, "b"]})
    found = read_model(path)
    assert found is not None and found.note == {"a": [1, "b"]}
    assert found.executable.memory_scopes == {0: "global"}
    for wanted, got in zip(CONSTANTS, values(found.executable, len(CONSTANTS)), strict=True):
        if isinstance(wanted, np.ndarray):
            assert got.shape == wanted.shape and str(got.dtype) == str(wanted.dtype)
            np.testing.assert_array_equal(got.numpy(), wanted)
        elif isinstance(wanted, tvm_ffi.Shape):
            assert tuple(got) == tuple(wanted)
        else:
            assert got == wanted


def test_dtypes_that_numpy_lacks(tmp_path):
    view = tvm_ffi.get_global_func("weft.tensor_view")
    bits = np.arange(0x3F80, 0x3F86, dtype="uint16").reshape(2, 3)
    write_model(tmp_path / "m", executable([ffi.wrap(view(from_dlpack(bits), (2, 3), "bfloat16", 0))]), None)
    (got,) = values(read_model(tmp_path / "m").executable, 1)
    assert str(got.dtype) == "bfloat16" and got.shape == (2, 3)
    np.testing.assert_array_equal(np.from_dlpack(view(got, (2, 3), "uint16", 0)), bits)


def test_weights_lie_on_cache_lines(tmp_path):
    write_model(tmp_path / "m", executable(CONSTANTS), None)
    found = read_model(tmp_path / "m").executable.constants
    places = [c.numpy().ctypes.data for c in found if hasattr(c, "numpy") and c.numpy().size]
    assert len(places) == 5 and all(p % 64 == 0 for p in places)


def test_models_that_are_not_wanted_are_not_read(tmp_path):
    write_model(tmp_path / "m", executable(CONSTANTS), 5)
    assert read_model(tmp_path / "m", lambda note: note != 5) is None
    assert read_model(tmp_path / "m", lambda note: note == 5) is not None


def test_every_damaged_byte_is_found(tmp_path):
    path = tmp_path / "m"
    write_model(path, executable(CONSTANTS[:3]), None)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        refuses(error.ExecutableError, "damaged", read_model, path)
    for n in range(0, len(good), 11):
        path.write_bytes(good[:n])
        refuses(error.ExecutableError, "damaged", read_model, path)
    path.write_bytes(good)
    assert read_model(path) is not None


def test_a_block_of_large_weights_that_was_lost_is_found(tmp_path):
    path = tmp_path / "m"
    write_model(path, executable([np.arange(3 << 20, dtype="float32")]), None)
    good = bytearray(path.read_bytes())
    good[9 << 20 : (9 << 20) + 4096] = bytes(4096)
    path.write_bytes(good)
    refuses(error.ExecutableError, "damaged", read_model, path)


def test_modules_that_are_no_machine_code_are_not_stored(tmp_path):
    inner = executable([1])
    outer = VMExecutable.from_parts([VMFuncInfo(int(FuncKind.PACKED_FUNC), "f")], [], {}, [], [], [inner])
    assert not write_model(tmp_path / "m", outer, None)


def test_pages_that_changed_places_are_found(tmp_path):
    """Their sum is the same."""
    path = tmp_path / "m"
    write_model(path, executable([np.arange(3 << 20, dtype="float32")]), None)
    good = path.read_bytes()
    for a, b, n in ((2 << 20, 5 << 20, 1 << 20), (4 << 20, (4 << 20) + 4096, 4096), (4 << 20, (4 << 20) + 8, 8)):
        swapped = bytearray(good)
        swapped[a : a + n], swapped[b : b + n] = good[b : b + n], good[a : a + n]
        assert sum(swapped) == sum(good) and swapped != good
        path.write_bytes(swapped)
        refuses(error.ExecutableError, "damaged", read_model, path)


def test_a_model_of_another_key_is_refused(tmp_path):
    write_model(tmp_path / "m", executable([1]), None, "this")
    assert read_model(tmp_path / "m", key="this") is not None
    for other in ("", "that"):
        refuses(error.ExecutableError, "damaged", read_model, tmp_path / "m", key=other)
