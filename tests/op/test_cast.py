"""Conversions of constants are those of kernels, also of numbers that the type does not have."""

import numpy as np
import pytest

import weft
from weft import relax

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
