"""Scalars of the Relay virtual machine: arithmetic, comparisons, and what they are as tensors."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.runtime.relay_programs import I, counting_loop, function, kernels, machine, value

F = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("add", np.add),
        ("subtract", np.subtract),
        ("multiply", np.multiply),
        ("floor_divide", np.floor_divide),
        ("floor_mod", np.mod),
        ("minimum", np.minimum),
        ("maximum", np.maximum),
        ("equal", np.equal),
        ("not_equal", np.not_equal),
        ("less", np.less),
        ("less_equal", np.less_equal),
        ("greater", np.greater),
        ("greater_equal", np.greater_equal),
        ("bitwise_and", np.bitwise_and),
        ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_scalar_operations(name, reference, dtype):
    vm = machine(function("main", ["x", "y"], 3, I.scalar(name, 0, 1, 2), I.ret(2)))
    limits = np.iinfo(dtype)
    numbers = [0, 1, -1, 7, -7, limits.max, limits.min]
    with np.errstate(over="ignore"):
        for a in numbers:
            for b in numbers:
                x, y = np.array(a, dtype), np.array(b, dtype)
                if b == 0 and name in ("floor_divide", "floor_mod"):
                    refuses(ZeroDivisionError, "by zero", vm.run, x, y)
                    continue
                out = vm.run(x, y).numpy()
                if name == "floor_divide" and b == -1:  # NumPy says 0 for the smallest number; ours wraps as C's
                    expected = np.negative(x)
                else:
                    expected = reference(x, y)
                assert out.dtype == expected.dtype
                assert out == expected, (a, b)


def test_scalars_have_one_meaning_in_registers_and_tensors():
    vm = machine(
        function(
            "main",
            ["x"],
            4,
            I.load_consti(1, 1),
            I.scalar("less", 0, 1, 2),
            I.scalar("bitwise_xor", 2, 2, 3),
            I.alloc_adt(0, [1, 2, 3], 1),
            I.ret(1),
        )
    )
    one, less, xor = vm.run(np.array(0, np.int32))
    assert one.dtype == "int64"
    assert less.dtype == "bool"
    assert less.numpy()
    assert xor.dtype == "bool"
    assert not xor.numpy()
    assert value(vm.run(np.int64(5))[1]) == np.False_
    refuses(TypeError, "expected a scalar int32, int64 or bool", vm.run, F)
    refuses(TypeError, "found a tensor int16", vm.run, np.array(1, np.int16))


def test_python_numbers_are_scalars_of_relays_dtypes():
    vm = machine(function("main", ["x"], 1, I.ret(0)))
    assert [vm.run(v).dtype for v in (True, 3, 2**40, 2.5)] == ["bool", "int32", "int64", "float32"]
    assert vm.run((1, 2.0))[1].dtype == "float32"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int32", "int64"])
def test_if_compares_numbers_of_any_integer_dtype(dtype):
    vm = machine(
        function(
            "main", ["x", "y"], 3, I.load_consti(10, 2), I.if_(0, 1, 3, 1), I.load_consti(20, 2), I.ret(2), I.ret(2)
        )
    )
    assert value(vm.run(np.array(1, dtype), np.array(1, np.int64))) == 10
    assert value(vm.run(np.array([[1]], dtype), np.array(0, dtype))) == 20
    refuses(TypeError, "integer or bool of one element", vm.run, np.array(1, dtype), np.array(1.0))
    refuses(TypeError, "float32", vm.run, F, np.array(1, dtype))


def test_counting_loop():
    vm = machine(counting_loop())
    assert value(vm.run(np.int64(100_000))) == 100_000
    assert vm.run(0).dtype == "int64"


def test_scalars_become_tensors_for_primitives():
    seen = []

    def look(x, out):
        seen.append((x.dtype, x.shape, int(x.numpy())))
        out.copyfrom(x.numpy() + 1)

    weft.register_func("test_relay.look", look, override=True)
    vm = machine(
        function(
            "main",
            [],
            6,
            I.load_consti(41, 0),
            I.load_consti(8, 1),
            I.alloc_storage(1, 8, "int64", 0, 2),
            I.alloc_tensor(2, 0, [], "int64", 3),
            I.invoke_packed(0, 2, 1, [0, 3]),
            I.scalar("add", 3, 0, 4),
            I.alloc_tensor(2, 0, [], "int64", 5),
            I.invoke_packed(1, 3, 1, [4, 0, 5]),
            I.ret(5),
        ),
        primitives=["test_relay.look", "add_scalar"],
        lib=kernels(),
    )
    assert value(vm.run()) == 42 + 41 + 41
    assert seen == [("int64", (), 41)]
