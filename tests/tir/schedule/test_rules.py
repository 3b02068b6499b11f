"""Every rule gives a function that computes what the unscheduled one does, over sizes of one, odd sizes and symbolic
sizes.
"""

import numpy as np
import pytest

from tests.tir.schedule.run_scheduled import run
from weft import machine, te, tir, topi
from weft.ir import CallIntrin, DataType, FloorMod, Var, as_int, int64, walk
from weft.target import Target, build
from weft.tir.analysis import statements
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule
from weft.tir.schedule.rules.record import ScheduleRecord
from weft.tir.schedule.rules.select import schedule_of
from weft.tir.schedule.rules.tile import Problem, choose_tile
from weft.topi.conv import conv

TARGET = machine.Machine(cores=2)
HOST = Target("llvm")
AVX2 = Target("llvm -mcpu=haswell")
FAR = Target("llvm -mcpu=haswell -num-cores=2 -l2-cache-bytes=4096")
WIDE = machine.Machine(vector_bits=512, vector_registers=32, cores=2)


def compare(func, *arrays, outputs: int = 1, target=TARGET, rtol: float = 2e-5):
    """Run a function unscheduled, scheduled, and scheduled as native code; return the schedule."""
    plain = [a.copy() for a in arrays]
    run(func, *plain)
    sch = schedule_of(func, target)
    found = [a.copy() for a in arrays]
    run(sch.func, *found)
    native = [a.copy() for a in arrays]
    build(sch.func, HOST)["main"](*native)
    for x, y, z in zip(found[-outputs:], plain[-outputs:], native[-outputs:], strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-5)
        np.testing.assert_allclose(z, y, rtol=max(rtol, 2e-5), atol=1e-5)
    return sch


def kinds(sch):
    return [s.kind for s in statements(sch.func.body) if isinstance(s, tir.For)]


def rand(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def sym(static, n, name="n"):
    return n if static else te.size_var(name, "int64")


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 16), (5, 33), (40, 64)])
def test_elementwise_chain(shape, static):
    n, m = sym(static, shape[0]), sym(static, shape[1], "m")
    x, b = te.placeholder((n, m), name="X"), te.placeholder((m,), name="bias")
    y = te.compute((n, m), lambda i, j: x[i, j] + b[j], name="Y")
    z = te.compute((n, m), lambda i, j: tir.max(y[i, j], tir.const(0.0, "float32")), name="Z")
    sch = compare(te.create_prim_func([x, b, z]), rand(*shape), rand(shape[1]), np.zeros(shape, np.float32))
    assert sch.state.block_names().count("Y") == 0
    if shape[1] > 4 or not static:
        assert tir.ForKind.VECTORIZED in kinds(sch)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 7), (3, 1, 1)])
def test_flat_elementwise_fuses_all(shape):
    x = te.placeholder(shape, name="X")
    y = te.compute(shape, lambda i, j, k: x[i, j, k] * 2.0, name="Y")
    sch = compare(te.create_prim_func([x, y]), rand(*shape), np.zeros(shape, np.float32))
    assert len({v.name for v in [s.loop_var for s in statements(sch.func.body) if isinstance(s, tir.For)]}) <= 3


@pytest.mark.parametrize("shape", [(5, 7), (1, 9), (777, 48), (513, 17), (64, 600), (29, 70), (100, 3), (3, 90)])
@pytest.mark.parametrize(("dtype", "static"), [("float32", True), ("float32", False), ("uint8", True), ("int64", True)])
def test_transpose(shape, static, dtype):
    n, m = sym(static, shape[0]), sym(static, shape[1], "m")
    x = te.placeholder((n, m), dtype, name="X")
    y = te.compute((m, n), lambda i, j: x[j, i], name="Y")
    compare(te.create_prim_func([x, y]), (9 * abs(rand(*shape))).astype(dtype), np.zeros(shape[::-1], dtype))


