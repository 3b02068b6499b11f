"""Slices between bounds that tensors hold, against NumPy."""

import numpy as np
import pytest

import weft
from weft import error, relax, script

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m", 5), "float32"), begin: R.Tensor((3,), "int64"), end: R.Tensor((3,), "int64"),
             strides: R.Tensor((3,), "int64")):
        p = T.int64()
        q = T.int64()
        r = T.int64()
        with R.dataflow():
            y = R.dynamic_strided_slice(x, begin, end, strides)
            z = R.match_cast(y, R.Tensor((p, q, r), "float32"))
            w = R.add(z, z)
            R.output(y, w)
        return (y, w)
"""
CASES = [
    ((0, 0, 0), (4, 6, 5), (1, 1, 1)),
    ((1, 2, 0), (3, 6, 5), (1, 3, 2)),
    ((3, -1, 4), (0, -7, -9), (-1, -2, -3)),
    ((-2, 100, -100), (100, -100, 100), (1, -1, 4)),
    ((2, 0, 0), (1, 6, 5), (1, 1, 1)),
    ((0, 0, 0), (4, 6, 5), (7, 5, 100)),
    ((2**62, -(2**63), 0), (-(2**63), 2**63 - 1, 5), (-1, 1, 1)),
]


@pytest.fixture(scope="module")
def vm():
    return relax.VirtualMachine(weft.compile(script.from_source(SOURCE), target="llvm"), weft.cpu())


@pytest.mark.parametrize("case", CASES)
def test_as_numpy(vm, case):
    x = np.random.default_rng(0).standard_normal((4, 6, 5), np.float32)
    begin, end, strides = (np.array(v, "int64") for v in case)
    expected = x[tuple(slice(*map(int, v)) for v in zip(begin, end, strides, strict=True))]
    y, w = vm["main"](x, begin, end, strides)
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(w.numpy(), expected + expected)


def test_empty_inputs_and_strides_of_zero(vm):
    bounds = [np.zeros(3, "int64"), np.full(3, 9, "int64"), np.ones(3, "int64")]
    assert vm["main"](np.zeros((0, 2, 5), "float32"), *bounds)[0].shape == (0, 2, 5)
    assert vm["main"](np.zeros((3, 2, 5), "float32"), *bounds[:2], np.array([1, 0, 1]))[0].shape == (3, 0, 5)


def test_wrong_uses():
    for old, new, message in [
        ('begin: R.Tensor((3,), "int64")', 'begin: R.Tensor((3,), "int32")', "begin has one int64 for each axis"),
        ('end: R.Tensor((3,), "int64")', 'end: R.Tensor((2,), "int64")', "end has one int64 for each axis"),
        ('x: R.Tensor(("n", "m", 5), "float32")', 'x: R.Tensor(ndim=3, dtype="float32")', "shape of x is not known"),
    ]:
        assert old in SOURCE
        with pytest.raises(error.WeftError, match=message):
            weft.compile(script.from_source(SOURCE.replace(old, new)), target="llvm")


def test_text():
    mod = script.from_source(SOURCE)
    assert "R.dynamic_strided_slice(x, begin, end, strides)" in mod.script()
    weft.ir.assert_structural_equal(script.from_source(mod.script(show_meta=True)), mod, map_free_vars=True)
