"""Narrow floats that are computed in a wider type, and stored as bits, have the values that they had."""

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import ir, target, tir
from weft.script import tir as T


def program(dtype, n):
    @T.prim_func
    def f(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype), C: T.Buffer((n,), dtype)):
        kept = T.alloc_buffer((n,), dtype)
        for i in range(n):
            kept[i] = A[i] * B[i] + T.Cast(dtype, T.float32(0.5))
        for i in range(n):
            C[i] = T.Select(A[i] < B[i], T.max(kept[i], B[i]), kept[i] - A[i])

    return ir.IRModule({"main": f.with_attr("global_symbol", "main")})


def values(dtype, n):
    info = ml_dtypes.finfo(dtype)
    every = np.arange(1 << min(info.bits, 12), dtype=f"uint{info.bits}") << max(info.bits - 12, 0)
    every = every.astype(f"uint{info.bits}").view(dtype)
    return np.resize(every[np.isfinite(every.astype("float32"))], n)


CASES = [
    ("bfloat16", tir.transform.BF16ComputeLegalize(), tir.transform.BF16StorageLegalize(), "float32"),
    ("float8_e4m3fn", tir.transform.FP8ComputeLegalize("float32"), tir.transform.FP8StorageLegalize(), "float32"),
    ("float8_e5m2", tir.transform.FP8ComputeLegalize(), tir.transform.FP8StorageLegalize(), "float16"),
]


@pytest.mark.parametrize("n", [0, 1, 4097])
@pytest.mark.parametrize(("dtype", "compute", "storage", "wide"), CASES)
def test_a_legalized_program_computes_in_the_wide_type_and_stores_bits(dtype, compute, storage, wide, n):
    kind = np.dtype(getattr(ml_dtypes, dtype))
    a = values(kind, n)
    b = np.roll(a, 7)
    wide_a, wide_b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        kept = wide_a * wide_b + np.asarray(0.5, wide)
        expected = np.where(wide_a < wide_b, np.maximum(kept, wide_b), kept - wide_a).astype(kind)
    computed = compute(program(dtype, n))
    stored = storage(computed)
    assert compute(computed)["main"] is computed["main"]
    bits = f"uint{8 * kind.itemsize}"
    assert not any(b.dtype == dtype for _, b in stored["main"].buffer_map)
    for mod, view in ((computed, kind), (stored, np.dtype(bits))):
        out = weft.runtime.tensor(np.zeros(n, view))
        weft.build(mod, target="llvm")["main"](*(weft.runtime.tensor(x.view(view)) for x in (a, b)), out)
        got = out.numpy().view(kind).astype("float32")
        sure = np.isfinite(expected.astype("float32"))  # what overflows is infinity or a NaN, by the conversion
        np.testing.assert_array_equal(got[sure], expected.astype("float32")[sure])


def test_what_is_called_and_what_it_points_to_keep_their_types():
    @T.prim_func
    def f(A: T.Buffer((4,), "bfloat16"), B: T.Buffer((4,), "bfloat16")):
        seen = T.alloc_buffer((4,), "bfloat16")
        T.evaluate(T.call_extern("int32", "fill", seen.data))
        for i in range(4):
            B[i] = T.call_pure_extern("bfloat16", "g", A[i] + seen[i])

    body = tir.transform.BF16ComputeLegalize()(ir.IRModule({"f": f}))["f"]
    calls = [n for n in weft.ir.walk(body) if isinstance(n, weft.tir.Call) and n.op.name == "tir.call_pure_extern"]
    assert [(c.dtype, c.args[1].dtype) for c in calls] == [("bfloat16", "bfloat16")]
    assert [n.buffer.dtype for n in weft.ir.walk(body) if isinstance(n, weft.tir.AllocBuffer)] == ["bfloat16"]


def test_a_device_that_computes_in_the_type_keeps_the_program():
    for arch, same in (("sm_75", False), ("sm_86", True)):
        mod = tir.transform.BindTarget(target.Target({"kind": "cuda", "arch": arch}))(program("bfloat16", 4))
        assert (tir.transform.BF16ComputeLegalize()(mod)["main"] is mod["main"]) is same
