"""RelaxGuards: sums of products and extremes under a condition on lanes lose it; other reductions keep theirs."""

import numpy as np

import weft
from weft.ir import IRModule, walk
from weft.script import tir as T
from weft.tir import IfThenElse
from weft.tir.transform import relax_guards


@T.prim_func
def products(A: T.Buffer((3, 20), "float32"), B: T.Buffer((3, 20), "float32"), C: T.Buffer((20,), "float32")):
    for o in range(2):
        t = T.alloc_buffer((32,), "float32", scope="local")
        for i in T.vectorized(16):
            t[o * 16 + i] = T.float32(0)
        for k in range(3):
            for i in T.vectorized(16):
                if o * 16 + i < 20:
                    t[o * 16 + i] = t[o * 16 + i] + A[k, o * 16 + i] * B[k, o * 16 + i]
        for i in T.vectorized(16):
            if o * 16 + i < 20:
                C[o * 16 + i] = t[o * 16 + i]


def extremes(first, chosen, dtype="float32"):
    """What `chosen` makes, from `first` on, of the values so far and the elements of each row."""

    @T.prim_func
    def f(A: T.Buffer((3, 20), dtype), C: T.Buffer((32,), dtype)):
        for o in range(2):
            t = T.alloc_buffer((32,), dtype, scope="local")
            for i in T.vectorized(16):
                t[o * 16 + i] = T.Cast(dtype, T.float32(first))
            for k in range(3):
                for i in T.vectorized(16):
                    if o * 16 + i < 20:
                        t[o * 16 + i] = chosen(t[o * 16 + i], A[k, o * 16 + i])
            for i in T.vectorized(16):
                C[o * 16 + i] = t[o * 16 + i]

    return f


MAXIMA = extremes(-9, T.max)
CHOSEN = extremes(9, lambda old, new: T.Select(new < old, new, old))
FLAGGED = extremes(9, lambda old, new: T.Select(T.float32(0.5) < old, new, old))


@T.prim_func
def strided(A: T.Buffer((20,), "float32"), C: T.Buffer((16,), "float32")):
    t = T.alloc_buffer((16,), "float32", scope="local")
    for i in T.vectorized(16):
        t[i] = T.float32(0)
    for k in range(2):
        for i in T.vectorized(16):
            if k * 16 + i < 20:
                t[i] = t[i] + A[k * 16 + i]
    for i in T.vectorized(16):
        C[i] = t[i]


def guards(func):
    after = relax_guards()(weft.IRModule({"f": func}))["f"]
    return sum(isinstance(n, weft.tir.IfThenElse) for n in walk(after))


def test_a_sum_of_products_loads_zeros_and_other_reductions_keep_their_condition():
    assert guards(products) == 1  # that of the result
    assert guards(strided) == 1


def test_the_greater_of_an_element_and_a_load_is_the_element_where_nothing_is_loaded():
    assert guards(MAXIMA) == guards(CHOSEN) == 0
    assert guards(FLAGGED) == 1  # compares something else than it chooses from
    a = np.random.default_rng(1).standard_normal((3, 20)).astype("float32")
    m = weft.runtime.tensor(np.zeros(32, "float32"))
    weft.build(CHOSEN, target="llvm")["f"](weft.runtime.tensor(a), m)
    np.testing.assert_array_equal(m.numpy(), np.concatenate([np.minimum(a.min(0), 9), np.full(12, 9, "float32")]))


def test_narrow_loads_have_no_masks():
    assert guards(extremes(-9, T.max, "float16")) == guards(extremes(-9, T.max, "uint8")) == 1


def test_values():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3, 20)).astype("float32") for _ in range(2))
    c = weft.runtime.tensor(np.full(20, np.nan, "float32"))
    weft.build(products, target="llvm")["products"](weft.runtime.tensor(a), weft.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), (a * b).sum(0), rtol=1e-6, atol=1e-6)
    m = weft.runtime.tensor(np.zeros(32, "float32"))
    weft.build(MAXIMA, target="llvm")["f"](weft.runtime.tensor(a), m)
    np.testing.assert_array_equal(m.numpy(), np.concatenate([np.maximum(a.max(0), -9), np.full(12, -9, "float32")]))


