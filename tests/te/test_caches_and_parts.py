"""cache_write and rfactor of several outputs; strides that storage_align asks for."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir

RNG = np.random.default_rng(13)


def argmax():
    def combine(x, y):
        first = x[1] >= y[1]
        return tir.Select(first, x[0], y[0]), tir.Select(first, x[1], y[1])

    return te.comm_reducer(combine, lambda i, v: (tir.const(-1, i), te.min_value(v)), name="argmax")


def greatest(rows, columns):
    at, value = te.placeholder((rows, columns), "int32", name="at"), te.placeholder((rows, columns), name="value")
    k = te.reduce_axis((0, columns), "k")
    reducer = argmax()
    index, best = te.compute((rows,), lambda i: reducer((at[i, k], value[i, k]), axis=k), name="T")
    return at, value, k, index, best


def check_greatest(s, at, value, index, best, rows, columns):
    places = np.tile(np.arange(columns, dtype="int32"), (rows, 1))
    x = RNG.random((rows, columns), "float32")
    found, most = np.zeros(rows, "int32"), np.zeros(rows, "float32")
    weft.build(s, [at, value, index, best], "llvm")(places, x, found, most)
    np.testing.assert_array_equal(found, x.argmax(1))
    np.testing.assert_array_equal(most, x.max(1))


@pytest.mark.parametrize(("columns", "factor"), [(40, 8), (37, 8), (5, 8), (12, 1)])
@pytest.mark.parametrize("factor_axis", [0, 1, -1, -2])
def test_parts_of_a_reduction_with_two_outputs(columns, factor, factor_axis):
    at, value, k, index, best = greatest(5, columns)
    s = te.create_schedule(index.op)
    _, inner = s[index].split(k, factor=factor)
    parts = s.rfactor([index, best], inner, factor_axis)
    assert [p.dtype for p in parts] == ["int32", "float32"]
    s[parts[0]].compute_at(s[index], s[index].op.axis[0])
    check_greatest(s, at, value, index, best, 5, columns)


def test_parts_of_a_whole_axis():
    """Nothing is left to reduce inside of a part."""
    at, value, k, index, best = greatest(4, 9)
    s = te.create_schedule(index.op)
    parts = s.rfactor(index, k)
    assert len(parts) == 2 and not parts[0].op.reduce_axis
    check_greatest(s, at, value, index, best, 4, 9)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_several_outputs_in_a_cache(target):
    a = te.placeholder((8, 9), name="A")
    outs = te.compute((8, 9), lambda i, j: (a[i, j] + 1.0, a[i, j] * 2.0), name="B")
    s = te.create_schedule(outs[0].op)
    cached = s.cache_write(list(outs), "local")
    assert [c.name for c in cached] == ["B_local_v0", "B_local_v1"]
    s[cached[0]].compute_at(s[outs[0]], outs[0].op.axis[0])
    x, first, second = RNG.random((8, 9), "float32"), *np.zeros((2, 8, 9), "float32")
    weft.build(s, [a, *outs], target)(x, first, second)
    np.testing.assert_allclose(first, x + 1, rtol=1e-6)
    np.testing.assert_allclose(second, 2 * x, rtol=1e-6)


def test_a_reduction_with_two_outputs_in_a_cache():
    at, value, _, index, best = greatest(6, 11)
    s = te.create_schedule(index.op)
    second, first = s.cache_write([best, index], "local")
    assert (first.dtype, second.dtype) == ("int32", "float32")
    s[first].compute_at(s[index], index.op.axis[0])
    check_greatest(s, at, value, index, best, 6, 11)


def test_refusals_of_outputs():
    a = te.placeholder((8,), name="A")
    first, second = te.compute((8,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="B")
    other = te.compute((8,), lambda i: first[i] + second[i], name="C")
    s = te.create_schedule(other.op)
    refuses(error.ScheduleError, "'B' computes 2 outputs together", s.cache_write, first, "local")
    for wrong in ([first, other], [], "B"):
        refuses(error.ScheduleError, "the outputs of one operation", s.cache_write, wrong, "local")
        refuses(error.ScheduleError, "the outputs of one operation", s.rfactor, wrong, a.op)


def strides(func):
    """The strides of what is allocated, after the sizes are final."""
    for p in (tir.transform.lower_blocks(), tir.transform.simplify(), tir.transform.compact_buffer()):
        func = p(func)["main"]
    return {
        n.buffer.name: [d.value for d in n.buffer.strides] for n in ir.walk(func.body) if isinstance(n, tir.AllocBuffer)
    }


def stages(rows=20, columns=24):
    a = te.placeholder((rows, columns), name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j] * 2.0, name="B")
    return a, b, te.compute((rows, columns), lambda i, j: b[rows - 1 - i, j] + 1.0, name="C")


def check_stages(kernel):
    x, out = RNG.random((20, 24), "float32"), np.zeros((20, 24), "float32")
    kernel(x, out)
    np.testing.assert_allclose(out, 2 * x[::-1] + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([(0, 32, 0)], [32, 1]),
        ([(0, 32, 1)], [33, 1]),
        ([(0, 8, 0)], [24, 1]),
        ([(0, 7, 3)], [24, 1]),
        ([(0, 50, 1), (1, 2, 0)], [51, 2]),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_strides_of_a_stage(wanted, expected, target):
    a, b, c = stages()
    s = te.create_schedule(c.op)
    for axis, factor, offset in wanted:
        s[b].storage_align(b.op.axis[axis], factor, offset)
    assert strides(te.schedule.schedule_to_prim_func(s, [a, c])) == {"B": expected}
    check_stages(weft.build(s, [a, c], target))


def test_strides_of_a_tile_with_two_halves():
    a, b, c = stages()
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=4)
    s[b].compute_at(s[c], outer)
    s[b].storage_align(b.op.axis[0], 32, 5)
    s[b].double_buffer()
    func = te.schedule.schedule_to_prim_func(s, [a, c])
    assert strides(tir.transform.InjectDoubleBuffer()(func)["main"]) == {"B": [148, 37, 1]}
    check_stages(weft.build(s, [a, c], "llvm"))


def test_strides_of_blocks():
    a, _, c = stages()
    sch = tir.Schedule(te.create_prim_func([a, c]))
    sch.storage_align(sch.get_block("B"), 0, axis=0, factor=32, offset=1)
    assert strides(sch.mod["main"]) == {"B": [33, 1]}
    check_stages(weft.build(sch.mod, target="llvm")["main"])


def test_the_operation_of_a_stage_is_that_of_its_parts_after_rfactor():
    x, k = te.placeholder((6, 64), name="x"), te.reduce_axis((0, 64), "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    s = te.create_schedule(total.op)
    _, inner = s[total].split(k, 8)
    parts = s.rfactor(total, inner)
    assert s[total].op.reduce_axis[0].dom.extent == 8 and s[total].origin_op is total.op
    assert s[s[total].op] is s[total] and s[s[total].op.output(0)] is s[total]
    s[parts].compute_at(s[total], s[total].op.axis[0])
    a, b = np.random.default_rng(0).random((6, 64), "float32"), np.zeros(6, "float32")
    weft.build(s, [x, total], "llvm")(a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_a_bound_axis_stays_bound_after_rfactor():
    x, k = te.placeholder((6, 64), name="x"), te.reduce_axis((0, 64), "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    s = te.create_schedule(total.op)
    s[total].bind(total.op.axis[0], te.thread_axis("blockIdx.x"))
    _, inner = s[total].split(k, 8)
    s.rfactor(total, inner)
    assert "blockIdx.x" in str(weft.lower(s, [x, total]))
