"""Every code of the 8-bit floats, and rounding to them, against ml_dtypes."""

import numpy as np
import pytest

import weft
from weft.relax import BlockBuilder, Var, op
from weft.tir.float8 import FLOAT8


def converter(source: str, target: str) -> object:
    bb, x = BlockBuilder(), Var("x", weft.ir.tensor_type((weft.tir.Var("n", "int64"),), source))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.astype(x, target))
        bb.emit_func_output(y)
    return weft.relax.VirtualMachine(weft.compile(bb.get(), target="llvm"), weft.cpu())["main"]


@pytest.mark.parametrize("dtype", list(FLOAT8))
def test_every_code(dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(weft.ir.numpy_dtype(dtype))
    got = converter(dtype, "float32")(codes).numpy()
    np.testing.assert_array_equal(got, codes.astype(np.float32))
    numbers = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(codes.astype(np.float32)[numbers]))


@pytest.mark.parametrize("dtype", list(FLOAT8))
def test_rounding(dtype: str) -> None:
    exact = np.sort(np.unique(np.arange(256, dtype=np.uint8).view(weft.ir.numpy_dtype(dtype)).astype(np.float32)))
    exact = exact[np.isfinite(exact)]
    middles = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(s * np.inf)) for s in (-1, 1)]
    rng = np.random.default_rng(1)
    spread = (rng.standard_normal(20000) * 10.0 ** rng.uniform(-8, 8, 20000)).astype(np.float32)
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, 240, 248, 61440, 57344, 3e38, 1e-40], np.float32
    )
    x = np.concatenate([exact, middles, *near, spread, special])
    with np.errstate(all="ignore"):
        expected = x.astype(weft.ir.numpy_dtype(dtype))
    got = converter("float32", dtype)(x).numpy()
    same = (got.view(np.uint8) == expected.view(np.uint8)) | (
        np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    )
    assert same.all(), list(zip(x[~same][:5], got[~same][:5], expected[~same][:5], strict=True))
