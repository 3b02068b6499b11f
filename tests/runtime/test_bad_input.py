"""Bad input one by one: each broken rule of a file or of a call has its own message, which says what and where."""

import copy
import pickle
import struct

import numpy as np
import pytest
import tvm_ffi

from tests.refusals import refuses
from tests.relax_models import model
from tests.runtime.programs import add_twice
from weft import relax, relay, runtime, script, tir
from weft.error import ExecutableError, InvalidArgument
from weft.runtime.timing import time_function

DATA = add_twice(1).bytes
KIND_AT = 8 + 8 + len("0.14") + 8  # of the first function: after the magic number, the version and a count


def changed(at, form, value):
    data = bytearray(DATA)
    struct.pack_into("<" + form, data, at, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"section header, offset 0: cut short: magic number needs 8 bytes, found 0"),
        (changed(0, "Q", 0x1234), r"expected magic number 0xD225DE2F4214151E, found 0x0000000000001234"),
        (DATA.replace(b"0.14", b"0.15", 1), r'expected version "0\.14", found "0\.15"; compile the model again'),
        (changed(KIND_AT, "i", 9), r"section globals, offset \d+: function 0 is of unknown kind 9"),
        (changed(KIND_AT, "i", -1), r"function 0 is of unknown kind -1"),
        (DATA[:-3], r"section code, offset \d+: cut short: \d+ instruction words do not fit in the \d+ bytes left"),
        (DATA + b"x", r"section code, offset \d+: 1 bytes after the end"),
    ],
)
def test_file(data, message):
    refuses(ExecutableError, message, runtime.VMExecutable.from_bytes, data)


def test_missing_kernel():
    executable = runtime.VMExecutable.from_bytes(DATA)  # without the module that it imports
    with pytest.raises(ExecutableError, match=r"1 functions that it calls are neither .*\n- add\n  help: import"):
        runtime.VirtualMachine(executable)


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def main(request):
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    a = relax.Var("a", relax.TensorStructInfo((n, m), "float32"))
    b = relax.Var("b", relax.TensorStructInfo((m, n), "float32"))
    s = relax.Var("s", relax.ShapeStructInfo([n]))
    p = relax.Var("p", relax.PrimStructInfo("int64"))
    t = relax.Var("t", relax.TupleStructInfo([relax.TensorStructInfo((n, 3), "float32")]))
    mod = model(lambda a, b, *_: relax.op.matmul(a, b), a, b, s, p, t)
    return relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=request.param))["main"]


def tensor(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


GOOD = {"a": tensor(2, 3), "b": tensor(3, 2), "s": tvm_ffi.Shape((2,)), "p": 5, "t": [tensor(2, 3)]}


def test_good_arguments(main):
    np.testing.assert_array_equal(main(*GOOD.values()).numpy(), np.full((2, 2), 3))


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("a", 1, TypeError, r"main: parameter 0 'a': expected a tensor, found the int 1"),
        ("a", "x", TypeError, r"main: parameter 0 'a': expected a tensor, found a str"),
        ("a", None, TypeError, r"main: parameter 0 'a': expected a tensor, found None"),
        ("a", tensor(2, 3, dtype=np.float64), TypeError, r"'a': expected dtype float32, found float64"),
        ("a", tensor(2), ValueError, r"'a': expected ndim 2, found 1: a tensor float32\[2\]"),
        (
            "b",
            tensor(3, 4),
            ValueError,
            r"parameter 1 'b': dimension 1 must be 2 \(the value of this symbol in an "
            r"earlier argument\), found 4 in shape \[3, 4\]",
        ),
        ("b", tensor(4, 2), ValueError, r"parameter 1 'b': dimension 0 must be 3 .* found 4 in shape \[4, 2\]"),
        ("s", 4, TypeError, r"parameter 2 's': expected a shape, found the int 4"),
        ("s", tvm_ffi.Shape((2, 2)), ValueError, r"parameter 2 's': expected a shape of 1 dimensions, found a shape"),
        ("s", tvm_ffi.Shape((7,)), ValueError, r"parameter 2 's': dimension 0 must be 2 .* found 7"),
        ("p", "x", TypeError, r"parameter 3 'p': expected an? int64, found a str"),
        ("p", 1.5, TypeError, r"parameter 3 'p': expected an? int64, found the float 1\.5"),
        ("t", tensor(2), TypeError, r"parameter 4 't': expected a tuple of 1 elements, found a tensor"),
        ("t", [tensor(2, 3)] * 2, ValueError, r"parameter 4 't': expected a tuple of 1 elements, found a tuple of 2"),
        ("t", [tensor(5, 3)], ValueError, r"parameter 4 't', field 0: dimension 0 must be 2 .* found 5"),
        ("t", [tensor(2, 4)], ValueError, r"parameter 4 't', field 0: dimension 1 must be 3, found 4"),
    ],
)
def test_argument(main, name, value, error, message):
    refuses(error, message, main, *{**GOOD, name: value}.values())


@pytest.mark.parametrize("count", [0, 4, 6])
def test_argument_count(main, count):
    args = [*GOOD.values(), 1][:count]
    refuses(TypeError, rf"main\(a, b, s, p, t\): expected 5 arguments, found {count}", main, *args)


def test_a_tensor_without_memory(main):
    torch = pytest.importorskip("torch")
    empty = {**GOOD, "b": torch._efficientzerotensor((3, 2))}.values()
    refuses(ValueError, "'b': expected a tensor with memory, found a null pointer", main, *empty)
    nothing = {"a": torch.empty(0, 3), "b": torch.empty(3, 0), "s": tvm_ffi.Shape((0,)), "t": [torch.empty(0, 3)]}
    assert main(*{**GOOD, **nothing}.values()).shape == (0, 0)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_compiled_code_is_not_copied(main, copied):
    for value in (main, runtime.VirtualMachine(add_twice(1), runtime.cpu()), add_twice(1)):
        refuses(TypeError, "export_library", copied, value)


def test_what_is_none_of_what_is_needed_is_refused():
    for name, given in (("time_function", (None, 1, 1, 0, 0, 0, 0, 1, 0, None)), ("device_stream_set", (1, -1, -1))):
        refuses((TypeError, ValueError), "", tvm_ffi.get_global_func(f"weft.{name}"), *given)
    for function, counts in ((None, {}), (len, {"number": 0}), (len, {"repeat": -1})):
        refuses(InvalidArgument, "timed", time_function, function, [()], **counts)
    refuses(InvalidArgument, "no program", script.from_source, None)
    refuses(InvalidArgument, "no tensor", relax.op.abs, object())
    refuses(InvalidArgument, "no list of tensors", relax.op.concat, 3)
    refuses(InvalidArgument, "no list of sizes", relay.op.reshape, relay.var("x", shape=(4,)), "four")
