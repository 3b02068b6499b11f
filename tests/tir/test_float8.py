"""Every code of the 8-bit floats, and rounding to them, against ml_dtypes."""

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import error, relax, tir
from weft.script import from_source
from weft.tir.float8 import FLOAT8


def converter(source: str, target: str) -> object:
    mod = model(lambda x: relax.op.astype(x, target), ("n",), dtype=source)
    return weft.relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"]


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


@pytest.mark.parametrize("dtype", list(FLOAT8))
def test_programs_compute_and_round(dtype: str) -> None:
    func = from_source(f"""@T.prim_func
def f(A: T.Buffer((256,), "{dtype}"), B: T.Buffer((256,), "{dtype}"), C: T.Buffer((256,), "float32"),
      D: T.Buffer((256,), "{dtype}"), E: T.Buffer((256,), "bool")):
    for i in range(256):
        kept = T.alloc_buffer((1,), "{dtype}")
        kept[0] = T.Cast("{dtype}", C[i] * T.float32(3))
        D[i] = A[i] * B[i] + kept[0] - T.{dtype}(1.5)
        C[i] = T.Cast("float32", A[i])
        E[i] = A[i] < B[i]
""")
    kind, rng = weft.ir.numpy_dtype(dtype), np.random.default_rng(0)
    a, c = np.arange(256, dtype=np.uint8).view(kind), (rng.normal(size=256) * 20).astype("float32")
    b = rng.permutation(a.view(np.uint8)).view(kind)
    with np.errstate(all="ignore"):
        total = a * b + (c * np.float32(3)).astype(kind) - kind.type(1.5)
    expected = [x.astype("float32") for x in (a, total, a.astype("float32") < b.astype("float32"))]
    for run in (weft.build(func, target="llvm")["f"], lambda *args: tir.interpret(func, *args)):
        found = [c.copy(), np.zeros(256, kind), np.zeros(256, bool)]
        run(a, b, *found)
        np.testing.assert_array_equal([x.astype("float32") for x in found], expected)


def test_vectors_of_them_are_refused() -> None:
    with pytest.raises(error.LoweringError, match="one by one"):
        weft.build(
            from_source("""@T.prim_func
def f(A: T.Buffer((8,), "float8_e5m2"), C: T.Buffer((8,), "float32")):
    C[T.Ramp(0, 1, 4)] = T.Cast("float32x4", A[T.Ramp(0, 1, 4)])"""),
            target="llvm",
        )