def softmax(n, k, axis=1):
    x, (rows, length) = te.placeholder((n, k), name="X"), (n, k) if axis else (k, n)
    r, r2 = te.reduce_axis((0, length), "r"), te.reduce_axis((0, length), "r2")
    m = te.compute((rows,), lambda i: te.max(x[i, r] if axis else x[r, i], axis=r), name="M")
    e = te.compute((n, k), lambda *i: tir.exp(x(*i) - m[i[1 - axis]]), name="E")
    s = te.compute((rows,), lambda i: te.sum(e[i, r2] if axis else e[r2, i], axis=r2), name="S")
    return te.create_prim_func([x, te.compute((n, k), lambda *i: e(*i) / s[i[1 - axis]], name="Y")])


@pytest.mark.parametrize("target", [TARGET, WIDE])
@pytest.mark.parametrize("axis", [1, 0])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 64), (2, 77), (3, 16)])
def test_softmax(shape, static, axis, target):
    func = softmax(sym(static, shape[0]), sym(static, shape[1], "k"), axis)
    sch = compare(func, rand(*shape), np.zeros(shape, np.float32), target=target)
    assert sch.trace.insts
    assert len(root_loops(sch)) == 1


def root_loops(sch):
    body = sch.state.root.body
    return body.seq if isinstance(body, tir.SeqStmt) else [body]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 3, 64), (2, 2, 33)])
def test_layer_norm(shape, static):
    b, s, k = sym(static, shape[0]), sym(static, shape[1], "s"), shape[2]
    x, g = te.placeholder((b, s, k), name="X"), te.placeholder((k,), name="G")
    r, r2 = te.reduce_axis((0, k), "r"), te.reduce_axis((0, k), "r2")
    total = te.compute((b, s), lambda i, j: te.sum(x[i, j, r], axis=r), name="T")
    apart = te.compute((b, s, k), lambda i, j, c: x[i, j, c] - total[i, j] / float(k), name="D")
    sq = te.compute((b, s), lambda i, j: te.sum(apart[i, j, r2] * apart[i, j, r2], axis=r2), name="V")
    scale = te.compute((b, s), lambda i, j: tir.sqrt(sq[i, j] / float(k) + 1e-5), name="Scale")
    y = te.compute((b, s, k), lambda i, j, c: apart[i, j, c] / scale[i, j] * g[c], name="Y")
    sch = compare(te.create_prim_func([x, g, y]), rand(*shape), rand(k), np.zeros(shape, np.float32), rtol=1e-4)
    assert len(root_loops(sch)) == 1


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 4, 40), (1, 7, 33), (3, 5, 333)])
@pytest.mark.parametrize("kind", [te.sum, te.max])
def test_reduce_axes(shape, axes, kind):
    target = FAR if shape[2] > 256 else TARGET  # rows from beyond the second cache are read whole
    x = te.placeholder(shape, name="X")
    ks = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]

    def body(*i):
        it, red = iter(i), iter([k.var for k in ks])
        return kind(x[tuple(next(red) if d in axes else next(it) for d in range(3))], axis=ks)

    out_shape = tuple(d for a, d in enumerate(shape) if a not in axes) or (1,)
    y = te.compute(out_shape, body, name="Y")
    func = te.create_prim_func([x, y])
    sch = compare(func, rand(*shape), np.zeros(out_shape, np.float32), target=target, rtol=1e-4)
    assert target is TARGET or axes != (1,) or as_int(root_loops(sch)[0].extent) == 3


