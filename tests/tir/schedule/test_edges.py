"""Rules on the edges: empty tensors, scalars, other data types, products that are not matrices, conditions, several
anchors.
"""

import numpy as np
import pytest

from tests.tir.schedule.test_rules import compare, packed_gemm, rand, softmax
from weft import lower, te, tir, topi


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def size(name):
    return te.size_var(name, "int64")


def sum_of(shape, value, axes, a, b, *arrays):
    """Compare a sum of products given as a function of output and reduction indices."""
    c = te.compute(shape, lambda *i: te.sum(value(*i), axis=axes), name="C")
    compare(te.create_prim_func([a, b, c]), *arrays, zeros(*shape))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (), (1,)])
def test_elementwise(shape):
    x = te.placeholder(shape, name="X")
    y = te.compute(shape, lambda *i: x(*i) * 2.0, name="Y")
    compare(te.create_prim_func([x, y]), rand(*shape), zeros(*shape))


def test_empty_rows_and_columns():
    compare(packed_gemm(0, 40, 16, 32), rand(0, 16), rand(2, 16, 32), rand(40), zeros(0, 40))
    compare(packed_gemm(size("n"), 40, 16, 32), rand(0, 16), rand(2, 16, 32), rand(40), zeros(0, 40))
    compare(softmax(0, 7), rand(0, 7), zeros(0, 7))
    compare(softmax(3, 0), rand(3, 0), zeros(3, 0))
    compare(softmax(size("n"), size("k")), rand(0, 7), zeros(0, 7))


@pytest.mark.parametrize("n", [37, "n"])
def test_sum_of_everything(n):
    n = size(n) if isinstance(n, str) else n
    x, r = te.placeholder((n,), name="X"), te.reduce_axis((0, n), "r")
    y = te.compute((), lambda: te.sum(x[r], axis=r), name="Y")
    compare(te.create_prim_func([x, y]), rand(37), zeros())


@pytest.mark.parametrize(
    ("dtype", "acc"), [("int8", "int32"), ("float64", "float64"), ("int64", "int64"), ("float16", "float32")]
)
def test_products_of_other_types(dtype, acc):
    a, w = te.placeholder((9, 20), dtype, name="A"), te.placeholder((2, 20, 32), dtype, name="W")
    r = te.reduce_axis((0, 20), "r")
    c = te.compute(
        (9, 40), lambda i, j: te.sum(tir.Cast(acc, a(i, r)) * tir.Cast(acc, w(j // 32, r, j % 32)), axis=r), name="C"
    )
    rng = np.random.default_rng(0)
    arrays = rng.integers(-5, 5, (9, 20)).astype(dtype), rng.integers(-5, 5, (2, 20, 32)).astype(dtype)
    compare(te.create_prim_func([a, w, c]), *arrays, zeros(9, 40, dtype=acc))


def test_bools_and_casts():
    x, z = te.placeholder((5, 33), name="X"), te.placeholder((5, 33), "bool", name="Z")
    y = te.compute((5, 33), lambda i, j: x(i, j) > 0.0, name="Y")
    compare(te.create_prim_func([x, y]), rand(5, 33), zeros(5, 33, dtype=bool))
    w = te.compute((5, 33), lambda i, j: tir.Select(z(i, j), x(i, j), tir.const(0.0, "float32")), name="W")
    compare(te.create_prim_func([z, x, w]), rand(5, 33) > 0, rand(5, 33), zeros(5, 33))
    c = te.compute((5, 33), lambda i, j: tir.Cast("int64", x(i, j) * 10), name="C")
    compare(te.create_prim_func([x, c]), rand(5, 33), zeros(5, 33, dtype="int64"))


@pytest.mark.parametrize("kind", [te.sum, te.max])
def test_integer_rows(kind):
    x, r = te.placeholder((7, 19), "int64", name="X"), te.reduce_axis((0, 19), "r")
    y = te.compute((7,), lambda i: kind(x[i, r], axis=r), name="Y")
    compare(te.create_prim_func([x, y]), np.arange(133, dtype="int64").reshape(7, 19) - 60, zeros(7, dtype="int64"))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 50, 30), (6, 1, 30)])
def test_vector_times_matrix(shape, transposed):
    m, n, k = shape
    of_b = (n, k) if transposed else (k, n)
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder(of_b, name="B"), te.reduce_axis((0, k), "r")
    at = (lambda j: b[j, r]) if transposed else (lambda j: b[r, j])
    sum_of((m, n), lambda i, j: a[i, r] * at(j), r, a, b, rand(m, k), rand(*of_b))


def test_dot_products():
    a, b, r = te.placeholder((64,), name="A"), te.placeholder((64,), name="B"), te.reduce_axis((0, 64), "r")
    sum_of((), lambda: a[r] * b[r], r, a, b, rand(64), rand(64))
    a, b, r = te.placeholder((40, 30), name="A"), te.placeholder((30,), name="B"), te.reduce_axis((0, 30), "r")
    sum_of((40,), lambda i: a[i, r] * b[r], r, a, b, rand(40, 30), rand(30))