@T.prim_func
def data_decides(A: T.Buffer((16,), "float32"), C: T.Buffer((2,), "float32"), n: T.int64):
    t = T.alloc_buffer((2,), "float32", scope="local")
    t[0] = T.float32(0)
    t[1] = T.float32(0)
    for i in range(16):
        if A[i] > T.float32(0.5):
            t[0] = A[i]
        if i < n:
            t[1] = t[1] + A[i]
    C[0] = t[0]
    C[1] = t[1]


def test_what_data_or_a_count_decides_is_kept():
    a = np.random.default_rng(4).random(16).astype(np.float32)
    a[15], out = 0.1, np.zeros(2, np.float32)
    run = weft.compile(data_decides, target="llvm")
    tensor = weft.runtime.tensor(out)
    run(weft.runtime.tensor(a), tensor, 5)
    np.testing.assert_allclose(tensor.numpy(), [a[a > 0.5][-1], a[:5].sum()], rtol=1e-6)


@T.prim_func
def of_any_size(a: T.handle, c: T.handle):
    n = T.int32(is_size_var=True)
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    t = T.alloc_buffer((n,), "float32", scope="local")
    u = T.alloc_buffer((n,), "float32", scope="local")
    for i in range(n):
        t[i] = A[i]
    for i, j in T.grid((n + 2) // 3, 3):
        if i * 3 + j < n:
            u[i * 3 + j] = t[i * 3 + j] * T.float32(2)
    for i in range(n):
        C[i] = u[i]


def test_a_buffer_that_cannot_grow_keeps_its_conditions():
    """Nothing makes room for elements behind the end where the size is only known when the function is called."""
    assert any(type(x) is IfThenElse for x in walk(relax_guards()(IRModule({"main": of_any_size}))["main"].body))
    built = weft.build(IRModule({"main": of_any_size}), target="llvm")
    for n in (1, 2, 3, 7):
        x, y = np.arange(n, dtype="float32"), np.zeros(n, "float32")
        built(x, y)
        np.testing.assert_array_equal(y, x * 2)


def test_what_a_guard_leaves_is_read():
    @T.prim_func
    def padded(n: T.int32, A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        kept = T.alloc_buffer((16,), "float32", scope="local")
        for i in range(16):
            kept[i] = T.float32(0)
        for i in range(16):
            if i < n:
                kept[i] = A[i]
        for i in T.vectorized(16):
            if i < n - 3:
                kept[i] = A[i] + T.float32(1)
        for i in range(16):
            B[i] = kept[i]

    out = np.zeros(16, "float32")
    weft.build(padded, target="llvm")["padded"](7, np.arange(1, 17, dtype="float32"), out)
    np.testing.assert_array_equal(out, [2, 3, 4, 5, 5, 6, 7] + [0] * 9)


@T.prim_func
def tested_apart(
    A: T.Buffer((16, 8), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((2, 16), "float32"), n: T.int32
):
    sums = T.alloc_buffer((16,), "float32", scope="local")
    chosen = T.alloc_buffer((16,), "float32", scope="local")
    for i in T.vectorized(16):
        if i < n:
            sums[i] = T.float32(0)
        if i < n:
            chosen[i] = A[i, 0]
        if i >= n:
            chosen[i] = T.float32(7)
    for k in range(8):
        for j in T.vectorized(16):
            if j < n:
                sums[j] = sums[j] + A[j, k] * B[k]
    for i in T.vectorized(16):
        if i < n:
            C[0, i] = sums[i]
        C[1, i] = chosen[i]


def test_a_condition_goes_where_every_store_of_an_element_has_it():
    """What a store under another condition gave is kept; a sum whose elements all have one needs no factor of zero."""
    assert guards(tested_apart) == 3  # those of the choice, and of the result
    a, b = np.random.default_rng(5).standard_normal((16, 8)).astype("float32"), np.full(8, np.inf, "float32")
    for n in (16, 12, 0):
        out, inside = np.full((2, 16), np.nan, "float32"), np.arange(16) < n
        weft.build(tested_apart, target="llvm")["tested_apart"](a, b, out, n)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out, [np.where(inside, a @ b, np.nan), np.where(inside, a[:, 0], 7)])
