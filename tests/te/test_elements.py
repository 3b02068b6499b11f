"""Elements of tensors are scalar expressions: operators, TIR's own nodes, and indices that are elements."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir

RNG = np.random.default_rng(17)
A = te.placeholder((16,), "int32", name="A")
B = te.placeholder((16,), "int32", name="B")
P = te.placeholder((16,), "bool", name="P")


def run(out, *arrays, target="llvm"):
    found = np.zeros([int(d) for d in out.shape], str(out.dtype))
    weft.build(te.create_schedule(out.op), [*out.op.input_tensors, out], target=target)(*arrays, found)
    return found


X, Y = RNG.integers(-20, 20, (2, 16)).astype("int32")
Y[3], Y[5] = X[3], X[5]

CASES = {
    "equal": (lambda i: A[i] == B[i], X == Y),
    "not equal": (lambda i: A[i] != B[i], X != Y),
    "less": (lambda i: A[i] < B[i], X < Y),
    "at least": (lambda i: A[i] >= B[i], X >= Y),
    "minus": (lambda i: -A[i] - B[i], -X - Y),
    "and": (lambda i: A[i] & B[i], X & Y),
    "or": (lambda i: A[i] | 5 | B[i], X | 5 | Y),
    "xor": (lambda i: A[i] ^ B[i], X ^ Y),
    "inverse": (lambda i: ~A[i] ^ B[i], ~X ^ Y),
    "shifts": (lambda i: (A[i] << 2) + (B[i] >> 1), (X << 2) + (Y >> 1)),
    "nodes": (
        lambda i: tir.Select(tir.LT(A[i], B[i]), A[i], tir.Max(A[i], B[i])),
        np.where(X < Y, X, np.maximum(X, Y)),
    ),
    "cast": (lambda i: tir.Cast("float32", A[i]) * 0.5 + tir.Cast("float32", B[i]), X * np.float32(0.5) + Y),
    "logic": (lambda i: tir.And(A[i] > 0, tir.Not(B[i] > 0)), (X > 0) & ~(Y > 0)),
    "let": (lambda i: tir.Let(v := tir.Var("v", "int32"), A[i] * B[i], v + v), 2 * X * Y),
    "call": (lambda i: te.abs(A[i]) + te.truncmod(B[i], 7), np.abs(X) + np.fmod(Y, 7)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_operators(name, target):
    body, want = CASES[name]
    np.testing.assert_array_equal(run(te.compute((16,), body, name="C"), X, Y, target=target), want)


def test_a_bool_by_itself():
    chosen = RNG.integers(0, 2, 16).astype(bool)
    found = run(te.compute((16,), lambda i: tir.Select(P[i], A[i], -A[i])), chosen, X)
    np.testing.assert_array_equal(found, np.where(chosen, X, -X))
    np.testing.assert_array_equal(run(te.compute((16,), lambda i: tir.Not(P[i])), chosen), ~chosen)


def test_what_is_left_to_index():
    m = te.placeholder((4, 5), name="M")
    row = m[1]
    assert isinstance(row, te.TensorSlice) and isinstance(row[2], ir.PrimExpr) and isinstance(m[1, 2], ir.PrimExpr)
    assert row.dtype == row[2].dtype == "float32"
    refuses(error.InvalidArgument, "another number of indices", row.asobject)
    refuses(error.InvalidArgument, "another number of indices", lambda: m[1][2, 3])
    one = te.placeholder((), name="one")
    assert isinstance(one[()], ir.PrimExpr) and isinstance(one(), ir.PrimExpr)
    values = RNG.random((4, 5), "float32")
    np.testing.assert_array_equal(run(te.compute((5, 4), lambda i, j: m[j][i]), values), values.T)


@pytest.mark.parametrize("scope", ["local", "global"])
def test_rows_by_number(scope):
    """A copy of what an index tensor names is as large as one row, and starts where the element says."""
    table, rows = te.placeholder((10, 3), name="T"), te.placeholder((4,), "int32", name="R")
    out = te.compute((4, 3), lambda i, j: table[rows[i], j] * 2.0, name="O")
    s = te.create_schedule(out.op)
    s[s.cache_read(table, scope, [out])].compute_at(s[out], out.op.axis[0])
    values, at, found = RNG.random((10, 3), "float32"), np.array([3, 1, 9, 0], "int32"), np.zeros((4, 3), "float32")
    weft.build(s, [table, rows, out], target="llvm")(values, at, found)
    np.testing.assert_array_equal(found, 2 * values[at])


def test_the_entry_of_a_module_by_name():
    out = te.compute((16,), lambda i: A[i] + 1)
    module = weft.build(te.create_schedule(out.op), [A, out], target="llvm", name="increment")
    assert module.entry_name == "increment"
    found = np.zeros(16, "int32")
    module[module.entry_name](X, found)
    np.testing.assert_array_equal(found, X + 1)
