"""Products on matrix tiles: equal to the interpreter's, as exact as plain float32, right for numbers without parts."""

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.target import amx_emulation as amx
from weft import error, ir, te
from weft.target import Target, get_source
from weft.tir import BufferLoad, PrimFunc, interpret
from weft.tir.schedule import Knobs, default_schedule

SPR = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2")
FORCED = {"C.matrix_tiles": True}


def product(m, n, k, *, dtype="float32", layout="kn", batch=(), epilogue=True) -> PrimFunc:
    """``max(A @ B + bias, 0)``; `layout` says how B lies: kn, nk, or p for panels of 32 columns."""
    a = te.placeholder((*batch, m, k), dtype, name="A")
    shape = {"kn": (k, n), "nk": (n, k), "p": (-(-n // 32), k, 32)}[layout]
    b = te.placeholder(shape, dtype, name="B")
    bias = te.placeholder((n,), name="bias")
    r = te.reduce_axis((0, k), name="r")

    def right(kk, j):
        return {"kn": lambda: b[kk, j], "nk": lambda: b[j, kk], "p": lambda: b[j // 32, kk, j % 32]}[layout]()

    c = te.compute(
        (*batch, m, n),
        lambda *i: te.sum(ir.cast("float32", a(*i[:-1], r)) * ir.cast("float32", right(r, i[-1])), r),
        name="C",
    )
    if not epilogue:
        return te.create_prim_func([a, b, c])
    zero = weft.tir.const(0.0, "float32")
    d = te.compute(c.shape, lambda *i: weft.tir.max(c(*i) + bias[i[-1]], zero), name="D")
    return te.create_prim_func([a, b, bias, d])


def operands(m, n, k, layout="kn", batch=(), dtype="float32"):
    rng = np.random.default_rng(m * n + k)
    number = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = (rng.standard_normal(s).astype(number) for s in ((*batch, m, k), (k, n)))
    given = b
    if layout == "nk":
        given = np.ascontiguousarray(b.T)
    elif layout == "p":
        padded = np.full((k, -(-n // 32) * 32), np.nan, number)
        padded[:, :n] = b
        given = np.ascontiguousarray(padded.reshape(k, -1, 32).transpose(1, 0, 2))
    bias = rng.standard_normal(n).astype(np.float32)
    return a, given, bias, a.astype(np.float64) @ b.astype(np.float64)


def scheduled(func, target) -> PrimFunc:
    result = default_schedule(func, target, Knobs(FORCED))
    assert "tile_dot" in str(result)
    return result


SHAPES = [(1, 1, 1), (32, 32, 32), (33, 33, 33), (37, 70, 75), (96, 48, 1090)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("layout", ["kn", "nk", "p"])
def test_float32(m, n, k, layout):
    a, b, bias, exact = operands(m, n, k, layout)
    func = scheduled(product(m, n, k, layout=layout), amx.target("-num-cores=2"))
    found = np.full((m, n), np.nan, np.float32)
    weft.build(func, amx.target())(a, b, bias, found)
    scale = 1 + np.abs(a).astype(np.float64).sum() / m
    np.testing.assert_allclose(found, np.maximum(exact + bias, 0), atol=2e-7 * scale)
    assert not amx.is_configured()
    if m * n * k <= 1 << 12:
        slow = np.full((m, n), np.nan, np.float32)
        interpret(func, a, b, bias, slow)
        np.testing.assert_array_equal(found, slow)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (33, 40, 75), (70, 64, 544)])
def test_bfloat16(m, n, k):
    a, b, bias, exact = operands(m, n, k, dtype="bfloat16")
    func = scheduled(product(m, n, k, dtype="bfloat16"), amx.target("-num-cores=2"))
    found = np.full((m, n), np.nan, np.float32)
    weft.build(func, amx.target())(a, b, bias, found)
    np.testing.assert_allclose(found, np.maximum(exact + bias, 0), atol=1e-5 * k**0.5)


def pairs_product(m, n, k) -> PrimFunc:
    """A product of bfloat16 whose columns lie as pairs in panels of 32, padded to whole steps of 32 rows."""
    padded = w_shape(n, -(-k // 32) * 32)
    x, w = te.placeholder((m, k), "bfloat16", name="A"), te.placeholder(padded, "bfloat16", name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        right = w[j // 32, r // 2, (j % 32) * 2 + r % 2]
        return te.sum(ir.cast("float32", x[i, r]) * ir.cast("float32", right), r)

    return te.create_prim_func([x, w, te.compute((m, n), element, name="C")])


def pairs(b, n, k):
    whole = -(-k // 32) * 32
    packed = np.zeros((whole, -(-n // 32) * 32), b.dtype)
    packed[:k, :n] = b
    return np.ascontiguousarray(packed.reshape(whole // 2, 2, -1, 32).transpose(2, 0, 3, 1)).reshape(w_shape(n, whole))


@pytest.mark.parametrize(
    ("rows", "n", "k"),
    [
        ((32,), 32, 32),
        ((33,), 40, 96),
        ((300,), 64, 128),
        ((33,), 40, 50),
        ((0, 1, 2, 31, 33), 72, 102),
        ((0, 1, 2, 4, 5, 31, 33, 36, 100), 72, 96),
    ],
)
def test_pairs_in_panels_are_read_where_they_lie(rows, n, k):
    m = rows[0] if len(rows) == 1 else ir.Var("m", "int64")
    func = scheduled(pairs_product(m, n, k), amx.target("-num-cores=2"))
    assert "C_columns" not in str(func)
    kernel = weft.build(func, amx.target())
    for count in rows:
        a, b, _, exact = operands(count, n, k, dtype="bfloat16")
        found = np.full((count, n), np.nan, np.float32)
        kernel(a, pairs(b, n, k), found)
        np.testing.assert_allclose(found, exact, atol=1e-5 * k**0.5)


def test_products_of_nothing_are_no_tiles():
    func = default_schedule(pairs_product(0, 40, 96), amx.target(), Knobs(FORCED))
    found = np.zeros((0, 40), np.float32)
    a, b, _, _ = operands(0, 40, 96, dtype="bfloat16")
    weft.build(func, amx.target())(a, pairs(b, 40, 96), found)
    assert "tile_dot" not in str(func)


def test_windows_of_pairs_over_images_of_unknown_size_are_copied_in_vectors():
    images, size = ir.Var("n", "int64"), ir.Var("s", "int64")
    x = te.placeholder((images, size + 2, size + 2, 64), "bfloat16", name="A")
    w = te.placeholder((1, 3, 3, 32, 64), "bfloat16", name="B")
    y, z, r = (te.reduce_axis((0, e), name=t) for t, e in (("y", 3), ("z", 3), ("r", 64)))

    def element(i, h, v, o):
        right = w[o // 32, y, z, r // 2, (o % 32) * 2 + r % 2]
        return te.sum(ir.cast("float32", x[i, h + y, v + z, r]) * ir.cast("float32", right), [y, z, r])

    func = scheduled(te.create_prim_func([x, w, te.compute((images, size, size, 32), element, name="C")]), amx.target())
    copied = [
        n.indices[0]
        for n in ir.walk(weft.lower(func)["main"].body)
        if isinstance(n, BufferLoad) and n.buffer.name == "A"
    ]
    assert copied and all(isinstance(i, ir.Ramp) for i in copied)
    kernel, rng = weft.build(func, amx.target()), np.random.default_rng(0)
    b = rng.standard_normal((3, 3, 64, 32)).astype(ml_dtypes.bfloat16)
    for n, s in ((0, 4), (1, 1), (2, 5), (3, 9)):
        a = rng.standard_normal((n, s + 2, s + 2, 64)).astype(ml_dtypes.bfloat16)
        found = np.full((n, s, s, 32), np.nan, np.float32)
        kernel(a, pairs(b.reshape(576, 32), 32, 576).reshape(1, 3, 3, 32, 64), found)
        windows = np.lib.stride_tricks.sliding_window_view(a.astype(np.float64), (3, 3), (1, 2))
        np.testing.assert_allclose(found, np.einsum("nhvcyz,yzco->nhvo", windows, b.astype(np.float64)), atol=3e-4)


def w_shape(n: int, k: int) -> tuple[int, int, int]:
    """The shape of pairs in panels of 32 columns."""
    return -(-n // 32), k // 2, 64


def bytes_product(m, n, k, kind, words) -> PrimFunc:
    """A product of bytes with an epilogue; the columns lie as rows, or as words in panels of 32."""
    x = te.placeholder((m, k), kind, name="A")
    w = te.placeholder((-(-n // 32), k // 4, 128) if words else (k, n), "int8", name="B")
    bias, r = te.placeholder((n,), "int32", name="bias"), te.reduce_axis((0, k), name="r")

    def element(i, j):
        right = w[j // 32, r // 4, (j % 32) * 4 + r % 4] if words else w[r, j]
        return te.sum(ir.cast("int32", x[i, r]) * ir.cast("int32", right), r)

    c = te.compute((m, n), element, name="C")
    return te.create_prim_func([x, w, bias, te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="D")])


def check_bytes(kernel, m, n, k, kind, words) -> list[np.ndarray]:
    rng = np.random.default_rng(m * n + k)
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    a, b = rng.integers(low, high, (m, k)).astype(kind), rng.integers(-128, 128, (k, n)).astype(np.int8)
    bias, given = rng.integers(-99, 99, n).astype(np.int32), b
    if words:
        padded = np.full((k, -(-n // 32) * 32), 77, np.int8)
        padded[:, :n] = b
        given = np.ascontiguousarray(padded.reshape(k // 4, 4, -1, 32).transpose(2, 0, 3, 1)).reshape(-1, k // 4, 128)
    found = np.full((m, n), -1, np.int32)
    kernel(a, given, bias, found)
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64) + bias)
    return [a, given, bias]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 64), (33, 40, 96), (35, 33, 68), (37, 70, 64), (70, 64, 1092)])
def test_bytes(m, n, k, kind, words):
    func = scheduled(bytes_product(m, n, k, kind, words), amx.target("-num-cores=2"))
    assert not words or "C_columns" not in str(func)
    given = check_bytes(weft.build(func, amx.target()), m, n, k, kind, words)
    if m * n * k <= 1 << 16:
        slow = np.full((m, n), -1, np.int32)
        interpret(func, *given, slow)
        left, right = given[0].astype(np.int64), given[1].astype(np.int64)
        if words:
            right = right.reshape(-1, k // 4, 32, 4).transpose(1, 3, 0, 2).reshape(k, -1)[:, :n]
        np.testing.assert_array_equal(slow, left @ right + given[2])


@pytest.mark.parametrize("k", [1, 3, 63, 67])
def test_bytes_of_any_depth(k):
    func = scheduled(bytes_product(33, 17, k, "uint8", False), amx.target("-num-cores=2"))
    check_bytes(weft.build(func, amx.target()), 33, 17, k, "uint8", False)


def test_rows_of_bytes_of_unknown_number():
    m = ir.Var("m", "int64")
    kernel = weft.build(scheduled(bytes_product(m, 96, 132, "uint8", True), amx.target("-num-cores=2")), amx.target())
    for rows in (0, 1, 2, 4, 5, 31, 33, 36, 100):
        check_bytes(kernel, rows, 96, 132, "uint8", True)


@pytest.mark.parametrize(("channels", "stride", "taps"), [(16, 1, 3), (48, 2, 3), (64, 1, 1), (96, 1, 2)])
def test_windows_of_bytes(channels, stride, taps):
    """Summands of a step belong to several places of the window where there are few channels."""
    size, out = 9, (9 - taps) // stride + 1
    x = te.placeholder((2, size, size, channels), "uint8", name="A")
    w = te.placeholder((1, taps, taps, channels // 4, 128), "int8", name="B")
    y, z, r = (te.reduce_axis((0, n), name=t) for n, t in ((taps, "y"), (taps, "z"), (channels, "r")))

    def element(i, h, v, o):
        left, right = x[i, h * stride + y, v * stride + z, r], w[o // 32, y, z, r // 4, (o % 32) * 4 + r % 4]
        return te.sum(ir.cast("int32", left) * ir.cast("int32", right), [y, z, r])

    func = scheduled(te.create_prim_func([x, w, te.compute((2, out, out, 20), element, name="C")]), amx.target())
    assert "C_columns" not in str(func)
    rng = np.random.default_rng(channels)
    a, b = rng.integers(0, 256, (2, size, size, channels)), rng.integers(-128, 128, (taps, taps, channels, 32))
    given = b.reshape(taps, taps, channels // 4, 4, 32).transpose(0, 1, 2, 4, 3).reshape(1, taps, taps, -1, 128)
    found = np.full((2, out, out, 20), -1, np.int32)
    weft.build(func, amx.target())(a.astype(np.uint8), np.ascontiguousarray(given).astype(np.int8), found)
    windows = np.lib.stride_tricks.sliding_window_view(a, (taps, taps), (1, 2))[:, ::stride, ::stride]
    np.testing.assert_array_equal(found, np.einsum("nhvcyz,yzco->nhvo", windows, b)[..., :20])


def test_batches_are_rows_and_the_result_may_be_an_output():
    a, b, _, exact = operands(20, 64, 64, batch=(3, 2))
    func = scheduled(product(20, 64, 64, batch=(3, 2), epilogue=False), amx.target("-num-cores=2"))
    found = np.full(exact.shape, np.nan, np.float32)
    weft.build(func, amx.target())(a, b, found)
    np.testing.assert_allclose(found, exact, atol=2e-5)


def test_batches_of_one_are_no_rows():
    """Neither operand says where in a dimension of one element it is read."""
    a, b = te.placeholder((1, 33, 32), name="A"), te.placeholder((1, 1, 32, 32), name="B")
    r = te.reduce_axis((0, 32), name="r")
    c = te.compute((1, 1, 33, 32), lambda n, g, i, j: te.sum(a[g, i, r] * b[n, g, r, j], r), name="C")
    func = scheduled(te.create_prim_func([a, b, c]), SPR)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((1, 33, 32), (1, 1, 32, 32)))
    found = np.zeros((1, 1, 33, 32), np.float32)
    interpret(func, x, y, found)
    np.testing.assert_allclose(found, x.astype(np.float64) @ y.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_rows_of_unknown_number():
    kernel = weft.build(scheduled(product(ir.Var("m", "int64"), 96, 64), amx.target("-num-cores=2")), amx.target())
    for m in (1, 16, 31, 64, 100, 170):
        a, b, bias, exact = operands(m, 96, 64)
        found = np.full((m, 96), np.nan, np.float32)
        kernel(a, b, bias, found)
        np.testing.assert_allclose(found, np.maximum(exact + bias, 0), atol=2e-5)


SPECIAL = (np.inf, -np.inf, np.nan, -3e38, 1e-40, 2.0**-126, 2.0**-103, -(2.0**50))


@pytest.mark.parametrize("side", [0, 1])
def test_numbers_without_parts_are_multiplied_as_they_are(side):
    kernel = weft.build(scheduled(product(70, 70, 64, epilogue=False), amx.target("-num-cores=2")), amx.target())
    for special in SPECIAL:
        a, b, _, _ = operands(70, 70, 64)
        if abs(special) < 1:  # alone in its row or column, so that it counts
            (a if side == 0 else b.T)[40] = 0
        (a if side == 0 else b.T)[40, 7] = special
        found = np.full((70, 70), 5, np.float32)
        kernel(a, b, found)
        with np.errstate(all="ignore"):
            expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        hit = np.zeros_like(found, dtype=bool)
        (hit if side == 0 else hit.T)[40] = True
        np.testing.assert_allclose(found[hit], expected[hit], rtol=2e-6, atol=0 if abs(special) < 1 else 1e-30)
        np.testing.assert_allclose(found[~hit], expected[~hit], atol=2e-5)


@pytest.mark.parametrize("k", [64, 1024])
def test_errors_are_below_those_of_plain_float32(k):
    plain = Target(str(amx.target()) + " -matrix-tiles=off")
    kernels = [
        weft.build(scheduled(product(64, 64, k, epilogue=False), amx.target()), amx.target()),
        weft.build(default_schedule(product(64, 64, k, epilogue=False), plain), plain),
    ]
    for kind in ("normal", "positive", "scaled", "cancelling", "constant"):
        a, b = badly_conditioned(kind, k)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        errors = []
        for kernel in kernels:
            found = np.full((64, 64), np.nan, np.float32)
            kernel(a, b, found)
            errors.append(np.abs(found - exact) / scale)
        assert np.sqrt((errors[0] ** 2).mean()) <= np.sqrt((errors[1] ** 2).mean()), kind
        assert errors[0].max() <= errors[1].max(), kind


def badly_conditioned(kind: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands whose products are of a kind."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((64, k)), rng.standard_normal((k, 64))
    if kind == "positive":
        a, b = np.abs(a), np.abs(b)
    elif kind == "scaled":
        a, b = a * 2.0 ** rng.integers(-30, 30, a.shape), b * 2.0 ** rng.integers(-30, 30, b.shape)
    elif kind == "cancelling":
        a[:, k // 2 :], b[k // 2 :] = -a[:, : k // 2], b[: k // 2] * (1 + 1e-6)
    elif kind == "constant":
        a[:], b[:] = 1 + 2**-9 - 2**-18, 1 + 2**-9 - 2**-18
    return a.astype(np.float32), b.astype(np.float32)


def test_targets_choose():
    big = product(256, 256, 256)
    assert "tile_dot" in str(default_schedule(big, SPR))
    assert "tile_dot" not in str(default_schedule(big, Target(str(SPR) + " -matrix-tiles=off")))
    assert "tile_dot" not in str(default_schedule(big, Target("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server")))
    assert "tile_dot" not in str(default_schedule(product(4, 256, 256), SPR))
    assert "tile_dot" not in str(default_schedule(product(64, 8, 256), SPR))
    some = ir.Var("m", "int64")
    for func, tiles in (
        (bytes_product(128, 256, 256, "uint8", True), True),
        (bytes_product(some, 256, 256, "uint8", True), True),
        (bytes_product(4, 256, 256, "uint8", True), False),
        (bytes_product(64, 64, 64, "uint8", True), False),
        (bytes_product(some, 256, 256, "uint8", False), False),
        (bytes_product(64, 64, 64, "uint8", False), True),
        (pairs_product(some, 256, 256), True),
        (pairs_product(1, 256, 256), False),
        (pairs_product(5, 256, 256), True),
    ):
        assert ("tile_dot" in str(default_schedule(func, SPR))) is tiles, func


def test_the_option_is_on_or_off():
    with pytest.raises(error.InvalidArgument, match="on or off"):
        Target("llvm -matrix-tiles=maybe")


@pytest.mark.usefixtures("optimised")
def test_assembly():
    text = get_source(default_schedule(product(256, 256, 256), SPR), SPR, fmt="asm")
    products, loads = (len(re.findall(rf"\b{name}\b", text)) for name in ("tdpbf16ps", "tileloadd"))
    assert products % 24 == 0 and products * 16 == loads * 24
    assert len(re.findall(r"\bldtilecfg\b", text)) == len(re.findall(r"\btilerelease\b", text)) == 1


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(("m", "n", "k"), [(37, 70, 75), (64, 32, 64), (33, 1, 40)])
def test_a_batch_of_one(m, n, k, dtype):
    sums = "int32" if dtype == "int8" else dtype
    a, b = te.placeholder((1, m, k), dtype, name="A"), te.placeholder((1, k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((1, m, n), lambda g, i, j: te.sum(a[g, i, r].astype(sums) * b[g, r, j].astype(sums), r), name="C")
    d = te.compute(c.shape, lambda g, i, j: c[g, i, j] * weft.tir.const(2, sums), name="D")
    func = scheduled(te.create_prim_func([a, b, d]), amx.target("-num-cores=2"))
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-128, 128, s).astype(dtype) for s in ((1, m, k), (1, k, n)))
    found = np.full((1, m, n), 77, sums)
    weft.build(func, amx.target())(x, y, found)
    np.testing.assert_allclose(found, 2 * (x.astype("float64") @ y.astype("float64")), rtol=1e-6, atol=1e-2)
