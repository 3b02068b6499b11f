"""Tiles that turn in registers: the network of shuffles, and transposes of all types, odd sizes and guards."""

import numpy as np
import pytest

from weft import ir, te
from weft.target import Target, build, get_source
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule
from weft.tir.transform.transpose_tiles import transpose_network


@pytest.mark.parametrize(("n", "unit"), [(2, 4), (4, 4), (8, 4), (8, 2), (16, 4), (16, 8), (16, 16), (32, 8)])
def test_network_transposes(n, unit):
    values = {}
    rows = []
    for i in range(n):
        rows.append(ir.Var(f"r{i}", f"float32x{n}"))
        values[rows[-1]] = np.arange(n) + i * n

    def bound(value):
        assert isinstance(value, ir.Shuffle)
        both = np.concatenate([values[v] for v in value.vectors])
        var = ir.Var("t", value.dtype)
        values[var] = both[[ir.as_int(i) for i in value.indices]]
        return var

    result = transpose_network(rows, unit, bound)
    expected = np.arange(n * n).reshape(n, n).T
    np.testing.assert_array_equal([values[v] for v in result], expected)


def transposed(shape, perm, dtype, fn=lambda v: v, target="llvm"):
    x = te.placeholder(shape, dtype, name="x")
    out = [shape[p] for p in perm]

    def element(*i):
        at = [None] * len(i)
        for position, p in zip(i, perm, strict=True):
            at[p] = position
        return fn(x(*at))

    return default_schedule(te.create_prim_func([x, te.compute(out, element, name="y")]), Target(target))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(16, 16), (64, 32), (33, 17), (5, 100), (100, 5), (1, 40), (129, 131), (0, 7)])
def test_matrices(shape, dtype):
    kernel = build(transposed(shape, (1, 0), dtype), Target("llvm"))["main"]
    rng = np.random.default_rng(1)
    x = (rng.integers(0, 2, shape) if dtype == "bool" else rng.integers(-100, 100, shape)).astype(dtype)
    y = np.zeros(shape[::-1], dtype)
    kernel(x, y)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((3, 20, 30), (0, 2, 1)),
        ((3, 20, 30), (2, 1, 0)),
        ((2, 17, 5, 33), (0, 3, 1, 2)),
        ((2, 5, 33, 17), (0, 2, 3, 1)),
    ],
)
def test_permutations(shape, perm):
    kernel = build(transposed(shape, perm, "float32"), Target("llvm"))["main"]
    x = np.random.default_rng(2).standard_normal(shape, np.float32)
    y = np.zeros([shape[p] for p in perm], np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, x.transpose(perm))


def test_symbolic_sizes_and_a_sum_with_the_transposed():
    n, m = te.size_var("n", "int64"), te.size_var("m", "int64")
    x, z = te.placeholder((n, m), name="x"), te.placeholder((m, n), name="z")
    y = te.compute((m, n), lambda i, j: x[j, i] * 2.0 + z[i, j], name="y")
    target = Target("llvm")
    func = default_schedule(te.create_prim_func([x, z, y]), target)
    assert "Shuffle" in str(lower(func, target))
    kernel = build(func, target)["main"]
    rng = np.random.default_rng(3)
    for a, b in ((1, 1), (15, 17), (16, 16), (40, 33), (0, 5), (64, 100)):
        p, q = rng.standard_normal((a, b), np.float32), rng.standard_normal((b, a), np.float32)
        out = np.zeros((b, a), np.float32)
        kernel(p, q, out)
        np.testing.assert_allclose(out, p.T * 2 + q, rtol=1e-6)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("cpu", ["x86-64-v4", "haswell"])
def test_no_gathers_are_left(cpu):
    target = f"llvm -mcpu={cpu} -mtriple=x86_64-unknown-linux-gnu"
    assembly = get_source(transposed((100, 77), (1, 0), "float32", target=target), Target(target), "asm")
    assert "gather" not in assembly
    assert "unpcklps" in assembly or "vshufps" in assembly or "vpermt2ps" in assembly
