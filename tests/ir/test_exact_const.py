"""Constants and operands: what a type cannot hold or has not is refused, and does not become something else."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, ir, op, relax, relay, tir


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int32", -(2**31), 2**31 - 1),
        ("uint32", 0, 2**32 - 1),
        ("uint64", 0, 2**64 - 1),
        ("int4", -8, 7),
        ("float16", -65504.0, 65504.0),
        ("float32", float(np.finfo("float32").min), float(np.finfo("float32").max)),
    ],
)
def test_ends_of_types(dtype, low, high):
    for value in (low, high):
        assert tir.const(value, dtype).value == value
        beyond = value * 1.001 if isinstance(value, float) else value + (1 if value == high else -1)
        for wide in (dtype, f"{dtype}x4"):
            refuses(error.InvalidArgument, "does not hold", tir.const, beyond, wide)
        imm = tir.FloatImm if isinstance(value, float) else tir.IntImm
        assert imm(dtype, value).value == value
        refuses(error.InvalidArgument, f"{dtype} does not hold", imm, dtype, beyond)


@pytest.mark.parametrize(
    ("kind", "make", "dtype", "value"),
    [
        (error.InvalidArgument, tir.IntImm, "bool", 2),
        (error.InvalidArgument, tir.IntImm, "int32", 1.5),
        (error.DTypeMismatch, tir.IntImm, "float32", 1),
        (error.DTypeMismatch, tir.IntImm, "int32x4", 1),
        (error.InvalidArgument, tir.FloatImm, "float32", "1"),
        (error.DTypeMismatch, tir.FloatImm, "int8", 1.0),
        (error.InvalidArgument, lambda dtype, value: tir.const(value, dtype), "int32", float("nan")),
    ],
)
def test_no_constants(kind, make, dtype, value):
    refuses(kind, "constant|hold|IntImm|FloatImm", make, dtype, value)


def test_what_is_rounded_or_not_finite_is_held():
    assert tir.const(3.7, "int32").value == 3 and tir.const(2, "bool").value == 1
    assert tir.const(float("inf"), "float16").value == float("inf") and np.isnan(tir.const(np.nan, "float32").value)
    assert int(tir.const(255, "uint8") + tir.const(1, "uint8")) == 0


@pytest.mark.parametrize("make", [lambda x: ~x, lambda x: x << 1, lambda x: 1 >> x, lambda x: x & 3, lambda x: x ^ x])
def test_floats_have_no_bits_to_work_on(make):
    refuses(error.InvalidArgument, "bits of integers", make, tir.Var("x", "float32"))
    make(tir.Var("x", "int32"))


def test_numbers_beside_types_that_do_not_hold_them():
    x = tir.Var("x", "int8")
    assert [e.dtype for e in (x + 127, x + 300, (x < 300).a, x - 129)] == ["int8", "int32", "int32", "int32"]
    pairs = [(x, 127), (x, 300), (x, 1.5), (2, x), (x, tir.Var("y", "int16")), (2.5, tir.Var("f", "float64"))]
    assert [tir.pow(*pair).dtype for pair in pairs] == "int8 int32 float32 int8 int16 float64".split()
    for make in (ir.constant, relax.const, relay.const):
        for value, dtype in ((300, "int8"), (-1, "uint64"), (1 << 70, "int64"), ([0, -1], "uint8"), (np.inf, "int32")):
            refuses(error.InvalidArgument, f"{dtype} does not hold", make, value, dtype)
    assert [op.get_op_def("clip").reference(np.uint8([0, 9, 255]), min=-1, max=m).tolist() for m in (300, 7.5)] == [
        [0, 9, 255],
        [0, 7, 7],
    ]
