"""Groups that differ in numbers alone share a kernel, and each gets its own numbers."""

import numpy as np
import pytest

from weft import ir, relax, runtime
from weft.relax import op
from weft.relax.pipeline import graph_passes
from weft.script import relax as R
from weft.target import Target
from weft.tir import PrimFunc

TARGET = Target("llvm")


def program(layer, numbers):
    """Layers one after another, each with numbers of its own with a sum between them that nothing is fused with."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((ir.SizeVar("n", "int64"), 6), "float32"))
    with bb.function("main", [x]), bb.dataflow():
        value = x
        for given in numbers:
            value = bb.emit(op.cumsum(layer(bb, value, *given), axis=-1))
        bb.emit_func_output(bb.emit_output(value))
    return bb.get()


def kernels(mod):
    lowered = ir.Sequential(graph_passes(TARGET))(mod)
    return [f for v, f in lowered.items() if isinstance(f, PrimFunc) and v.name_hint != "cumsum"]


def quantised(bb, value, scale, zero):
    scale, zero = relax.const(scale, "float32"), relax.const(zero, "uint8")
    return bb.emit(op.dequantize(bb.emit(op.quantize(value, scale, zero)), scale, zero))


def scaled(bb, value, by, more):
    return bb.emit(op.add(bb.emit(op.multiply(value, relax.const(by, "float32"))), relax.const(more, "float32")))


def raised(bb, value, exponent):
    return bb.emit(op.negative(bb.emit(op.power(value, relax.const(exponent, "float32")))))


def shifted(bb, value, by):
    whole = bb.emit(op.astype(bb.emit(op.multiply(value, relax.const(8.0, "float32"))), "int32"))
    return bb.emit(op.astype(bb.emit(op.floor_divide(whole, relax.const(by, "int32"))), "float32"))


@pytest.mark.parametrize(
    ("layer", "numbers", "count"),
    [
        (quantised, [(0.01, 3), (0.02, 0), (0.01, 7), (0.013, 3)], 1),
        (scaled, [(2.0, 1.0), (3.0, 1.0), (0.5, 1.0)], 1),
        (scaled, [(2.0, 2.0), (3.0, 3.0), (0.5, 0.25)], 1),
        (raised, [(2.0,), (3.0,)], 2),  # how a power is computed hangs on its exponent
        (shifted, [(2,), (3,)], 2),
    ],
)
def test_layers_share_a_kernel(layer, numbers, count):
    mod = program(layer, numbers)
    assert len(kernels(mod)) == count
    data = np.random.default_rng(0).random((5, 6), np.float32)
    got = relax.VirtualMachine(relax.build(mod, TARGET), runtime.cpu())["main"](runtime.tensor(data)).numpy()
    expected = runtime.tensor(data)
    for given in numbers:  # each layer as a program of its own, whose numbers are in its kernel
        single = relax.build(program(layer, [given]), TARGET)
        expected = relax.VirtualMachine(single, runtime.cpu())["main"](expected)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("numbers", "taken"), [([(2, 2), (3, 3)], 1), ([(2, 1), (3, 1)], 1), ([(2, 1), (3, 2)], 2)])
def test_kernels_take_the_numbers_that_differ(numbers, taken):
    (kernel,) = kernels(program(scaled, numbers))
    assert len(kernel.params) == 2 + taken  # besides data and result