@pytest.mark.parametrize("shape", [(1, 7, 7, 5), (2, 6, 5, 32)])
def test_max_pool_nhwc(shape):
    n, h, w, c = shape
    x = te.placeholder(shape, name="X")
    y = topi.nn.pool2d(x, (3, 3), (2, 2), 1, (1,) * 4, "max", layout="NHWC")
    compare(te.create_prim_func([x, y]), rand(*shape), np.zeros((n, (h + 1) // 2, (w + 1) // 2, c), np.float32))


def test_two_outputs_and_an_argmax():
    x = te.placeholder((5, 9), name="X")
    r = te.reduce_axis((0, 9), "r")
    reducer = te.comm_reducer(
        lambda a, b: (tir.Select(a[1] >= b[1], a[0], b[0]), tir.Select(a[1] >= b[1], a[1], b[1])),
        lambda t0, t1: (tir.const(-1, t0), te.lowest(t1)),
    )
    index, best = te.compute((5,), lambda i: reducer((r.var, x[i, r]), axis=r), name="arg")
    func = te.create_prim_func([x, index, best, te.compute((5, 9), lambda i, j: x[i, j] + 1.0, name="Y")])
    compare(func, rand(5, 9), np.zeros(5, "int32"), np.zeros(5, np.float32), np.zeros((5, 9), np.float32), outputs=3)


def packed_gemm(m, n, k, panel, bias=True):
    a, w, b = (
        te.placeholder((m, k), name="A"),
        te.placeholder((-(-n // panel), k, panel), name="W"),
        te.placeholder((n,), name="B"),
    )
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j // panel, r, j % panel], axis=r), name="C")
    if not bias:
        return te.create_prim_func([a, w, c])
    d = te.compute((m, n), lambda i, j: c[i, j] + b[j], name="D")
    e = te.compute((m, n), lambda i, j: tir.max(d[i, j], tir.const(0, "float32")), name="E")
    return te.create_prim_func([a, w, b, e])


@pytest.mark.parametrize("target", [TARGET, WIDE])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(1, 40, 16), (13, 32, 20), (7, 33, 5), (29, 64, 9), (26, 40, 6), (37, 45, 5)])
def test_packed_gemm(shape, static, target):
    m, n, k = shape
    func = packed_gemm(sym(static, m), n, k, 32)
    w = rand(-(-n // 32), k, 32)
    sch = compare(func, rand(m, k), w, rand(n), np.zeros((m, n), np.float32), target=target)
    assert refusals(func, target) == []
    assert {tir.ForKind.VECTORIZED, tir.ForKind.UNROLLED} <= set(kinds(sch))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(1031,), (64, 17), (300, 5), (2, 3)])
@pytest.mark.parametrize("static", [True, False])
def test_costly_functions_of_one_byte_are_looked_up(shape, static, dtype):
    x = te.placeholder(tuple(sym(static, n, f"n{n}") for n in shape), dtype, "x")
    data = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape).astype(dtype)

    def has_table(element):
        y = te.compute(x.shape, lambda *i: element(tir.tanh(x(*i).astype("float32") * 0.01) + 0.5, *i) * 2.0, "y")
        return "y_table" in str(compare(te.create_prim_func([x, y]), data, np.zeros(shape, np.float32)).func)

    assert has_table(lambda v, *_: v * v) == (shape != (2, 3) or not static)
    assert not has_table(lambda v, *i: v + i[0].astype("float32"))


def refusals(func, target):
    record = ScheduleRecord("main")
    schedule_of(func, target, record=record)
    return record.refusals


@pytest.mark.parametrize("target", [TARGET, WIDE])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 7, 6), (1, 9, 32, 3), (3, 16, 33, 8)])
def test_batched_matmul(shape, transposed, static, target):
    b, m, n, k = shape
    sb, sm, sn = sym(static, b, "b"), sym(static, m, "m"), sym(static, n, "n")
    x = te.placeholder((sb, sm, k), name="X")
    y = te.placeholder((sb, sn, k) if transposed else (sb, k, sn), name="Y")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (sb, sm, sn), lambda h, i, j: te.sum(x[h, i, r] * (y[h, j, r] if transposed else y[h, r, j]), axis=r), name="C"
    )
    func = te.create_prim_func([x, y, te.compute((sb, sm, sn), lambda h, i, j: c[h, i, j] * 0.5, name="D")])
    right = rand(*((b, n, k) if transposed else (b, k, n)))
    compare(func, rand(b, m, k), right, np.zeros((b, m, n), np.float32), target=target)
    if static and m * n * k >= 256 or not static:
        assert refusals(func, target) == []


