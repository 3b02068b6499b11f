"""The form of ``te.create_prim_func`` is TVM's; it computes what the compiler's own form of the same stages does."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import build, ir, te, tir, topi
from weft.error import InvalidArgument
from weft.script import tir as T


def pair():
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((m, n), name="a"), te.placeholder((m, n), name="b")
    return [a, b, *te.compute((m, n), lambda i, j: (a[i, j] + 2, b[i, j] * 3), name="c")], [(3, 5)] * 4


def scalar():
    a, b = te.placeholder((), name="a"), te.placeholder((), name="b")
    return [a, b, te.compute((), lambda: a[()] + b[()], name="c")], [()] * 3


def padded():
    a = te.placeholder((2, 7), name="a")
    value = lambda i, j: te.if_then_else(te.all(j >= 2, j - 2 < 7), a[i, j - 2], 0.0)  # noqa: E731
    return [a, te.compute((2, 11), value, name="p")], [(2, 7), (2, 11)]


def triangle():
    a = te.placeholder((6, 6), name="a")

    def total(i):
        k = te.reduce_axis(ir.Range.from_min_extent(0, i), "k")
        l = te.reduce_axis(ir.Range.from_min_extent(0, k.var), "l")  # noqa: E741
        return te.sum(a[k, l], axis=[k, l])

    return [a, te.compute((6,), total, name="t")], [(6, 6), (6,)]


def started():
    a, first = te.placeholder((4, 5), name="a"), te.placeholder((4,), name="first")
    k = te.reduce_axis((0, 5), "k")
    add = lambda i: te.comm_reducer(lambda x, y: x + y, lambda t: first[i])  # noqa: E731
    return [a, first, te.compute((4,), lambda i: add(i)(a[i, k], axis=[k]), name="s")], [(4, 5), (4,), (4,)]


def empty():
    a = te.placeholder((0, 3), name="a")
    return [a, te.compute((0, 3), lambda i, j: a[i, j] * 2, name="e")], [(0, 3), (0, 3)]


def softmax():
    a = te.placeholder((3, 9), name="a")
    return [a, topi.nn.softmax(a)], [(3, 9), (3, 9)]


GRAPHS = [pair, scalar, padded, triangle, started, empty, softmax]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_both_forms_and_the_compiler_agree(graph):
    args, shapes = graph()
    given = [np.random.default_rng(i).standard_normal(s).astype("float32") for i, s in enumerate(shapes)]
    results = [[a.copy() for a in given] for _ in range(3)]
    if graph is not triangle:  # whose sums over sums only the nested form can say
        tir.interpret(te.kernel_of_stages(args), *results[0])
    tir.interpret(te.create_prim_func(args), *results[1])
    build(te.create_prim_func(args))["main"](*results[2])
    if graph is triangle:
        results[0] = [given[0], np.array([np.tril(given[0][:i], -1).sum() for i in range(6)], "float32")]
    for a, b, c in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(c, a, rtol=1e-6, atol=1e-6)


def test_each_output_has_its_block():
    @T.prim_func
    def expected(var_a: T.handle, var_b: T.handle, var_c: T.handle, var_d: T.handle):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        m, n = T.int32(), T.int32()
        a, b = T.match_buffer(var_a, (m, n)), T.match_buffer(var_b, (m, n))
        c, d = T.match_buffer(var_c, (m, n)), T.match_buffer(var_d, (m, n))
        for i, j in T.grid(m, n):
            with T.sblock("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = a[vi, vj] + 2.0
            with T.sblock("d"):
                vi, vj = T.axis.remap("SS", [i, j])
                d[vi, vj] = b[vi, vj] * 3.0

    ir.assert_structural_equal(te.create_prim_func(pair()[0]), expected)


def test_axes_that_depend_on_axes_nest_blocks():
    blocks = [n.name_hint for n in ir.walk(te.create_prim_func(triangle()[0]).body) if isinstance(n, tir.Block)]
    assert blocks == ["root", "t_l1", "t_l2", "t"]


def test_means_of_integers():
    x = te.placeholder((1, 1, 8, 8), "int8", "x")
    y = topi.nn.global_pool(x, "avg")
    given, out = np.full((1, 1, 8, 8), -100, "int8"), np.zeros((1, 1, 1, 1), "int8")
    build(te.create_prim_func([x, y]))["main"](given, out)
    assert out.item() == -100


def test_functions_of_floats_refuse_integers():
    with pytest.raises(TypeError, match=r"topi\.acos only supports floating-point inputs, but got int16"):
        topi.acos(te.placeholder((3,), "int16"))


def test_more_elements_than_can_be_counted():
    x = te.placeholder((1,), name="x")
    for shape in ((2**32, 2**32), (2**21,) * 3):  # their product is 0 in 64 bits, and a negative number
        total = topi.sum(topi.broadcast_to(x, shape))
        refuses(InvalidArgument, r"too many elements\n  expected fewer than 2\*\*63", te.create_prim_func, [x, total])
