"""Scalarize: no vectors are left, and the values are the same; target c takes what was lowered with vectors."""

import shutil

import numpy as np
import pytest

import weft
from weft import error, script, te, tir
from weft.ir import DataType, PrimExpr, walk
from weft.tir.transform import scalarize

RNG = np.random.default_rng(3)


def lanes(func):
    return {DataType(n.dtype).lanes for n in walk(func.body) if isinstance(n, PrimExpr) and n.dtype != "handle"}


def parsed(text, params='A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")'):
    body = "\n".join("    " + line for line in text.strip("\n").splitlines())
    return script.from_source(f"@T.prim_func\ndef main({params}):\n{body}")


def check(func, *inputs, size=32):
    """Interpret a function with vectors and without; return the output."""
    out, same = np.zeros(size, "float32"), np.zeros(size, "float32")
    tir.interpret(func, *inputs, out)
    plain = scalarize()(func)["main"]
    assert max(lanes(func)) > 1 and lanes(plain) == {1}
    tir.interpret(plain, *inputs, same)
    np.testing.assert_allclose(same, out, rtol=1e-6)
    return out


@pytest.mark.parametrize("n", [1, 8, 29, 64])
def test_schedules_with_vectors(n):
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: te.if_then_else(a[i] > 0.5, te.exp(a[i]), b[n - 1 - i] * 2.0), name="C")
    s = te.create_schedule(c.op)
    s[c].vectorize(s[c].split(c.op.axis[0], factor=8)[1])
    x, y = RNG.random(n, "float32"), RNG.random(n, "float32")
    lowered = weft.lower(s, [a, b, c], name="main")
    want = np.where(x > 0.5, np.exp(x), 2 * y[::-1])
    np.testing.assert_allclose(check(lowered["main"], x, y, size=n), want, rtol=1e-5)
    if any(map(shutil.which, ("cc", "gcc", "clang"))):
        for made in (lowered, s):
            out = np.zeros(n, "float32")
            weft.build(made, [a, b, c], target="c")(x, y, out)
            np.testing.assert_allclose(out, want, rtol=1e-5)


def test_a_value_is_read_before_it_is_stored():
    func = parsed("""
for i in range(32):
    B[i] = A[i]
B[T.Ramp(1, 1, 8)] = B[T.Ramp(0, 1, 8)]
""")
    x = RNG.random(32, "float32")
    want = x.copy()
    want[1:9] = x[:8]
    np.testing.assert_array_equal(check(func, x), want)


def test_bound_vectors_keep_their_values():
    load = tir.BufferLoad
    a, b = tir.decl_buffer((32,), "float32", "A"), tir.decl_buffer((32,), "float32", "B")
    ramp = lambda base: tir.Ramp(tir.const(base, "int32"), tir.const(1, "int32"), 8)  # noqa: E731
    v = tir.Var("v", "float32x8")
    body = tir.seq(
        tir.BufferStore(b, load(a, (ramp(0),)), (ramp(0),)),
        tir.LetStmt(
            v,
            load(b, (ramp(0),)),
            tir.seq(
                tir.BufferStore(b, load(a, (ramp(8),)), (ramp(0),)),
                tir.BufferStore(b, v + load(b, (ramp(0),)), (ramp(8),)),
            ),
        ),
    )
    pa, pb = tir.Var("pa", "handle"), tir.Var("pb", "handle")
    made = tir.PrimFunc((pa, pb), body, None, ((pa, a), (pb, b)))
    x = RNG.random(32, "float32")
    out = check(made.with_attr("global_symbol", "main"), x)
    np.testing.assert_allclose(out[8:16], x[:8] + x[8:16], rtol=1e-6)
    np.testing.assert_array_equal(out[:8], x[8:16])


def test_lanes_picked_by_number():
    a, b = tir.decl_buffer((32,), "float32", "A"), tir.decl_buffer((32,), "float32", "B")
    ramp = lambda base: tir.Ramp(tir.const(base, "int32"), tir.const(2, "int32"), 4)  # noqa: E731
    both = [tir.BufferLoad(a, (ramp(0),)), tir.BufferLoad(a, (ramp(1),))]
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    mixed = tir.Shuffle(tuple(both), tuple(tir.const(i, "int32") for i in order))
    store = tir.BufferStore(b, mixed, (tir.Ramp(tir.const(0, "int32"), tir.const(1, "int32"), 8),))
    pa, pb = tir.Var("pa", "handle"), tir.Var("pb", "handle")
    func = tir.PrimFunc((pa, pb), store, None, ((pa, a), (pb, b))).with_attr("global_symbol", "main")
    x = RNG.random(32, "float32")
    np.testing.assert_array_equal(check(func, x)[:8], x[:8])


def test_vectors_without_a_scalar_form():
    func = parsed('B[T.Ramp(0, 1, 8)] = T.call_extern("float32x8", "g", A[T.Ramp(0, 1, 8)])')
    with pytest.raises(error.LoweringError, match="no scalar form"):
        scalarize()(func)


def test_scalar_code_is_left_alone():
    func = parsed("for i in range(32):\n    B[i] = A[i]")
    assert scalarize()(func)["main"] is func
