"""The k first of lines, against a stable sort: ties, NaN, infinities, any axis, short lines and long ones."""

import numpy as np
import pytest

from tests.relax_models import written
from tests.topi.running import evaluate
from weft import ir, te, tir
from weft.relax.pipeline import graph_passes
from weft.target import Target, build, get_source
from weft.tir.schedule import default_schedule
from weft.topi.sort import topk


def expected(x, k, axis, largest):
    """The k first by a stable sort, in which NaN is greatest."""
    if largest:
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, range(k), axis)
    return np.take_along_axis(x, order, axis), order


def sample(shape, dtype, ties):
    rng = np.random.default_rng(len(shape) + ties)
    x = (rng.integers(0, 40, shape) if ties else rng.standard_normal(shape) * 90).astype(dtype)
    if x.dtype.kind == "f":
        flat = x.reshape(-1)
        for start, step, value in ((0, 37, np.nan), (5, 41, np.inf), (3, 43, -np.inf), (1, 53, -0.0), (2, 59, 0.0)):
            flat[start::step] = value
    return x


@pytest.mark.parametrize(
    ("shape", "axis", "k", "dtype"),
    [
        ((3, 1000), 1, 7, "float32"),
        ((2, 300, 5), 1, 33, "float16"),
        ((1, 5000), 1, 100, "float32"),
        ((4, 257), 1, 1, "int32"),
        ((7,), 0, 3, "uint8"),
        ((2, 400), 1, 0, "float32"),
        ((3, 64), 1, 20, "int32"),
        ((0, 50), 1, 2, "float32"),
        ((1, 1000, 3), 1, 450, "float32"),
        ((2, 700), 1, 300, "uint8"),
        ((300, 1), 0, 9, "bfloat16"),
        ((90, 3, 2), 0, 4, "int64"),
        ((90, 300), 0, 1, "float32"),
        ((2, 30, 3, 17), 1, 1, "float16"),
        ((1, 16), 0, 1, "float64"),
        ((5, 0, 20), 0, 1, "int8"),
        ((40, 20), 1, 3, "float32"),
        ((30, 17, 3), 2, 3, "float64"),
        ((9, 5, 33), 1, 4, "float16"),
        ((64, 40), 0, 16, "int8"),
        ((17, 16), 1, 15, "bfloat16"),
        ((2, 1500), 1, 64, "float32"),
        ((2, 1501), 1, 65, "float32"),
        ((1, 2000), 1, 150, "int8"),
    ],
)
def test_first_of_lines(shape, axis, k, dtype):
    for largest, ties in ((True, True), (False, False)):
        x = sample(shape, dtype, ties)
        values, order = evaluate(lambda t, up=not largest: topk(t, k, axis, "both", up), x)
        wanted, places = expected(x, k, axis, largest)
        np.testing.assert_array_equal(order, places)
        np.testing.assert_array_equal(values, wanted)


def test_columns_of_unknown_number():
    b, n, c = (te.size_var(name, "int64") for name in "bnc")
    x = te.placeholder((b, n, c), name="x")
    for largest in (True, False):
        func = te.create_prim_func([x, *topk(x, 1, 1, "both", not largest)])
        wide = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
        assert "fcmp ole <64 x float>" in get_source(default_schedule(func, wide), wide, "ll")
        kernel = build(default_schedule(func, Target("llvm")), Target("llvm"))["main"]
        for shape in ((3, 70, 5), (2, 40, 16), (1, 9, 300), (2, 1, 40), (0, 3, 20), (2, 5, 0)):
            data, found = sample(shape, "float32", largest), np.empty((shape[0], 1, shape[2]), np.float32)
            places = np.empty(found.shape, np.int64)
            kernel(data, found, places)
            wanted = expected(data, 1, 1, largest)
            np.testing.assert_array_equal(found, wanted[0])
            np.testing.assert_array_equal(places, wanted[1])


def test_lines_and_counts_of_unknown_size():
    n, k = te.size_var("n", "int64"), te.size_var("k", "int64")
    x, like = te.placeholder((2, n), name="x"), te.placeholder((k,), name="like")
    values, order = topk(x, k, 1)
    outs = te.compute((2, k), lambda i, j: values(i, j) + like(j), name="outs")
    target = Target("llvm")
    kernel = build(default_schedule(te.create_prim_func([x, like, outs, order]), target), target)["main"]
    for size, count in ((900, 12), (900, 900), (5, 5), (64, 63), (65, 0)):
        data = sample((2, size), "float32", False)
        found, places = np.empty((2, count), np.float32), np.empty((2, count), np.int64)
        kernel(data, np.zeros(count, np.float32), found, places)
        np.testing.assert_array_equal(places, expected(data, count, 1, True)[1])
        np.testing.assert_array_equal(found, expected(data, count, 1, True)[0])


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 0])
@pytest.mark.parametrize("k", [3, 70])
@pytest.mark.parametrize("largest", [True, False])
def test_lines_of_which_most_are_alike(largest, k, fill):
    x = np.full((2, 1200), fill, np.float32)
    x[:, 40::300], x[1, ::2] = (1, np.nan, -np.inf, np.inf), -fill
    values, order = evaluate(lambda t: topk(t, k, 1, "both", not largest), x)
    np.testing.assert_array_equal(order, expected(x, k, 1, largest)[1])
    np.testing.assert_array_equal(values, expected(x, k, 1, largest)[0])


@pytest.mark.parametrize(("k", "size", "together"), [(100, 100000, 32), (300, 25200, 8), (4, 342, 8), (1, 100000, 64)])
def test_few_of_many_do_not_sort_all(k, size, together):
    """What is read beforehand, one number for some, is about as long as what is looked at for the k first."""
    x = te.placeholder((1, ir.int64(size)), name="x")
    func = te.create_prim_func([x, *topk(x, k, 1)])
    (best,) = (b.shape[-1] for b in func.root.alloc_buffers if b.name == "best")
    assert ir.as_int(best) == -(-size // together)


@pytest.mark.parametrize(("target", "tasks"), [("llvm", 256), ("opencl", 4096)])
def test_threads_of_gpus_have_a_line_each(target, tasks):
    mod = written("x: (4096, 8)", "y = R.topk(x, k=2)")
    for step in graph_passes(target):
        mod = step(mod)
    loops = [n for f in mod.functions.values() if isinstance(f, tir.PrimFunc) for n in ir.find(f.body, tir.For)]
    assert [ir.as_int(n.extent) for n in loops if n.kind is tir.ForKind.PARALLEL] == [tasks]