def test_einsums():
    a, b = te.placeholder((2, 3, 4, 5), name="A"), te.placeholder((2, 5, 3, 6), name="B")
    r = te.reduce_axis((0, 5), "r")
    sum_of((2, 4, 3, 6), lambda p, q, h, d: a[p, h, q, r] * b[p, r, h, d], r, a, b, rand(2, 3, 4, 5), rand(2, 5, 3, 6))
    r2 = te.reduce_axis((0, 3), "r2")
    sum_of(
        (2, 4, 6), lambda p, q, d: a[p, r2, q, r] * b[p, r, r2, d], [r, r2], a, b, rand(2, 3, 4, 5), rand(2, 5, 3, 6)
    )
    a, b, r = te.placeholder((2, 3, 9, 16), name="A"), te.placeholder((16, 33), name="B"), te.reduce_axis((0, 16), "r")
    sum_of((2, 3, 9, 33), lambda p, h, i, d: a[p, h, i, r] * b[r, d], r, a, b, rand(2, 3, 9, 16), rand(16, 33))


def test_argmax_of_symbolic_rows():
    x, r = te.placeholder((size("n"), 19), name="X"), te.reduce_axis((0, 19), "r")
    best = te.comm_reducer(
        lambda a, b: (tir.Select(a[1] >= b[1], a[0], b[0]), tir.Select(a[1] >= b[1], a[1], b[1])),
        lambda t0, t1: (tir.const(-1, t0), te.lowest(t1)),
    )
    o = te.compute((x.shape[0],), lambda i: best((r.var, x[i, r]), axis=r), name="arg")
    y = te.compute((x.shape[0],), lambda i: tir.Cast("int64", o[0](i)), name="Y")
    compare(te.create_prim_func([x, y]), rand(7, 19), zeros(7, dtype="int64"))


def test_conditions_in_sums():
    x, r = te.placeholder((4, 9), name="X"), te.reduce_axis((0, 9), "r")
    y = te.compute((4, 9), lambda i, j: te.sum(tir.if_then_else(r.var <= j, x[i, r], 0.0), axis=r), name="Y")
    compare(te.create_prim_func([x, y]), rand(4, 9), zeros(4, 9))
    y = te.compute((4,), lambda i: te.sum(x[i, r], axis=r, where=r.var < 5), name="Y")
    compare(te.create_prim_func([x, y]), rand(4, 9), zeros(4))


def test_two_products_and_a_norm():
    a, b, c = te.placeholder((9, 16), name="A"), te.placeholder((16, 33), name="B"), te.placeholder((33, 8), name="W")
    r, r2, r3 = te.reduce_axis((0, 16), "r"), te.reduce_axis((0, 33), "r2"), te.reduce_axis((0, 8), "r3")
    p = te.compute((9, 33), lambda i, d: te.sum(a[i, r] * b[r, d], axis=r), name="P")
    q = te.compute((9, 8), lambda i, d: te.sum(p[i, r2] * c[r2, d], axis=r2), name="Q")
    s = te.compute((9,), lambda i: te.sum(q[i, r3], axis=r3), name="S")
    y = te.compute((9, 8), lambda i, j: q[i, j] - s[i], name="Y")
    compare(te.create_prim_func([a, b, c, y]), rand(9, 16), rand(16, 33), rand(33, 8), zeros(9, 8), rtol=1e-4)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    "case",
    [
        (5, 4, 6, 2, 2, 0),
        (5, 4, 1, 2, 2, 0),
        (1, 4, 3, 2, 2, 0),
        (5, 3, 8, 3, 2, 1),
        (4, 2, 3, 4, 2, 1),
        (5, 3, 4, 3, 1, 1),
    ],
)
def test_transposed_convolution(case, static):
    h, ci, co, k, stride, pad = case
    n = h if static else size("h")
    x, w = te.placeholder((1, ci, n, n), name="X"), te.placeholder((ci, co, k, k), name="W")
    out = (n - 1) * stride - 2 * pad + k
    rc, rh, rw = te.reduce_axis((0, ci), "rc"), te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw")

    def element(b, o, i, j):
        p, q = i + pad - rh.var, j + pad - rw.var
        inside = tir.all(*(c for u in (p, q) for c in (u // stride >= 0, u // stride < n, (u % stride).equal(0))))
        value = tir.if_then_else(inside, x(b, rc.var, p // stride, q // stride), tir.const(0.0, "float32"))
        return te.sum(value * w(rc.var, o, rh.var, rw.var), axis=[rh, rw, rc])

    m = (h - 1) * stride - 2 * pad + k
    sch = compare(
        te.create_prim_func([x, w, te.compute((1, co, out, out), element, name="Y")]),
        rand(1, ci, h, h),
        rand(ci, co, k, k),
        zeros(1, co, m, m),
    )
    assert any("transform_layout" in line for line in sch.trace.as_python()) == (stride > 1)


@pytest.mark.parametrize("lengths", [(33, 7, 20), (0, 9, 0), (5, 0, 1)])
def test_joined_tensors_of_unknown_lengths_are_copied_part_by_part(lengths):
    n = size("n")
    parts = [te.placeholder((n, size(k)), name=k) for k in "abc"]
    func = te.create_prim_func([*parts, topi.concatenate(parts, axis=1)])
    sch = compare(func, *(rand(2, k) for k in lengths), zeros(2, sum(lengths)))
    assert "Select" not in str(lower(sch.mod))


@pytest.mark.parametrize("n", [3, 16])
def test_a_sum_that_reads_a_scalar_beside_rows(n):
    k, x, s = te.reduce_axis((0, 4), "k"), te.placeholder((200, n + 3), name="X"), te.placeholder((), name="S")
    y = te.compute((200, n), lambda i, j: te.sum(x[i, j + k] * s(), axis=k), name="Y")
    compare(te.create_prim_func([x, s, y]), rand(200, n + 3), rand(), zeros(200, n))