def conv2d(n, h, w, ci, co, kernel, stride, pad, panel, epilogue=True):
    x = te.placeholder((n, h, w, ci), name="X")
    weight = te.placeholder((-(-co // panel), *kernel, ci, panel), name="W")
    bias = te.placeholder((co,), name="bias")
    c = conv(x, weight, stride, pad, 1, 1, "NHWC", f"OHWI{panel}o", channels=co)
    y = te.compute(c.shape, lambda *i: tir.max(c(*i) + bias[i[-1]], tir.const(0, "float32")), name="Y")
    return te.create_prim_func([x, weight, bias, y])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    "case",
    [
        (1, 7, 7, 8, 16, (3, 3), 1, 1),
        (2, 5, 6, 3, 20, (3, 2), 2, 0),
        (1, 6, 9, 8, 40, (1, 1), 1, 0),
        (2, 9, 7, 4, 32, (1, 1), 2, 0),
        (1, 1, 1, 8, 8, (1, 1), 1, 0),
    ],
)
def test_conv2d(case, static):
    n, h, w, ci, co, kernel, stride, pad = case
    func = conv2d(n, sym(static, h, "h"), sym(static, w, "w"), ci, co, kernel, stride, pad, 16)
    oh, ow = (h + 2 * pad - kernel[0]) // stride + 1, (w + 2 * pad - kernel[1]) // stride + 1
    compare(
        func, rand(n, h, w, ci), rand(-(-co // 16), *kernel, ci, 16), rand(co), np.zeros((n, oh, ow, co), np.float32)
    )
    if case[1] > 1:
        assert refusals(func, TARGET) == []


@pytest.mark.parametrize(("batch", "size"), [(1, 6), (None, 6), (None, None)])
def test_large_weights_stay_while_rows_and_batches_pass(batch, size):
    """Nine panels, more than a megabyte, are the outermost loop (18 halves); an unknown batch is taken to be one."""
    func = conv2d(batch or sym(0, 1), size or sym(0, 6, "h"), size or sym(0, 6, "w"), 256, 144, (3, 3), 1, 1, 16)
    blocks = [x for x in statements(schedule_of(func, TARGET).func.body) if isinstance(x, tir.BlockRealize)]
    assert not any("144" in str(x.predicate) for x in blocks), "each product would ask whether its column is one"
    tiles = [x for x in blocks if x.block.name_hint.startswith("Y")]
    assert tiles
    for x in tiles:
        inner = [n for n in walk(x.iter_values[-1]) if isinstance(n, FloorMod) and as_int(n.b) in (9, 18)]
        assert not inner, "panels would change before rows do"


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    "case", [(1, 7, 7, 8, 3, 1, 1), (2, 9, 6, 5, 3, 2, 1), (1, 12, 8, 33, 5, 1, 2), (1, 5, 5, 16, 3, 1, 0)]
)
def test_depthwise(case, static):
    n, h, w, c, k, stride, pad = case
    sh, sw = sym(static, h, "h"), sym(static, w, "w")
    x, weight = te.placeholder((n, sh, sw, c), name="X"), te.placeholder((k, k, 1, c), name="W")
    d = conv(x, weight, stride, pad, 1, c, "NHWC", "HWIO")
    y = te.compute(d.shape, lambda *i: tir.max(d(*i), tir.const(0, "float32")), name="Y")
    func = te.create_prim_func([x, weight, y])
    ho, wo = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    compare(func, rand(n, h, w, c), rand(k, k, 1, c), np.zeros((n, ho, wo, c), np.float32))
    assert refusals(func, TARGET) == []


@pytest.mark.parametrize(
    "make",
    [lambda: softmax(5, 40), lambda: packed_gemm(29, 64, 9, 32), lambda: conv2d(1, 7, 7, 8, 16, (3, 3), 1, 1, 16)],
)
def test_a_rule_is_a_list_of_primitives(make):
    """What a rule did replays on a fresh copy of the function from its printable trace alone."""
    sch = schedule_of(make(), WIDE)
    again = tir.schedule.Schedule(make())
    sch.trace.apply_to_schedule(again)
    assert again.state.block_names() == sch.state.block_names()
    assert [type(s).__name__ for s in statements(again.func.body)] == [
        type(s).__name__ for s in statements(sch.func.body)
    ]
    assert kinds(again) == kinds(sch)
    assert "RV(" not in str(sch.trace)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (1, 33)])
def test_concat_gather_pad_and_strided_slice(shape, static):
    n, m = sym(static, shape[0]), shape[1]
    x, idx = te.placeholder((n, m), name="X"), te.placeholder((4,), "int64", name="I")
    cat = te.compute((n, 2 * m), lambda i, j: tir.if_then_else(j < m, x[i, j], x[i, j - m] * 2.0), name="cat")
    out = te.compute((n, 4), lambda i, j: cat[i, idx[j]], name="Y")
    taken = np.array([0, 2, 2 * m - 1, m], "int64")
    compare(te.create_prim_func([x, idx, out]), rand(*shape), taken, np.zeros((shape[0], 4), np.float32))
    step = te.compute((n, (m + 1) // 2), lambda i, j: x[i, j * 2], name="Y")
    compare(te.create_prim_func([x, step]), rand(*shape), np.zeros((shape[0], (m + 1) // 2), np.float32))


def test_grouped_and_transposed_convolution_and_resize():
    x, w = te.placeholder((1, 6, 5, 8), name="X"), te.placeholder((3, 3, 4, 6), name="W")
    rh, rw, rc = te.reduce_axis((0, 3), "rh"), te.reduce_axis((0, 3), "rw"), te.reduce_axis((0, 4), "rc")
    y = te.compute(
        (1, 4, 3, 6),
        lambda b, i, j, o: te.sum(x[b, i + rh, j + rw, o // 3 * 4 + rc] * w[rh, rw, rc, o], axis=[rh, rw, rc]),
        name="Y",
    )
    compare(te.create_prim_func([x, w, y]), rand(1, 6, 5, 8), rand(3, 3, 4, 6), np.zeros((1, 4, 3, 6), np.float32))
    dilated = te.compute(
        (1, 13, 11, 8),
        lambda b, i, j, c: tir.if_then_else(
            tir.all(i >= 1, j >= 1, (i - 1) % 2 == 0, (j - 1) % 2 == 0, i < 13, j < 11),
            x[b, (i - 1) // 2, (j - 1) // 2, c],
            0.0,
        ),
        name="dilated",
    )
    w2 = te.placeholder((1, 3, 3, 8, 16), name="W2")
    rc = te.reduce_axis((0, 8), "rc")
    y = te.compute(
        (1, 11, 9, 10),
        lambda b, i, j, o: te.sum(dilated[b, i + rh, j + rw, rc] * w2[o // 16, rh, rw, rc, o % 16], axis=[rh, rw, rc]),
        name="Y",
    )
    compare(
        te.create_prim_func([x, w2, y]), rand(1, 6, 5, 8), rand(1, 3, 3, 8, 16), np.zeros((1, 11, 9, 10), np.float32)
    )
    near = te.compute(
        (1, 9, 10, 8),
        lambda b, i, j, c: x[b, i * 6 // 9, j * 5 // 10, c] + x[b, tir.min(i * 6 // 9 + 1, 5), j // 2, c],
        name="Y",
    )
    compare(te.create_prim_func([x, near]), rand(1, 6, 5, 8), np.zeros((1, 9, 10, 8), np.float32))


def test_nchw_convolution_and_pool():
    x, w = te.placeholder((1, 4, 6, 7), name="X"), te.placeholder((8, 4, 3, 3), name="W")
    y = conv(x, w, 1, 0, 1, 1, "NCHW", "OIHW")
    compare(te.create_prim_func([x, w, y]), rand(1, 4, 6, 7), rand(8, 4, 3, 3), np.zeros((1, 8, 4, 5), np.float32))
    ph, pw = te.reduce_axis((0, 2), "ph"), te.reduce_axis((0, 2), "pw")
    y = te.compute((1, 4, 3, 3), lambda b, c, i, j: te.max(x[b, c, i * 2 + ph, j * 2 + pw], axis=[ph, pw]), name="Y")
    compare(te.create_prim_func([x, y]), rand(1, 4, 6, 7), np.zeros((1, 4, 3, 3), np.float32))


@pytest.mark.parametrize("sizes", [(128, 384, 48), ("n", 384, 48), ("n", 768, 96)], ids=str)
def test_a_costly_epilogue_does_not_change_the_tile(sizes):
    """A product of rows that the tile does not divide, with exp behind it, reads as many rows at a time as without."""
    m, inner, panels = sizes
    m = te.var("n", "int64") if m == "n" else m

    def rows_at_a_time(epilogue):
        a, w = te.placeholder((m, inner), name="a"), te.placeholder((panels, inner, 32), name="w")
        k = te.reduce_axis((0, inner), "k")
        product = te.compute(
            (m, panels * 32), lambda i, j: te.sum(a[i, k] * w[j // 32, k, j % 32], axis=k), name="product"
        )
        func = te.create_prim_func([a, w, epilogue(product)])
        lowered = lower(default_schedule(func, WIDE), WIDE)
        loads = (n for n in walk(lowered.body) if isinstance(n, tir.BufferLoad) and n.buffer.name == "a")
        return len({str(n.indices) for n in loads})

    plain = rows_at_a_time(topi.negative)
    assert plain > 8 and rows_at_a_time(topi.exp) == rows_at_a_time(topi.erf) == plain


@pytest.mark.parametrize("n", [33, 96, 150, 160, 224, 352, 450, 544])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 9])
def test_tiles_of_packed_weights_end_with_the_last_panel(m, n):
    """A tile past the last panel would read memory that is not there through masks, at a hundred times the cost."""
    tile = choose_tile(Problem(int64(m), int64(n), 16, WIDE, 32))
    assert -(-n // 32) * 32 % tile.width == 0
    if m == 1 and n == 150:
        assert tile.vectors == 10


@pytest.mark.parametrize("m", [31, 128, 197, 500])
def test_tiles_over_panels_from_memory_take_one_panel(m):
    """Two panels and the next two are more than the second cache holds; 12 rows 4 KiB apart fill a set of the first."""
    tile = choose_tile(Problem(int64(m), int64(768), 16, WIDE, 32, far=True))
    assert tile.width == 32 and 8 <= tile.rows <= 11
    assert choose_tile(Problem(int64(m), int64(768), 16, WIDE, 32)).width == 64
    few = Problem(int64(12), int64(768), 16, WIDE, 32)
    assert choose_tile(few._replace(far=True)) == choose_tile(few)
    assert choose_tile(Problem(Var("n", "int64"), int64(768), 16, WIDE, 32, far=True)) == (8, 2, 16)


def test_panels_that_hold_nothing_make_room_for_wide_tiles():
    assert choose_tile(Problem(int64(1), int64(600), 16, WIDE, 32)).width == 32  # nineteen panels
    assert choose_tile(Problem(int64(1), int64(600), 16, WIDE, 32, None, 20)).width == 160


@pytest.mark.parametrize(("inner", "columns", "streamed"), [(1024, 1000, True), (1023, 1024, False), (64, 96, False)])
def test_products_of_one_row_read_large_weights_as_one_stream(inner, columns, streamed):
    """One panel at a time, asked for ahead, in sums that do not wait for each other; small weights as they were."""
    panels = -(-columns // 32)
    a, w = te.placeholder((1, inner), name="a"), te.placeholder((panels, inner, 32), name="w")
    k = te.reduce_axis((0, inner), "k")
    product = te.compute((1, columns), lambda i, j: te.sum(a[i, k] * w[j // 32, k, j % 32], axis=k), name="product")
    func = te.create_prim_func([a, w, topi.nn.relu(product)])
    target = Target("llvm -num-cores=1")
    lowered = lower(default_schedule(func, target), target)
    asked = [n for n in walk(lowered.body) if isinstance(n, CallIntrin) and n.op.name == "tir.prefetch"]
    assert bool(asked) == streamed
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((1, inner), np.float32), rng.standard_normal((panels, inner, 32), np.float32)
    out = np.zeros((1, columns), np.float32)
    build(lowered.with_attr("global_symbol", "main"), target)["main"](x, weights, out)
    wide = weights.transpose(1, 0, 2).reshape(inner, -1)[:, :columns]
    np.testing.assert_allclose(out, np.maximum(x.astype(np.float64) @ wide, 0), rtol=1e-4, atol=1e-3)


def native(func, out, *arrays):
    """Run a function as the rules schedule it for AVX2, as native code of this machine."""
    found = np.full(out, np.nan, np.float32)
    build(default_schedule(func, AVX2), HOST)["main"](*arrays, found)
    return found


def softmax_of(x, axis):
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_tiles_have_sums_to_spare():
    """Each sum waits for the one before it: where there are only as many as the latency takes, any delay counts."""
    avx2 = machine.Machine(vector_bits=256)
    for rows in (14, 16, 28, 32, 49, 56, 128):
        tile = choose_tile(Problem(int64(rows), int64(256), 8, avx2, 16))
        assert tile.rows * tile.vectors > avx2.fma_latency * avx2.fma_per_cycle
    few = choose_tile(Problem(int64(8), int64(160), 8, avx2, None))
    assert 160 % few.width == 0  # what few rows read is not copied into panels for them


@pytest.mark.parametrize(
    ("sizes", "copied"), [((96, 257, 160), True), ((40, 512, 64), True), ((8, 257, 160), False), ((96, 40, 32), False)]
)
def test_a_large_second_operand_of_many_rows_is_copied_into_panels(sizes, copied):
    rows, inner, columns = sizes
    a, b = te.placeholder((rows, inner), name="a"), te.placeholder((inner, columns), name="b")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    buffers = [s.buffer for s in statements(schedule_of(func, AVX2).func.body) if isinstance(s, tir.BufferStore)]
    assert any(len(b.shape) == 3 for b in buffers) == copied
    x, y = rand(rows, inner), rand(inner, columns)
    np.testing.assert_allclose(native(func, (rows, columns), x, y), x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 1000), (3, 77), (2, 100), (4, 95), (1, 824)])
def test_softmax_of_odd_rows(shape):
    """Whole steps of the greatest element ask nothing; vectors that make no whole iteration come one by one."""
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x, 1)])
    lowered = lower(default_schedule(func, AVX2), AVX2)
    loops = [s for s in statements(lowered.body) if isinstance(s, tir.For) and s.kind == tir.ForKind.SERIAL]
    inner = [s for s in loops if not any(isinstance(n, tir.For) for n in walk(s.body)) and as_int(s.extent) != 1]
    whole = [s for s in inner if "T_softmax_max_rf" in str(s.body)]
    assert whole or shape[1] < 128
    assert not any(isinstance(n, tir.BufferLoad) and n.predicate is not None for s in whole for n in walk(s.body))
    data = rand(*shape)
    np.testing.assert_allclose(native(func, shape, data), softmax_of(data, 1), rtol=1e-5)


@pytest.mark.parametrize("width", [1, 9, 17, 31, 63])
def test_the_last_strip_of_columns(width):
    x = te.placeholder((3, 29, width), name="x")
    data = rand(3, 29, width)
    found = native(te.create_prim_func([x, topi.nn.softmax(x, 1)]), data.shape, data)
    np.testing.assert_allclose(found, softmax_of(data, 1), rtol=1e-5)


def vectors_of(func) -> set[int]:
    return {DataType(s.value.dtype).lanes for s in statements(lower(func, AVX2).body) if isinstance(s, tir.BufferStore)}


@pytest.mark.parametrize("columns", [16, 21])
def test_an_index_of_a_row_does_not_shorten_its_vectors(columns):
    x, at = te.placeholder((9, columns), name="x"), te.placeholder((5,), "int64", name="at")
    func = te.create_prim_func([x, at, te.compute((5, columns), lambda i, j: -x[at[i], j], name="y")])
    places = np.array([8, 0, 3, 3, 1])
    compare(func, rand(9, columns), places, np.zeros((5, columns), np.float32), target=AVX2)
    assert max(vectors_of(schedule_of(func, AVX2).func)) == 8


@pytest.mark.parametrize("shape", [(4, 32), (3, 13), (1, 1)])
def test_places_that_are_numbers_need_no_division(shape):
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.trilu(x, 0, True)])
    compare(func, rand(*shape), np.zeros(shape, np.float32), target=AVX2)
    assert not any(isinstance(n, FloorMod) for n in walk(lower(schedule_of(func, AVX2).func, AVX2).body))


def test_loops_of_one_iteration_are_no_vectors():
    x = te.placeholder((6, 32, 1), name="x")
    func = te.create_prim_func([x, te.compute((6, 30, 1), lambda i, j, k: x[i, j + 2, k] + 1.0, name="y")])
    compare(func, rand(6, 32, 1), np.zeros((6, 30, 1), np.float32), target=AVX2)
    assert max(vectors_of(schedule_of(func, AVX2).func)) == 8
