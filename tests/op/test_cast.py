"""Conversions of constants are those of kernels, also of numbers that the type does not have; what has no result."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, relax
from weft.op import get_op_def

ODD = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**63, -(2.0**63), 2.0**31, -129.5, -0.7, 1.9, 255.5]


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_folded_and_computed(source, target):
    with np.errstate(over="ignore"):
        values = np.array(ODD).astype(weft.ir.numpy_dtype(source))
    low, high = np.iinfo(target).min, np.iinfo(target).max
    wanted = [0 if np.isnan(v) else high if v >= high else low if v <= low else int(v) for v in values.astype(float)]
    found = []
    for given in ((), (weft.runtime.tensor(values),)):
        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((len(ODD),), source))
        with bb.function("main", [x] if given else []):
            bb.emit_func_output(bb.emit(relax.op.astype(x if given else relax.const(values), target)))
        machine = relax.VirtualMachine(weft.compile(bb.get()), weft.cpu())
        found.append(machine["main"](*given).numpy().tolist())
    assert found == [wanted, wanted]


@pytest.mark.parametrize("name", "subtract negative sign divide floor_divide floor_mod fmod mod left_shift".split())
def test_arithmetic_of_bools(name):
    """NumPy refuses it, or answers with another type."""
    x = ir.ExprVar("x", ir.tensor_type((3,), "bool"))
    refuses(error.DTypeMismatch, f"{name}.*\n.*found bool", get_op_def(name).infer, *[x] * len(get_op_def(name).inputs))
