"""The generator of examples/c_source, which nothing of the compiler knows: found by name, equal to NumPy."""

from pathlib import Path

import numpy as np

import weft
from examples.c_source import backend
from tests.refusals import refuses
from tests.target.programs import pairwise
from weft import te, tir, topi

RNG = np.random.default_rng(0)


def test_it_is_short_and_nothing_names_it():
    assert len(Path(backend.__file__).read_text().splitlines()) < 300
    assert not [p for p in Path(weft.__file__).parent.rglob("*.py") if "csource" in p.read_text()]


def test_a_schedule_with_vectors_and_a_symbolic_extent():
    a, b, c = pairwise(lambda x, y: x + y * 2)
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[0], 8)
    s[c].vectorize(inner)
    add = weft.build(s, [a, b, c], target="csource", name="add")
    for size in (0, 1, 8, 37):
        x, y, z = *RNG.random((2, size), "float32"), np.zeros(size, "float32")
        add(x, y, z)
        np.testing.assert_allclose(z, x + 2 * y)
    assert "int __tvm_ffi_add(void* self" in add.get_source()
    refuses(ValueError, r"add: argument 2 .*: expected shape\[0\] == 37, found 3", add, x, y, z[:3])
    refuses(TypeError, "expected dtype float32, found bits 64", add, x.astype("float64"), y, z)


def _compute(make, *arrays):
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    result = make(*tensors)
    out = np.zeros([int(d) for d in result.shape], result.dtype)
    weft.build(te.create_prim_func([*tensors, result]), target="csource")(*arrays, out)
    return out


def test_kernels():
    x, w = RNG.normal(size=(5, 7)).astype("float32"), RNG.normal(size=(3, 7)).astype("float32")
    np.testing.assert_allclose(_compute(lambda x, w: topi.nn.dense(x, w), x, w), x @ w.T, rtol=1e-4)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(_compute(lambda x: topi.nn.softmax(x, 1), x), e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(_compute(lambda x: topi.nn.pad(x, [1, 0], [2, 1]), x), np.pad(x, ((1, 2), (0, 1))))
    i = RNG.integers(-50, 50, (4, 9)).astype("int32")
    np.testing.assert_array_equal(_compute(lambda i: topi.floor_divide(i, tir.const(7, "int32")), i), i // 7)
    np.testing.assert_array_equal(_compute(lambda i: topi.floor_mod(i, tir.const(-7, "int32")), i), i % -7)


def test_what_it_does_not_know_is_an_error_with_a_name():
    x = te.placeholder((4,), "float16", name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + x[i])])
    refuses(weft.error.CodegenError, "csource has no type 'float16'", weft.build, func, target="csource")
    y = te.placeholder((4,), "int32", name="y")
    func = te.create_prim_func([y, te.compute((4,), lambda i: tir.popcount(y[i]))])
    refuses(weft.error.CodegenError, "csource has no code for CallIntrin", weft.build, func, target="csource")
