"""Vectors of integers of up to 32 bits divide as one does: towards zero or down, by zero, at the ends of types."""

from __future__ import annotations

import numpy as np
import pytest

from weft import ir, target, te
from weft.tir.schedule import default_schedule

TARGET = target.Target("llvm")


def exact(kind: str, a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = a // b if kind.startswith("floor") else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if kind.endswith("div") else a - quotient * b


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
@pytest.mark.parametrize("operation", [ir.truncdiv, ir.truncmod, ir.floordiv, ir.floormod])
def test_quotients_and_remainders(operation, dtype):
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    ends = np.array([info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3, 7], dtype)
    drawn = rng.integers(info.min, info.max, 1000, dtype=dtype, endpoint=True)
    small = rng.integers(1, 100, 500).astype(dtype)
    x = np.concatenate([np.repeat(ends, 10), drawn, np.full(3, info.min)]).astype(dtype)
    y = np.concatenate([np.tile(ends, 10), drawn[:500][::-1], small, np.full(3, -1 if info.min else 1)]).astype(dtype)
    a, b = te.placeholder(x.shape, dtype, name="a"), te.placeholder(x.shape, dtype, name="b")
    func = default_schedule(te.create_prim_func([a, b, te.compute(x.shape, lambda i: operation(a[i], b[i]))]), TARGET)
    found = np.zeros(x.shape, dtype)
    target.build(func, TARGET)["main"](x, y, found)
    whole = [exact(operation.__name__, int(p), int(q)) for p, q in zip(x, y, strict=True)]
    expected = [(n - int(info.min)) % (1 << info.bits) + int(info.min) for n in whole]
    np.testing.assert_array_equal(found, np.array(expected, dtype))
    assert "fdiv <" in target.get_source(func, TARGET)
