"""specialize: functions for given dimensions do what the general ones do."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir
from weft.script import tir as T
from weft.tir.specialize import dimension_places, specialize


def row_sums():
    n, m = te.var("n", "int64"), te.var("m", "int64")
    a = te.placeholder((n, m), name="a")
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k] * 2.0, axis=k), name="b")
    return te.create_prim_func([a, b])


def test_places():
    assert [(v.name, i, k) for v, i, k in dimension_places(row_sums())] == [("n", 0, 0), ("m", 0, 1)]
    assert (
        dimension_places(te.create_prim_func([a := te.placeholder((4,), name="a"), te.compute((4,), lambda i: a[i])]))
        == []
    )


def test_no_place_for_a_dimension_inside_an_expression():
    n = te.var("n", "int64")
    a = te.placeholder((2 * n,), name="a")
    b = te.compute((2 * n,), lambda i: a[i] + 1.0)
    assert dimension_places(te.create_prim_func([a, b])) is None


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (16, 64), (0, 5), (5, 0)])
def test_same_values(shape):
    func = row_sums()
    made = specialize(func, {v: shape[k] for v, _, k in dimension_places(func)})
    assert dimension_places(made) == []
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out, expected = np.empty(shape[:1], np.float32), np.empty(shape[:1], np.float32)
    weft.target.build(made)["main"](x, out)
    weft.target.build(func)["main"](x, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    refuses(ValueError, "shape", weft.target.build(made)["main"], np.zeros((shape[0] + 1, shape[1]), np.float32), out)


def test_shapes_are_numbers():
    func = row_sums()
    made = specialize(func, {v: 4 for v, _, _ in dimension_places(func)})
    assert "match_buffer" not in str(made) and "2, 4" not in str(func)
    assert all(type(d).__name__ == "IntImm" for _, b in made.buffer_map for d in b.shape)
    assert [p.name for p in made.params] == [p.name for p in func.params]


def test_parameters_are_given():
    m = weft.ir.Var("m", "int32")

    @T.prim_func
    def scaled(a: T.handle, b: T.handle, k: T.int32):
        m = T.int32()
        n = T.int32()
        A = T.match_buffer(a, (m, n), "float32")
        B = T.match_buffer(b, (m, n), "float32")
        for i, j in T.grid(m, n):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.Cast("float32", k)

    a, _, k = scaled.params
    whole = scaled.specialize({a: tir.decl_buffer((3, 5), "float32"), k: 2})
    assert len(whole.params) == 2 and [str(d) for d in whole.buffer_map[1][1].shape] == ["3", "5"]
    x = np.arange(15, dtype="float32").reshape(3, 5)
    out = weft.runtime.tensor(np.zeros_like(x))
    weft.build(whole, target="llvm")(weft.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)
    half = scaled.specialize({a: tir.decl_buffer((m, 5), "float32")})
    assert [str(d) for d in half.buffer_map[1][1].shape] == ["m", "5"] and scaled.specialize({}) is scaled
    refuses(error.InvalidArgument, "another kind", scaled.specialize, {a: tir.decl_buffer((3,), "float32")})
    refuses(error.InvalidArgument, "disagrees", whole.specialize, {whole.params[0]: tir.decl_buffer((4, 5), "float32")})
    refuses(error.InvalidArgument, "is a parameter", scaled.specialize, {a: 3})
