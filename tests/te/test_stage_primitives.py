"""prefetch, double_buffer and tensorize of stages, run natively."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, runtime, script, te, tir
from weft.target import get_source


def check(s, tensors, wanted, rtol=1e-6, targets=("llvm", "c")):
    """Compare the last tensor with what `wanted` makes of random ones before it, on each target."""
    rng, (*shapes, last) = np.random.default_rng(0), [[d.value for d in t.shape] for t in tensors]
    arrays = [rng.random(shape, "float32") for shape in shapes]
    for target in targets:
        out = np.zeros(last, "float32")
        weft.build(s, tensors, target)(*arrays, out)
        np.testing.assert_allclose(out, wanted(*arrays), rtol=rtol)


def test_prefetch():
    a = te.placeholder((40, 64), name="A")
    k = te.reduce_axis((0, 64), name="k")
    b = te.compute((40,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, b.op.axis[0], 2)
    written = te.schedule.ScheduleOps(s, te.schedule.InferBound(s))
    found = [n for n in ir.walk(written) if isinstance(n, tir.Prefetch)]
    assert len(found) == 1 and found[0].bounds[1].extent.value == 64
    assert str(weft.lower(s, [a, b], simple_mode=True)).count("tir.prefetch") == 4  # lines of 16
    func = te.schedule.schedule_to_prim_func(s, [a, b])
    assert get_source(func, "llvm").count("call void @llvm.prefetch") >= 1
    check(s, [a, b], lambda x: x.sum(1), rtol=1e-5)
    refuses(error.ScheduleError, "does not read 'C'", s[b].prefetch, te.placeholder((4,), name="C"), b.op.axis[0], 1)


def mirrored(rows):
    """Stages that double and mirror rows, and their schedule: the first computes a row where the second reads it."""
    a = te.placeholder((rows, 32), name="A")
    b = te.compute((rows, 32), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((rows, 32), lambda i, j: b[i, 31 - j] + 1.0, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    return a, b, c, s


def test_double_buffer():
    a, b, c, s = mirrored(10)
    s[b].double_buffer()
    func = te.schedule.schedule_to_prim_func(s, [a, c])
    lowered = tir.transform.InjectDoubleBuffer()(weft.IRModule({"main": func}))["main"]
    allocated = [n.buffer for n in ir.walk(lowered.body) if isinstance(n, tir.AllocBuffer)]
    assert [d.value for d in allocated[0].shape] == [2, 1, 32]
    check(s, [a, c], lambda x: 2 * x[:, ::-1] + 1)


def prefetched(s):
    """The element at which each prefetch starts, by the values of the loops around it."""
    body = te.schedule.ScheduleOps(s, te.schedule.InferBound(s))
    return [
        [str(weft.arith.Analyzer().simplify(r.min)) for r in n.bounds]
        for n in ir.walk(body)
        if isinstance(n, tir.Prefetch)
    ]


@pytest.mark.parametrize("offset", [1, 3])
def test_prefetch_in_a_stage_that_another_one_runs(offset):
    """The producer computes one row in each iteration; its own loop over rows is gone, its offset is not."""
    a, b, c, s = mirrored(20)
    s[b].prefetch(a, b.op.axis[0], offset)
    assert prefetched(s) == [[f"i + {offset}", "0"]]
    check(s, [a, c], lambda x: 2 * x[:, ::-1] + 1)


def test_prefetch_of_whole_tiles():
    """An outer loop of a split is ahead by as many of its own steps."""
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(b.op.axis[0], factor=8)
    s[b].prefetch(a, outer, 2)
    assert prefetched(s) == [["i_outer * 8 + 16"]]


def halves(s, args):
    """The first dimensions of what is allocated, where they are two halves."""
    func = te.schedule.schedule_to_prim_func(s, args)
    lowered = tir.transform.InjectDoubleBuffer()(tir.transform.InjectPrefetch()(weft.IRModule({"main": func})))["main"]
    assert not any(isinstance(n, tir.AllocBuffer) and n.annotations for n in ir.walk(lowered.body))
    return {n.buffer.name for n in ir.walk(lowered.body) if isinstance(n, tir.AllocBuffer) and len(n.buffer.shape) == 3}


def test_prefetch_in_front_of_a_double_buffered_fill():
    a, w = te.placeholder((10, 32), name="A"), te.placeholder((10, 32), name="W")
    b = te.compute((10, 32), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((10, 32), lambda i, j: b[i, 31 - j] + w[i, j], name="C")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].double_buffer()
    s[c].prefetch(w, c.op.axis[0], 1)
    s[b].prefetch(a, b.op.axis[0], 2)
    assert halves(s, [a, w, c]) == {"B"}
    check(s, [a, w, c], lambda x, y: 2 * x[:, ::-1] + y)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_two_double_buffers_of_one_loop(rows):
    a, w = te.placeholder((rows, 16), name="A"), te.placeholder((rows, 16), name="W")
    b = te.compute((rows, 16), lambda i, j: a[i, j] * 2.0, name="B")
    d = te.compute((rows, 16), lambda i, j: w[i, j] - 1.0, name="D")
    e = te.compute((rows, 16), lambda i, j: w[i, j] * w[i, j], name="E")
    c = te.compute((rows, 16), lambda i, j: b[i, 15 - j] + d[i, 15 - j] + e[i, j], name="C")
    s = te.create_schedule(c.op)
    for t in (b, d, e):
        s[t].compute_at(s[c], c.op.axis[0])
    for t in (b, d):
        s[t].double_buffer()
    if rows > 1:
        assert halves(s, [a, w, c]) == {"B", "D"}
    check(s, [a, w, c], lambda x, y: 2 * x[:, ::-1] + (y - 1)[:, ::-1] + y * y, rtol=1e-5)


def test_a_double_buffer_made_of_another_one_stays():
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="B")
    d = te.compute((6, 8), lambda i, j: b[i, 7 - j] - 1.0, name="D")
    c = te.compute((6, 8), lambda i, j: d[i, 7 - j], name="C")
    s = te.create_schedule(c.op)
    for t in (b, d):
        s[t].compute_at(s[c], c.op.axis[0])
        s[t].double_buffer()
    assert halves(s, [a, c]) == {"B"}
    check(s, [a, c], lambda x: 2 * x - 1)


def dot_row(n, width):
    """An intrinsic: the product of a row with `width` columns, added to what is there."""
    x, w = te.placeholder((n,), name="x"), te.placeholder((width, n), name="w")
    k = te.reduce_axis((0, n), name="k")
    y = te.compute((width,), lambda i: te.sum(x[k] * w[i, k], axis=k), name="y")

    def statements(ins, outs):
        def body(start):
            ib = tir.ir_builder.create()
            a, b, c = (ib.buffer_ptr(v) for v in (*ins, *outs))
            with ib.for_range(0, width, name="i") as i:
                if start:
                    c[i] = tir.const(0, "float32")
                with ib.for_range(0, n, name="k") as kk:
                    c[i] = c[i] + a[kk] * b[i, kk]
            return ib.get()

        def reset():
            ib = tir.ir_builder.create()
            c = ib.buffer_ptr(outs[0])
            with ib.for_range(0, width, name="i") as i:
                c[i] = tir.const(0, "float32")
            return ib.get()

        return body(True), reset(), body(False)

    strided = tir.decl_buffer((width, n), "float32", "w", strides=[te.var("s"), 1], offset_factor=1)
    return te.decl_tensor_intrin(y.op, statements, name="dot_row", binds={w: strided})


def product(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), name="r")
    return a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")


@pytest.mark.parametrize("split_reduction", [False, True])
def test_tensorize(split_reduction):
    m, n, k = 6, 8, 12
    a, b, c = product(m, n, k)
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    (r,) = c.op.reduce_axis
    jo, ji = s[c].split(j, factor=4)
    if split_reduction:
        ro, ri = s[c].split(r, factor=6)
        s[c].reorder(i, jo, ro, ji, ri)
        s[c].tensorize(ji, dot_row(6, 4))
    else:
        s[c].reorder(i, jo, ji, r)
        s[c].tensorize(ji, dot_row(12, 4))
    rng = np.random.default_rng(0)
    x, y, out = rng.random((m, k), "float32"), rng.random((n, k), "float32"), np.full((m, n), 9, "float32")
    weft.build(s, [a, b, c], "llvm")(x, y, out)
    np.testing.assert_allclose(out, x @ y.T, rtol=1e-5)


def test_tensorize_a_cached_stage_by_a_call():
    """Pointers of a stage inside another one's loop: the region's place in the smaller buffer."""
    a = te.placeholder((8, 16), name="A")
    b = te.compute((8, 16), lambda i, j: a[i, j], name="B")
    c = te.compute((8, 16), lambda i, j: b[i, j] * 3.0, name="C")
    x = te.placeholder((16,), name="x")
    copy = te.decl_tensor_intrin(
        te.compute((16,), lambda i: x[i], name="y").op,
        lambda ins, outs: tir.call_extern(
            "handle", "memcpy", outs[0].access_ptr("w"), ins[0].access_ptr("r"), tir.const(64, "int64")
        ),
        name="copy",
    )
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].tensorize(b.op.axis[1], copy)
    check(s, [a, c], lambda x: x * 3, targets=["llvm"])


def test_tensorize_refusals():
    a, b, c = product(6, 8, 12)

    def scheduled(factor, intrin):
        s = te.create_schedule(c.op)
        i, j = c.op.axis
        jo, ji = s[c].split(j, factor=factor)
        s[c].reorder(i, jo, ji, *c.op.reduce_axis)
        s[c].tensorize(ji, intrin)
        return weft.lower(s, [a, b, c])

    refuses(error.ScheduleError, "do not cover what 'dot_row' describes", scheduled, 2, dot_row(12, 4))
    refuses(error.ScheduleError, "overshoot", scheduled, 3, dot_row(12, 3))
    x, w = te.placeholder((12,), name="x"), te.placeholder((4, 12), name="w")
    k = te.reduce_axis((0, 12), name="k")
    other = te.compute((4,), lambda i: te.sum(x[k] + w[i, k], axis=k), name="y")
    wrong = te.decl_tensor_intrin(other.op, lambda ins, outs: tir.Evaluate(0), name="sum_row")
    refuses(error.ScheduleError, "does not compute what 'sum_row' describes", scheduled, 4, wrong)


@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize(("outer", "middle"), [("int32", "int64"), ("int64", "int32")])
def test_stages_whose_indices_have_other_types(outer, middle, rolling):
    a = te.placeholder((ir.const(14, middle),), name="A")
    b = te.compute((ir.const(12, middle),), lambda i: a[i] + a[i + 2], name="B")
    c = te.compute((ir.const(24, outer),), lambda i: b[i // 2] * 2.0, name="C")
    s = te.create_schedule(c.op)
    block, _ = s[c].split(c.op.axis[0], 5)
    s[b].compute_at(s[c], block)
    if rolling:
        s[b].rolling_buffer()
    check(s, [a, c], lambda x: np.repeat(x[:12] + x[2:], 2) * 2)


def test_what_lower_returns_reads_as_it_was_written_and_builds():
    a, b = (te.placeholder((96, 96), name=n) for n in "AB")
    k = te.reduce_axis((0, 96), name="a_reduced_axis")
    c = te.compute((96, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="a_result_of_a_long_name")
    mod = weft.lower(te.create_schedule(c.op), [a, b, c], simple_mode=True)
    assert "A_1[i * 96 + a_reduced_axis]" in str(mod) and "int64" not in str(mod) and "Cast" not in str(mod)
    assert max(map(len, str(mod).splitlines())) <= 120
    ir.assert_structural_equal(script.from_source(str(mod)), mod)
    x, y = (np.random.default_rng(n).random((96, 96), "float32") for n in range(2))
    out = runtime.empty((96, 96))
    weft.build(mod, target="llvm")(runtime.tensor(x), runtime.tensor(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-5)
