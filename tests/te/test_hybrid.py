"""Hybrid scripts: on arrays as Python, on tensors as compiled statements, and again as text."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te
from weft.te.hybrid import HYBRID_GLOBALS, HybridModule, script

# ruff: noqa: F821 - the words of hybrid script


@script
def outer(n, m, a, b):
    """Products of all pairs."""
    c = output_tensor((n, m), a.dtype)
    for i in range(n):
        for j in parallel(m):
            assert i < n and j < m, "outside"
            c[i, j] = a[i] * b[j]
    return c


@script
def smooth(a, weights, lowest):
    size = len(weights)
    out = output_tensor((a.shape[0] - size + 1,), a.dtype)
    kept = allocate((1,), a.dtype)
    signs = output_tensor((a.shape[0],), "int32")
    for i in range(a.shape[0] - size + 1):
        total = 0.0
        for j in const_range(size):
            total += a[i + j] * weights[j]
        kept[0] = total
        if lowest <= total < 2 or (not (i != 3)):
            out[i] = kept[0]
        else:
            out[i] = sqrt(abs_of(total)) + float32(int32(total))
    for i in range(1, a.shape[0]):
        signs[i] = 1 if a[i] > a[i - 1] else -1
    signs[0] = 0
    return out, signs


def abs_of(x):
    return te.abs(x) if isinstance(x, weft.ir.PrimExpr) else abs(x)


@script
def twice(a):
    first = outer(len(a), 3, a, a)
    d = output_tensor((len(a),), "float32")
    for i in vectorize(len(a)):
        d[i] = first[i, 0] + max(first[i, 1], first[i, 2]) / 2.0
    return d


def run(tensors, outs, arrays, names=None):
    """Compile what a script returned and run it."""
    outs = outs if isinstance(outs, list) else [outs]
    sch = te.create_schedule(outs[0].op)
    sizes = [[weft.ir.substitute(d, names or {}) for d in o.shape] for o in outs]
    sizes = [[int(weft.arith.Analyzer().simplify(d)) for d in shape] for shape in sizes]
    results = [np.full(shape, 7, o.dtype) for shape, o in zip(sizes, outs, strict=True)]
    weft.build(sch, [*tensors, *outs])(*arrays, *results)
    return sch, outs, results


def test_symbolic_shapes_and_text():
    n, m = te.size_var("n"), te.size_var("m")
    a, b = te.placeholder((n,), name="a"), te.placeholder((m,), name="b")
    x, y = np.random.default_rng(0).random((2, 9)).astype("float32")
    expected = outer(9, 5, x, y[:5])
    np.testing.assert_allclose(expected, np.outer(x, y[:5]), rtol=1e-6)
    sch, outs, (found,) = run([n, m, a, b], outer(n, m, a, b), [9, 5, x, y[:5]], {n: 9, m: 5})
    np.testing.assert_array_equal(found, expected)
    text = te.hybrid.build(sch, [n, m, a, b], outs, "products")
    assert text.name == "products" and "assert ((i < n) and (j < m)), 'outside'" in text.get_source()
    np.testing.assert_array_equal(text(9, 5, x, y[:5]), expected)
    np.testing.assert_array_equal(run([n, m, a, b], text(n, m, a, b), [9, 5, x, y[:5]], {n: 9, m: 5})[2][0], expected)
    assert run([n, m, a, b], outer(n, m, a, b), [0, 5, x[:0], y[:5]], {n: 0, m: 5})[2][0].shape == (0, 5)
    assert not HYBRID_GLOBALS.keys() & outer.__globals__.keys()


@pytest.mark.parametrize("size", [4, 7, 13])
def test_scalars_branches_and_lists(size, tmp_path):
    a = te.placeholder((size,), name="a")
    x = np.random.default_rng(size).normal(size=size).astype("float32") * 3
    weights = [0.5, -1.0, 2.0]
    expected = smooth(x, weights, 0.25)
    sums = np.array([sum(x[i + j] * w for j, w in enumerate(weights)) for i in range(size - 2)])
    taken = ((sums >= 0.25) & (sums < 2)) | (np.arange(size - 2) == 3)
    values = np.where(taken, sums, np.sqrt(np.abs(sums)) + np.trunc(sums))
    np.testing.assert_allclose(expected[0], values, rtol=1e-4, atol=1e-5)
    sch, outs, found = run([a], smooth(a, weights, 0.25), [x])
    te.hybrid.build(sch, [a], outs).save(tmp_path / "text.py")
    again = HybridModule()
    again.load(tmp_path / "text.py")
    for result in (found, run([a], again(a), [x])[2], again(x)):
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(result[1], np.sign(np.diff(x, prepend=x[:1])))


def test_scripts_call_scripts_and_stand_between_stages():
    a = te.placeholder((6,), name="a")
    before = te.compute((6,), lambda i: a[i] + 1.0, name="before")
    d = twice(before)
    after = te.compute((6,), lambda i: d[i] * 2.0, name="after")
    x = np.arange(6, dtype="float32")
    expected = 2 * twice(x + 1)
    np.testing.assert_allclose(expected, 2 * (x + 1) * 2.5)
    out = np.zeros(6, "float32")
    for outputs in (after.op, [before.op, after.op]):  # `before` is an output that is no argument
        weft.build(te.create_schedule(outputs), [a, after])(x, out)
        np.testing.assert_allclose(out, expected)


def test_lists_of_tensors_and_captured_constants():
    table, pick = [[1, 2], [3, 4]], 1

    @script
    def total(inputs):
        out = output_tensor((5,), inputs[0].dtype)
        for i in unroll(5):
            out[i] = table[pick][0]
            for j in const_range(len(inputs)):
                out[i] += inputs[j][i]
        return out

    tensors = [te.placeholder((5,), "int32", f"t{k}") for k in range(3)]
    arrays = [np.arange(5, dtype="int32") * k for k in range(3)]
    found = run(tensors, total(weft.runtime.convert(tensors)), arrays)[2][0]
    np.testing.assert_array_equal(found, sum(arrays) + 3)
    np.testing.assert_array_equal(found, total(arrays))


def test_threads_of_a_device():
    @script
    def scaled(a):
        b = output_tensor((8,), "float32")
        for i in bind("threadIdx.x", 8):
            b[i] = a[i] * 2.0
        return b

    b = scaled(te.placeholder((8,), name="a"))
    loops = [s for s in weft.ir.walk(b.op.body) if isinstance(s, weft.tir.For)]
    assert [s.thread_binding.thread_tag for s in loops] == ["threadIdx.x"]
    np.testing.assert_array_equal(scaled(np.ones(8, "float32")), np.full(8, 2))


def test_refusals():
    @script
    def unreturned(a):
        b = output_tensor((4,), "float32")
        c = output_tensor((4,), "float32")
        b[0] = c[0] = a[0]
        return b

    @script
    def variable_index(a, b):
        c = output_tensor((4,), "float32")
        for i in range(4):
            c[i] = b[i]
        return c

    @script
    def looping(a):
        while a[0] > 0:
            pass
        return a

    a = te.placeholder((4,), name="a")
    refuses(error.InvalidArgument, "returns other things than output_tensor made", unreturned, a)
    refuses(error.InvalidArgument, "a list is indexed by a variable", variable_index, a, [1, 2, 3, 4])
    refuses(error.ParseError, "hybrid script has no while", looping, a)
    refuses(error.ParseError, "source of a hybrid script", script, eval("lambda x: x"))
