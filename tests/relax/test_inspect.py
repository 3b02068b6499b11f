"""``relax.inspect``: what tensors say of themselves when the program runs."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, relax, script

CODES = {"int32": (0, 32, 1), "uint8": (1, 8, 1), "float32": (2, 32, 1), "float16": (2, 16, 1)}


def asked(name, value, *axis, exec_mode="bytecode"):
    """What the operator says of a tensor of which nothing is known."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(None, ""))
    axes = [relax.Var("axis", relax.PrimType("int64"))] if axis else []
    with builder.function("main", [x, *axes]):
        builder.emit_func_output(builder.emit(getattr(relax.op.inspect, name)(x, *axes)))
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm", exec_mode=exec_mode), weft.cpu())
    return vm["main"](value, *axis)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("dtype", CODES)
def test_the_type(dtype, exec_mode):
    x = weft.runtime.tensor(np.zeros((2, 3), dtype))
    found = [asked(f"tensor_dtype_{f}", x, exec_mode=exec_mode) for f in ("code", "bits", "lanes")]
    assert tuple(found) == CODES[dtype]


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 3, 4)])
def test_dimensions_and_strides(shape):
    x = weft.runtime.tensor(np.zeros(shape, "float32"))
    assert asked("tensor_ndim", x) == len(shape)
    for i, d in enumerate(shape):
        assert asked("tensor_shape_i", x, i) == d
        assert asked("tensor_stride_i", x, i) == np.prod(shape[i + 1 :], dtype=int)
    for axis in (-1, len(shape)):
        refuses(Exception, "the axis is not below", asked, "tensor_shape_i", x, axis)


def test_offsets():
    whole = weft.runtime.tensor(np.arange(32, dtype="float32"))
    part = whole._create_view((4,), relative_byte_offset=64)
    assert (asked("tensor_byte_offset", part), asked("tensor_elem_offset", part)) in ((64, 16), (0, 0))
    assert asked("tensor_byte_offset", whole) == asked("tensor_elem_offset", whole) == 0


def test_attributes_in_programs():
    mod = script.from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor, i: R.Prim("int64")):
        bits, size = x.dtype.bits, x.shape[1]
        return (x.dtype.type_code, bits, x.dtype.lanes, x.ndim, x.shape[i], size, x.strides[0], x.elem_offset)
""")
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())
    assert [int(n) for n in vm["main"](np.zeros((4, 3), "float32"), 0)] == [2, 32, 1, 2, 4, 3, 3, 0]


def test_refusals():
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        refuses(error.IndexOutOfRange, "no such axis", bb.emit, relax.op.inspect.tensor_shape_i(x, 2))
        with pytest.raises(error.TypeInferenceError, match="expected a tensor"):
            bb.emit(relax.op.inspect.tensor_ndim(relax.PrimValue(ir.const(1, "int64"))))
        bb.emit_func_output(x)
