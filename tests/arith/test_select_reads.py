"""Both sides of a select are evaluated: what its condition says is no reason to read elsewhere."""

import numpy as np

import weft
from weft import arith, ir, te, tir


def test_a_read_keeps_the_guard_of_its_index():
    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    guarded = tir.BufferLoad(tir.decl_buffer((n,), "int32", "A"), (tir.min(i + 3, n - 1),))
    an = arith.Analyzer()
    inside = i + 4 <= n
    assert ir.structural_equal(an.simplify(tir.min(i + 3, n - 1)), tir.min(i + 3, n - 1))
    kept = an.simplify(tir.Select(inside, guarded, tir.const(0, "int32")))
    assert any(isinstance(x, tir.Min) for x in ir.walk(kept))
    other = an.simplify(tir.Select(tir.Not(inside), tir.const(0, "int32"), guarded))
    assert any(isinstance(x, tir.Min) for x in ir.walk(other))
    # A side that is evaluated where the condition holds may use it.
    free = an.simplify(tir.if_then_else(inside, guarded, tir.const(0, "int32")))
    assert not any(isinstance(x, tir.Min) for x in ir.walk(free))
    # And so may numbers, which can be computed anywhere.
    number = an.simplify(tir.Select(inside, tir.min(i + 3, n - 1), tir.const(0, "int64")))
    assert not any(isinstance(x, tir.Min) for x in ir.walk(number))


def test_kernels_do_not_read_past_the_end():
    n = te.var("n", "int64")
    a = te.placeholder((n,), "int32", name="A")
    out = te.compute((n,), lambda i: tir.Select(i + 4 <= n, a[tir.min(i + 3, n - 1)], 0), name="out")
    with ir.PassContext(config={"tir.instrument_bound_checkers": True}):
        f = weft.build(te.create_prim_func([a, out]), target="llvm")
    x = np.arange(6, dtype="int32")
    y = weft.runtime.empty((6,), "int32")
    f["main"](weft.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), [3, 4, 5, 0, 0, 0])
