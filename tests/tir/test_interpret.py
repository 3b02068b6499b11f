"""The interpreter against NumPy, and native code against the interpreter.

Unscheduled, scheduled and lowered forms agree.
"""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, te, tir
from weft.ir import SizeVar, floordiv, floormod, int64, structural_equal
from weft.target import Target, build
from weft.tir.pipeline import lower, lowering_passes
from weft.tir.schedule import default_schedule

RNG = np.random.default_rng(0)
N = SizeVar("n", "int64")


def matmul(m, n, k):
    a, b = te.placeholder((m, int64(k)), "float32", "a"), te.placeholder((int64(k), int64(n)), "float32", "b")
    r = te.reduce_axis((int64(0), int64(k)), "r")
    c = te.compute((m, int64(n)), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "c")
    d = te.compute(c.shape, lambda i, j: tir.max(c[i, j] + 1.0, 0.0), "d")
    return te.create_prim_func([a, b, d]), lambda x, y: np.maximum(x @ y + 1, 0)


def softmax(m, n):
    x = te.placeholder((m, int64(n)), "float32", "x")
    k = te.reduce_axis((int64(0), int64(n)), "k")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), "top")
    e = te.compute(x.shape, lambda i, j: tir.exp(x[i, j] - top[i]), "e")
    k2 = te.reduce_axis((int64(0), int64(n)), "k2")
    total = te.compute((m,), lambda i: te.sum(e[i, k2], axis=k2), "total")
    y = te.compute(x.shape, lambda i, j: e[i, j] / total[i], "y")

    def reference(v):
        z = np.exp(v - v.max(1, keepdims=True))
        return z / z.sum(1, keepdims=True)

    return te.create_prim_func([x, y]), reference


def transpose(m, n):
    x = te.placeholder((m, int64(n)), "float32", "x")
    return te.create_prim_func([x, te.compute((int64(n), m), lambda i, j: x[j, i] * 2.0, "y")]), lambda v: v.T * 2


def gather(m, n):
    x = te.placeholder((m, int64(n)), "int32", "x")
    y = te.compute(
        x.shape,
        lambda i, j: x[m - int64(1) - i, floormod(j * int64(3), int64(n))] // 3 + floordiv(j, int64(2)).astype("int32"),
        "y",
    )

    def reference(v):
        j = np.arange(n)
        return v[::-1][:, (j * 3) % n] // 3 + (j // 2).astype(np.int32)

    return te.create_prim_func([x, y]), reference


CASES = {
    "matmul": (lambda m: matmul(m, 19, 5), [(0, 5), (5, 19)], (0, 19)),
    "softmax": (lambda m: softmax(m, 21), [(0, 21)], (0, 21)),
    "transpose": (lambda m: transpose(m, 19), [(0, 19)], (19, 0)),
    "gather": (lambda m: gather(m, 13), [(0, 13)], (0, 13)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [0, 1, 5, 18])
@pytest.mark.parametrize("symbolic", [False, True])
def test_all_forms_agree(name, rows, symbolic):
    make, in_shapes, out_shape = CASES[name]
    func, reference = make(N if symbolic else int64(rows))
    dtype = np.int32 if name == "gather" else np.float32
    position = 0
    shapes = [tuple(rows if d == 0 and i == position else d for i, d in enumerate(s)) for s in in_shapes]
    if name == "matmul":
        shapes[1] = (5, 19)
    args = [(RNG.integers(-50, 50, s) if dtype is np.int32 else RNG.normal(size=s)).astype(dtype) for s in shapes]
    out_dims = tuple(rows if d == 0 else d for d in out_shape)
    expected = reference(*args) if rows else np.zeros(out_dims, dtype)
    target = Target("llvm")
    scheduled = default_schedule(func, target)
    forms = [func, scheduled]
    mod = tir.IRModule({"main": scheduled})
    for p in lowering_passes(target):
        mod = p(mod)
        if not structural_equal(mod["main"], forms[-1]):  # a pass with nothing to do leaves the form that was run
            forms.append(mod["main"])
    for form in forms:
        out = np.zeros(out_dims, dtype)
        tir.interpret(form, *args, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    for form in (func, scheduled):
        out = np.zeros(out_dims, dtype)
        build(form, target)["main"](*args, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_a_wrong_shape_is_an_error():
    func, _ = softmax(int64(4), 8)
    refuses(error.ShapeMismatch, "", tir.interpret, func, np.zeros((3, 8), np.float32), np.zeros((4, 8), np.float32))
    refuses(error.InvalidArgument, "", tir.interpret, func, np.zeros((4, 8), np.float32))


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("how", ["plain", "split", "fused", "outside", "decomposed"])
def test_sums_of_nothing_are_the_identity(n, how):
    """Scheduled, lowered and native code leave the reducer's identity where nothing is added up."""
    rows, inner = SizeVar("rows", "int64"), int64(4)
    x = te.placeholder((rows, N, inner), "float32", "x")
    a, b = te.reduce_axis((int64(0), N), "a"), te.reduce_axis((int64(0), inner), "b")
    total = te.compute((rows,), lambda i: te.sum(x[i, a, b], axis=[a, b]), "total")
    c, d = te.reduce_axis((int64(0), N), "c"), te.reduce_axis((int64(0), inner), "d")
    top = te.compute((rows,), lambda i: te.max(x[i, c, d], axis=[c, d]), "top")
    sch = tir.Schedule(te.create_prim_func([x, total, top]))
    for name in ("total", "top"):
        loops = sch.get_loops(name)
        if how == "split":
            sch.split(loops[1], [None, 2])
        elif how == "fused":
            sch.fuse(*loops[1:])
        elif how == "outside":
            sch.reorder(loops[2], loops[1], loops[0])
        elif how == "decomposed":
            sch.decompose_reduction(name, loops[1])
    given = RNG.standard_normal((5, n, 4), np.float32)
    expected = [given.sum((1, 2)), given.max((1, 2), initial=-np.inf)]
    run = build(sch.func, target="llvm")
    for execute in (lambda *v: tir.interpret(sch.func, *v), lambda *v: tir.interpret(lower(sch.func), *v), run):
        found = [np.full(5, 7, np.float32), np.full(5, 7, np.float32)]
        execute(given, *found)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[1], expected[1])
