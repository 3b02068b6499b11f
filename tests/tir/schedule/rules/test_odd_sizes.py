"""Rules off the beaten path: columns that fill no panels, few rows, rows shorter than vectors, narrow weights."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from weft import ir, te, tir, topi
from weft.arith.form import conjuncts
from weft.target import Target, build, get_source
from weft.tir.analysis import statements
from weft.tir.pipeline import lower
from weft.tir.schedule import Knobs, default_schedule, explain_schedule
from weft.topi.conv import conv

WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=2")
NARROW = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=2")
TILES = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2")
HOST = Target("llvm")
EITHER = pytest.mark.parametrize("target", [WIDE, HOST], ids=["wide", "host"])  # whose schedule the host runs


def stores(func):
    return stores_in(func.body)


def loops_in(body):
    return [s for s in statements(body) if isinstance(s, tir.For)]


def stores_in(loop):
    return [s for s in statements(loop) if isinstance(s, tir.BufferStore)]


def product(m, k, n, dtype="float32", batch=(), turned=False):
    places = (*batch, n, k) if turned else (*batch, k, n)
    a, b = te.placeholder((*batch, m, k), dtype, name="a"), te.placeholder(places, dtype, name="b")
    r = te.reduce_axis((0, k), name="r")
    at = (lambda i: (*i[:-2], i[-1], r)) if turned else (lambda i: (*i[:-2], r, i[-1]))
    c = te.compute((*batch, m, n), lambda *i: te.sum(a(*i[:-1], r) * b(*at(i)), r), name="c")
    return te.create_prim_func([a, b, c])


@functools.lru_cache(maxsize=8)
def native(func, target):
    return build(func if target is None else default_schedule(func, target), HOST)["main"]


def agrees(func, exact, *arrays, atol=1e-6, target=None):
    """What a function computes, scheduled as it is or for a target, is what it means."""
    found = np.full(exact.shape, 7, arrays[0].dtype)
    native(func, target)(*arrays, found)
    np.testing.assert_allclose(found, exact, rtol=max(atol, 1e-5), atol=atol)


def check(func, m, k, n, dtype="float32", batch=(), targets=(WIDE, HOST), turned=False):
    rng = np.random.default_rng(m + k + n)
    a, b = ((rng.standard_normal(s) * 9).astype(dtype) for s in ((*batch, m, k), (*batch, k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if turned else b
    for target in targets:
        agrees(func, exact, a, b, atol=1e-4 * max(1, abs(exact).max(initial=0)), target=target)


def normal(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def reducing(shape, kind):
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, 1) if kind == "softmax" else getattr(topi, kind)(x, 1)])


def reduced(data, kind):
    wide = data.astype(np.float64)
    e = np.exp(wide)
    return e / e.sum(1, keepdims=True) if kind == "softmax" else getattr(wide, kind)(1)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("sizes", [(33, 77, 129), (50, 64, 50), (40, 9, 17), (4, 1, 33), (0, 3, 5), (3, 0, 5)])
def test_what_panels_have_more_than_columns_is_zero(sizes, dtype, batch):
    func = product(*sizes, dtype, batch)
    check(func, *sizes, dtype, batch)
    if sizes == (33, 77, 129) and not batch:
        nests = [f for f in statements(default_schedule(func, WIDE).body) if isinstance(f, tir.For)]
        filled = [f for f in nests if any(s.buffer.name == "b_global" and "b[" not in str(s) for s in stores_in(f))]
        assert filled and int(filled[0].extent) == 1, "the last panel alone"


def test_columns_of_unknown_number():
    m, k, n = (te.size_var(x, "int64") for x in "mkn")
    func = product(m, k, n)
    for sizes in ((33, 77, 129), (1, 64, 513), (5, 3, 1), (2, 3, 0), (0, 3, 2), (2, 0, 3)):
        check(func, *sizes)
        check(product(sizes[0], k, n), *sizes)
    check(product(m, k, n, turned=True), 33, 77, 129, targets=(HOST,), turned=True)


@pytest.mark.parametrize(("rows", "copied"), [(1, False), (2, False), (3, True)])
def test_one_or_two_rows_read_the_second_operand_as_it_lies(rows, copied):
    func = product(rows, 64, 513, batch=(4,))
    assert any("b_global" in s.buffer.name for s in stores(default_schedule(func, WIDE))) == copied
    check(func, rows, 64, 513, batch=(4,))
    refusals = explain_schedule(func, WIDE).kernels[0].record.refusals
    assert copied or any("few rows" in str(r) for r in refusals)


@pytest.mark.parametrize("sizes", [[(9, 11)], [(9, 11), (3, 2), (1, 13), (21, 1), (0, 4)]])
def test_taps_that_read_only_padding_are_left_out(sizes):
    h, n = sizes[0] if len(sizes) == 1 else (te.size_var("h", "int64"), te.size_var("n", "int64"))
    x, w = te.placeholder((1, h, n, 16), name="x"), te.placeholder((1, 3, 3, 16, 16), name="w")
    func = te.create_prim_func([x, w, conv(x, w, 1, 4, 4, 1, "NHWC", "OHWI16o", channels=16)])
    scheduled = default_schedule(func, HOST)
    tested = [
        r for r in statements(scheduled.body) if isinstance(r, tir.BlockRealize) and not ir.is_const_int(r.predicate, 1)
    ]
    padded, sums = ([r for r in tested if (r.block.name_hint == "pad") is own] for own in (True, False))
    assert len(padded) == 1 and "4 <=" in str(padded), "rows of zeros that no sum reads are not written"
    assert sums and all(len(conjuncts(r.predicate)) >= 4 for r in sums), "on all four sides"
    for h, n in sizes:
        a, b = normal(1, (1, h, n, 16)), normal(2, (1, 3, 3, 16, 16))
        padded = np.pad(a, ((0, 0), (4, 4), (4, 4), (0, 0)))
        exact = sum(padded[:, 4 * i : 4 * i + h, 4 * j : 4 * j + n] @ b[0, i, j] for i in range(3) for j in range(3))
        agrees(scheduled, exact, a, b, atol=1e-4)


def test_padding_that_is_a_result_is_whole():
    x, w = te.placeholder((1, 3, 5, 16), name="x"), te.placeholder((1, 3, 3, 16, 16), name="w")
    sums = conv(x, w, 1, 4, 4, 1, "NHWC", "OHWI16o", channels=16)
    schedule = tir.Schedule(te.create_prim_func([x, w, sums.op.input_tensors[0], sums]))
    block = schedule.get_sblock("T_conv")
    schedule.decompose_reduction(block, schedule.get_loops(block)[4])
    schedule.skip_zeros(schedule.get_sblock("T_conv_update"))
    data, found = np.ones((1, 3, 5, 16), np.float32), np.full((1, 11, 13, 16), 7, np.float32)
    native(schedule.func, None)(data, np.ones((1, 3, 3, 16, 16), np.float32), found, np.empty_like(data))
    np.testing.assert_array_equal(found, np.pad(data, ((0, 0), (4, 4), (4, 4), (0, 0))))


@pytest.mark.parametrize(("outer", "copied"), [(1, False), (4, True)])
def test_rows_around_those_of_tiles_read_a_copy_too(outer, copied):
    a, b = te.placeholder((outer, 1, 28, 128), name="a"), te.placeholder((2, 128, 128), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    assert any("b_global" in s.buffer.name for s in stores(default_schedule(func, WIDE))) == copied


@pytest.mark.parametrize(
    ("sizes", "dtype", "batch"),
    [
        ((8, 70, 300), "float32", ()),
        ((2, 17, 530), "float64", ()),
        ((33, 64, 259), "float32", (3,)),
        ((5, 3, 257), "int32", (2,)),
        ((4, 0, 300), "float32", ()),
        ((0, 5, 300), "float32", ()),
    ],
)
def test_panels_of_a_turned_operand_are_copied_where_they_are_read(sizes, dtype, batch):
    m, k, n = sizes
    func = product(m, k, n, dtype, batch, turned=True)
    for rows in (m, te.size_var("m", "int64")):
        check(product(rows, k, n, dtype, batch, turned=True), m, k, n, dtype, batch, (HOST,), turned=True)
    outer = [f for f in statements(default_schedule(func, WIDE).body) if isinstance(f, tir.For)]
    if sizes == (8, 70, 300) and not batch:
        assert any({"b_global", "c"} <= {s.buffer.name for s in stores_in(f)} for f in outer), "one task has both"
        gathers = [f for f in outer if "pragma_transpose" in f.annotations]
        assert gathers and all(s.buffer.name.startswith("b_global") for f in gathers for s in stores_in(f))


@pytest.mark.parametrize("sizes", [(8, 1024, 1000), (33, 512, 999)])
def test_panels_that_end_inside_a_vector_are_copied_where_they_are_read(sizes):
    func = product(*sizes)
    check(func, *sizes, targets=(HOST,))
    nests = [f for f in statements(default_schedule(func, WIDE).body) if isinstance(f, tir.For)]
    assert any({"b_global", "c"} <= {s.buffer.name for s in stores_in(f)} for f in nests)


@pytest.mark.parametrize("n", [1, 3, 7, 8, 9, 15, 16, 17, 29, 31, 33])
@pytest.mark.parametrize("kind", ["softmax", "max", "sum"])
def test_short_rows(n, kind):
    func, data = default_schedule(reducing((5, n), kind), WIDE), normal(n, (5, n))
    agrees(func, reduced(data, kind), data)
    partial = [s for s in stores(func) if "_rf" in s.buffer.name]
    assert bool(partial) == (n >= 8)


@pytest.mark.parametrize("n", [129, 333, 1001])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (0,)])
def test_no_strip_of_columns_asks_where_its_columns_end(n, dtype, shape):
    x, axes = te.placeholder((*shape, n), dtype, name="x"), tuple(range(len(shape)))
    func = te.create_prim_func([x, topi.max(x, axes)])
    blocks = [r for r in statements(default_schedule(func, NARROW).body) if isinstance(r, tir.BlockRealize)]
    assert all(ir.is_const_int(r.predicate, 1) for r in blocks)
    data = np.random.default_rng(n).integers(-99, 99, (*shape, n)).astype(dtype)
    exact = data.astype(np.float64).max(axes, initial=-128 if dtype == "int8" else -np.inf)
    for target in (NARROW, WIDE):
        agrees(func, exact, data, target=target)
    default_schedule(func, NARROW, asked := Knobs())
    for name, knob in asked.asked.items():  # what is decided is decided for the whole strips
        default_schedule(func, NARROW, decided := Knobs({name: max(knob.candidates)}))
        assert not decided.unused() and decided.asked[name].chosen == max(knob.candidates) > 2


@pytest.mark.parametrize(
    ("sizes", "tiles"), [((512, 512, 512), True), ((512, 64, 512), True), ((128, 3072, 768), False)]
)
def test_matrix_tiles_pay_where_packing_is_little(sizes, tiles):
    m, k, n = sizes
    a, w = te.placeholder((m, k), name="a"), te.placeholder((n // 32, k, 32), name="w")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j // 32, r, j % 32], r), name="c")
    record = explain_schedule(te.create_prim_func([a, w, c]), TILES).kernels[0].record
    assert (record.taken["c"] == "matrix tiles") == tiles


def test_windows_are_not_packed_for_matrix_tiles():
    x, w = te.placeholder((1, 56, 56, 64), name="x"), te.placeholder((3, 3, 64, 64), name="w")
    func = te.create_prim_func([x, w, conv(x, w, 1, 1, 1, 1, "NHWC", "HWIO")])
    assert explain_schedule(func, TILES).kernels[0].record.taken["T_conv"] == "contraction"


@pytest.mark.parametrize("shape", [(9, 64, 32), (5, 12, 40)])
def test_half_precision_weights_are_widened_one_step_at_a_time(shape):
    m, k, n = shape
    a, w = te.placeholder((m, k), name="a"), te.placeholder((-(-n // 32), k, 32), "float16", name="w")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * ir.cast("float32", w[j // 32, r, j % 32]), r), name="c")
    func = default_schedule(te.create_prim_func([a, w, c]), WIDE)
    x, y = normal(0, (m, k)), normal(1, (-(-n // 32), k, 32)).astype(np.float16)
    exact = x.astype(np.float64) @ y.transpose(1, 0, 2).reshape(k, -1)[:, :n].astype(np.float64)
    agrees(func, exact, x, y, atol=1e-4)
    sums = [f for f in statements(func.body) if isinstance(f, tir.For) and int(f.extent) == k]
    assert sums, "the sum is one loop of single steps"


def test_what_a_written_block_reads_is_computed_before_it():
    x = te.placeholder((6, 5), name="x")
    turned = topi.transpose(x, (1, 0))

    def body(ins, outs):
        ib = tir.ir_builder.create()
        a, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 5) as i:
            out[i] = a[i, 0]
            with ib.for_range(1, 6) as j:
                out[i] = out[i] + a[i, j]
        return ib.get()

    out = te.extern((5,), [turned], body, name="summed", dtype="float32")
    func = default_schedule(te.create_prim_func([x, out]), WIDE)
    assert any(s.buffer.name.startswith("T_transpose") for s in stores(func))
    data = np.arange(30, dtype=np.float32).reshape(6, 5)
    agrees(func, data.sum(0), data)


@EITHER
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("shape", "window", "step", "pad"),
    [
        ((2, 5, 21, 37), (3, 3), (2, 2), 1),
        ((1, 9, 14, 31), (4, 5), (2, 3), 2),
        ((3, 7, 5, 53), (1, 7), (1, 5), 0),
        ((1, 33, 9, 8), (4, 5), (2, 1), 1),
        ((1, 1, 40, 40), (3, 3), (2, 2), 1),
        ((2, 3, 7, 50), (3, 3), (1, 3), 1),
        ((1, 2, 7, 68), (2, 2), (3, 7), 0),
        ((1, 2, 5, 49), (1, 3), (1, 3), 0),
    ],
)
def test_windows_are_read_in_vectors(shape, window, step, pad, kind, target):
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.nn.pool2d(x, window, step, 1, (pad,) * 4, kind)])
    assert "windows" in explain_schedule(func, WIDE).kernels[0].record.taken.values()
    data = normal(0, shape)
    fill = {"constant_values": -np.inf if kind == "max" else 0}
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)), **fill)
    seen = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3))[:, :, :: step[0], :: step[1]]
    exact = seen.max((-1, -2)) if kind == "max" else seen.mean((-1, -2))
    agrees(func, exact, data, target=target)


@EITHER
@pytest.mark.parametrize("shape", [(2, 3, 4, 65), (1, 8, 3, 149), (1, 2, 9, 33), (1, 5, 2, 16), (1, 4, 1, 301)])
@pytest.mark.parametrize(("channels", "size"), [(3, 3), (1, 3), (4, 1)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_rows_of_pixels_end_without_masks(shape, channels, size, symbolic, target):
    n, c, h, w = shape
    places = [te.size_var(name, "int64") for name in "hw"] if symbolic else [h, w]
    x, k = te.placeholder((n, c, *places), name="x"), te.placeholder((channels, c, size, size), name="k")
    func = te.create_prim_func([x, k, conv(x, k, 1, size // 2, 1, 1, "NCHW", "OIHW")])
    data, kernel = normal(w, shape), normal(n, (channels, c, size, size))
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (size // 2,) * 2, (size // 2,) * 2))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", seen, kernel)
    agrees(func, exact, data, kernel, atol=1e-4, target=target)


OF = [(lambda a, b: (a - b) * (a - b), lambda a, b: (a - b) ** 2), (lambda a, b: tir.max(a, b), np.maximum)]
PAIRS = [[(1, 37, 50, 19)], [(2, 16, 33, 64)], [(1, 37, 50, 19), (3, 5, 1, 7), (1, 0, 4, 3), (2, 3, 4, 0)]]


@pytest.mark.parametrize(("of", "exact"), OF)
@pytest.mark.parametrize("every", PAIRS)
def test_sums_over_pairs_are_tiled(of, exact, every):
    batch, m, n, depth = every[0] if len(every) == 1 else [te.size_var(x, "int64") for x in "bmnk"]
    x, y = (te.placeholder((batch, rows, depth), name=name) for rows, name in ((m, "x"), (n, "y")))
    k = te.reduce_axis((0, depth), "k")
    z = te.compute((batch, m, n), lambda b, i, j: te.sum(of(x[b, i, k], y[b, j, k]), axis=k), name="z")
    func = te.create_prim_func([x, y, z])
    assert "contraction" in explain_schedule(func, WIDE).kernels[0].record.taken.values()
    kernel = build(default_schedule(func, HOST), HOST)["main"]
    for sizes in every:
        found = np.full(sizes[:3], np.nan, np.float32)
        a, b = (normal(rows, (sizes[0], rows, sizes[3])) for rows in sizes[1:3])
        kernel(a, b, found)
        wanted = exact(a.astype(float)[:, :, None], b.astype(float)[:, None]).sum(-1)
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("perm", [(2, 1, 0), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_what_fills_no_tile_of_a_transpose_of_unknown_size_is_not_masked(perm, dtype):
    names = [te.size_var(f"d{i}", "int64") for i in range(3)]
    x = te.placeholder(names, dtype, name="x")
    func = default_schedule(te.create_prim_func([x, topi.transpose(x, perm)]), HOST)
    kernel = build(func, HOST)["main"]
    for sizes in ((1, 5, 6), (0, 4, 3), (3, 0, 2), (17, 19, 40), (2, 33, 1), (16, 3, 35)):
        data = np.random.default_rng(1).standard_normal(sizes).astype(dtype)
        found = np.zeros([sizes[i] for i in perm], dtype)
        kernel(data, found)
        np.testing.assert_array_equal(found, data.transpose(perm))
    tiles = [f for f in loops_in(func.body) if "pragma_transpose" in f.annotations]
    assert len(tiles) == 1
    inner = [f for f in loops_in(func.body) if not loops_in(f.body)]
    assert any(names[2] in set(ir.walk(f.extent)) for f in inner)  # what is left is read as it lies


def test_places_of_short_rows_are_found_for_many_at_once():
    x = te.placeholder((5, 1, 34, 1, 23, 1, 8), name="x")
    y = te.compute((5, 2, 34, 2, 23, 2, 8), lambda a, b, c, d, e, f, g: x[a, 0, c, 0, e, 0, g], name="y")
    func = default_schedule(te.create_prim_func([x, y]), HOST)
    assert [ir.as_int(f.extent) for f in loops_in(func.body)][-3:] == [23, 2, 8]
    data = normal(0, (5, 1, 34, 1, 23, 1, 8))
    agrees(func, np.broadcast_to(data, (5, 2, 34, 2, 23, 2, 8)), data)


@EITHER
@pytest.mark.parametrize("operator", ["softmax", "sum", "max"])
@pytest.mark.parametrize("columns", [2, 3, 7, 9])
@pytest.mark.parametrize(("rows", "static"), [(1, True), (15, False), (64, True), (203, False)])
def test_few_columns_are_reduced_several_rows_at_a_time(operator, columns, rows, static, target):
    func = reducing((3, rows if static else te.size_var("n", "int64"), columns), operator)
    data = normal(rows, (3, rows, columns))
    agrees(func, reduced(data, operator), data, atol=1e-5, target=target)
    text = get_source(default_schedule(func, WIDE), WIDE, "ll")
    assert columns > 8 or "gather" not in text
    assert columns > 8 or rows < 64 or "load <16 x float>" in text


@EITHER
@pytest.mark.parametrize("channels", [6, 12, 16, 128])
def test_rows_whose_divisors_are_known_have_no_rests(channels, target):
    n, w = (te.size_var(name, "int64") for name in "nw")
    high, one, c = (tir.const(size, "int64") for size in (4, 1, channels))
    x = te.placeholder((n, high, w // 4 + 1, c), name="x")
    axes = [te.reduce_axis((0, size)) for size in (high, one)]
    y = te.compute(
        (n, one, w // 4 + 1, c), lambda b, i, j, c: te.sum(x[b, i * 4 + axes[0], j + axes[1], c], axes), name="y"
    )
    data = normal(channels, (3, 4, 5, channels))
    found = np.full((3, 1, 5, channels), 7, np.float32)
    native(te.create_prim_func([x, y, w]), target)(data, found, 17)
    np.testing.assert_allclose(found, data.astype(np.float64).sum(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("kind", ["softmax", "max", "sum"])
def test_short_rows_of_unknown_length_have_a_loop_of_their_own(kind):
    func = reducing((5, ir.Var("n", "int64")), kind)
    body = lower(default_schedule(func, HOST), HOST).body
    [either] = [s for s in statements(body) if isinstance(s, tir.IfThenElse) and s.else_case is not None]
    branches = either.then_case, either.else_case
    few, many = ([x for x in statements(s) if isinstance(x, tir.AllocBuffer)] for s in branches)
    assert 0 < len(few) < len(many) and all(ir.as_int(d) and ir.as_int(d) <= 96 for a in few for d in a.buffer.shape)
    for n in (0, 1, 3, 8, 18, 77, 96, 97, 300)[kind == "max" :]:
        data = normal(n, (5, n))
        agrees(func, reduced(data, kind), data, target=HOST)
