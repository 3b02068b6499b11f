"""StorageRewrite in place: a result over what it is made of, and every reason not to."""

import numpy as np
import pytest

import weft
from weft import ir, script, te, tir
from weft.tir.transform import storage_rewrite

RNG = np.random.default_rng(11)


def check(text, count, size=8, n=None):
    """Rewrite a program of A (input) and D (output); compare, and count what is allocated."""
    body = "\n".join("    " + line for line in text.strip("\n").splitlines())
    head = f'A: T.Buffer(({size},), "float32"), D: T.Buffer(({size},), "float32"), n: T.int32'
    func = script.from_source(f"@T.prim_func\ndef main({head}):\n{body}")
    shared = storage_rewrite()(func)["main"]
    x = RNG.random(size, "float32")
    want, found, native = (np.zeros(size, "float32") for _ in range(3))
    tir.interpret(func, x, want, n or size)
    tir.interpret(shared, x, found, n or size)
    weft.build(func, target="llvm")(x, native, n or size)
    assert want.any()
    np.testing.assert_array_equal(found, want)
    np.testing.assert_allclose(native, want, rtol=1e-6)
    assert sum(isinstance(s, tir.AllocBuffer) for s in ir.walk(shared.body)) == count
    return shared


START = """
B = T.alloc_buffer((8,))
C = T.alloc_buffer((8,))
for i in range(8):
    B[i] = A[i] * 3.0
"""
END = """
for i in range(8):
    D[i] = C[7 - i]
"""


@pytest.mark.parametrize(
    "middle",
    [
        "for i in range(8):\n    C[i] = B[i] + 1.0",
        "for i in range(8):\n    C[i] = B[i] * B[i] + A[7 - i]",
        "for i in T.parallel(8):\n    C[i] = B[i] + 1.0",
        "for i in T.vectorized(8):\n    C[i] = B[i] + 1.0",
        "for i, j in T.grid(2, 4):\n    C[i * 4 + j] = B[i * 4 + j] + 1.0",
        "for i, j in T.grid(3, 3):\n    if i * 3 + j < n:\n        C[i * 3 + j] = B[i * 3 + j] + 1.0",
        "for i in range(8):\n    C[7 - i] = T.exp(B[7 - i])",
    ],
)
def test_element_by_element(middle):
    check(START + middle + END, 1)


@pytest.mark.parametrize(
    "middle",
    [
        "for i in range(8):\n    C[i] = B[7 - i] + 1.0",  # another element
        "for i in range(8):\n    C[i] = B[i] + B[0]",  # one that another iteration has written
        "for i in range(8):\n    C[i] = B[i] + 1.0\nfor i in range(8):\n    C[i] = C[i] + B[7 - i]",  # read later
        "for k, i in T.grid(2, 8):\n    C[i] = B[i] + 1.0",  # the second time, B is gone
        "for i in range(8):\n    C[i // 2 * 2] = B[i // 2 * 2]\nfor i in range(4):\n    C[i * 2 + 1] = 0.0",
        "for i in range(8):\n    C[i] = 0.0\nfor k, i in T.grid(3, 8):\n    C[i] = C[i] + B[i]",  # a sum
        "for i in range(8):\n    C[i] = 1.0\n    C[i] = C[i] + B[i]",  # two stores
        "for i in range(8):\n    C[i] = A[i]\n    if B[i] > 1.0:\n        C[i] = 2.0",  # a test of it afterwards
        "for i in range(8):\n    C[i] = B[i]\n    D[i] = B[i]",  # another reader behind the store
        "C[T.Ramp(0, 1, 8)] = B[T.Ramp(0, 1, 8)]",  # vectors
    ],
)
def test_reasons_not_to(middle):
    check(START + middle + END, 2)


def test_calls():
    """One with effects that has nothing to do with the two is no reason; one that gets a pointer, or an element, is."""
    head = 'D: T.Buffer((8,), "float32"), A: T.Buffer((8,), "float32")'
    for value, count in (
        ('B[i] + T.call_extern("float32", "fabsf", T.float32(-2.0))', 1),
        ('T.call_extern("float32", "fabsf", B[i])', 2),
        ('T.call_extern("float32", "first", T.address_of(B[i]))', 2),
    ):
        text = START + f"for i in range(8):\n    C[i] = {value}" + END
        body = "\n".join("    " + line for line in text.strip("\n").splitlines())
        shared = storage_rewrite()(script.from_source(f"@T.prim_func\ndef main({head}):\n{body}"))["main"]
        assert sum(isinstance(s, tir.AllocBuffer) for s in ir.walk(shared.body)) == count


def test_another_type_of_elements():
    text = """
B = T.alloc_buffer((8,), "float32")
C = T.alloc_buffer((8,), "float64")
E = T.alloc_buffer((8,), "int32")
for i in range(8):
    B[i] = A[i]
for i in range(8):
    C[i] = T.Cast("float64", B[i])
for i in range(8):
    E[i] = T.Cast("int32", C[i] * T.float64(10.0))
for i in range(8):
    D[i] = T.Cast("float32", E[i])
"""
    check(text, 3)


def test_another_shape_is_another_place():
    text = """
B = T.alloc_buffer((2, 4))
C = T.alloc_buffer((4, {columns}))
for i, j in T.grid(2, 4):
    B[i, j] = A[i * 4 + j]
for i, j in T.grid(2, {used}):
    C[i, j] = B[i, j] + 1.0
for i, j in T.grid(2, {used}):
    D[i * {used} + j] = C[1 - i, j]
"""
    check(text.format(columns=2, used=2), 2)
    check(text.format(columns=4, used=4), 1)


def test_a_result_in_a_loop_around():
    """In each turn the tile is made anew, so its place may be taken."""
    text = """
for k in range(2):
    B = T.alloc_buffer((4,))
    C = T.alloc_buffer((4,))
    for i in range(4):
        B[i] = A[k * 4 + i]
    for i in range(4):
        C[i] = B[i] * 2.0
    for i in range(4):
        D[k * 4 + i] = C[3 - i]
"""
    check(text, 1)
    outside = """
B = T.alloc_buffer((4,))
C = T.alloc_buffer((4,))
for i in range(4):
    B[i] = A[i]
for k in range(2):
    for i in range(4):
        C[i] = B[i] * 2.0
    for i in range(4):
        D[k * 4 + i] = C[3 - i]
"""
    check(outside, 2)


def test_a_chain_of_stages_in_one_buffer():
    x = te.placeholder((50,), name="x")
    t = x
    for i in range(5):
        t = te.compute((50,), lambda j, t=t: te.sqrt(t[j]) + 1.0, name=f"t{i}")
    out = te.compute((50,), lambda j: t[49 - j], name="out")
    lowered = weft.lower(te.create_schedule(out.op), [x, out])["main"]
    assert sum(isinstance(n, tir.AllocBuffer) for n in ir.walk(lowered.body)) == 1
    values, found = RNG.random(50, "float32"), np.zeros(50, "float32")
    want = values
    for _ in range(5):
        want = np.sqrt(want) + 1
    weft.build(te.create_schedule(out.op), [x, out], target="llvm")(values, found)
    np.testing.assert_allclose(found, want[::-1], rtol=1e-6)
