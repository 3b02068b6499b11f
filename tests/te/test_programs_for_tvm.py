"""What schedules written for TVM say: groups, intrinsics that are called, caches of scheduled stages, saving."""

import pickle

import numpy as np
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import error, ir, te, tir


def chain(n=20, m=12):
    a = te.placeholder((n, m), name="A")
    x = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="x")
    y = te.compute((n, m), lambda i, j: x[i, j] * 2.0, name="y")
    return a, x, y, te.compute((n, m), lambda i, j: y[i, j] - 3.0, name="z")


def check_chain(s, a, z):
    given = np.random.default_rng(0).random((20, 12), "float32")
    out = np.zeros_like(given)
    weft.build(s, [a, z])(given, out)
    np.testing.assert_allclose(out, (given + 1) * 2 - 3, rtol=1e-6)


def test_a_group_places_its_stages():
    a, x, y, z = chain()
    s = te.create_schedule(z.op)
    group = s.create_group(outputs=y, inputs=x, include_inputs=True)
    assert s[x].group is group and s[y].group is group and s[z].group is None
    group.compute_at(s[z], z.op.axis[0])
    bounds = te.schedule.InferBound(s)
    assert isinstance(bounds, tvm_ffi.Map)
    assert [bounds[v.op.axis[0]].extent.value for v in (x, y)] == [1, 1]
    check_chain(s, a, z)
    group.compute_root()
    assert te.schedule.InferBound(s)[x.op.axis[0]].extent.value == 20


def test_groups_within_groups():
    a, x, y, z = chain()
    s = te.create_schedule(z.op)
    inner = s.create_group(outputs=x, inputs=x, include_inputs=True)
    outer = s.create_group(outputs=y, inputs=x, include_inputs=True)
    assert s[x].group is inner and inner.group is outer and s[y].group is outer
    outer.compute_at(s[z], z.op.axis[0])
    inner.compute_at(s[y], y.op.axis[1])
    assert te.schedule.InferBound(s)[x.op.axis[1]].extent.value == 1
    check_chain(s, a, z)
    refuses(error.ScheduleError, "would be left out", s.create_group, outputs=y, inputs=x)


def test_a_place_follows_what_became_of_its_loop():
    for change in (lambda s, z: s[z].split(z.op.axis[1], 4), lambda s, z: s[z].fuse(*z.op.axis)):
        a, x, y, z = chain()
        s = te.create_schedule(z.op)
        s[x].compute_inline()
        s[y].compute_at(s[z], z.op.axis[1])
        change(s, z)
        assert s[y].attach_type == te.schedule.AttachType.SCOPE == 4
        check_chain(s, a, z)


def test_fuse_of_no_loops_and_of_a_reduction_with_others():
    a = te.placeholder((10,), name="A")
    k = te.reduce_axis((0, 10), "k")
    whole = te.compute((), lambda: te.sum(a[k], axis=k), name="W")
    s = te.create_schedule(whole.op)
    once = s[whole].fuse()
    assert any(isinstance(r, te.schedule.Singleton) for r in s[whole].relations)
    s[whole].split(once, nparts=3)
    given, out = np.arange(10, dtype="float32"), np.zeros((), "float32")
    weft.build(s, [a, whole])(given, out)
    assert out == 45
    each = te.compute((4,), lambda i: te.sum(a[k] * (i + 1), axis=k), name="E")
    s = te.create_schedule(each.op)
    s[each].split(s[each].fuse(each.op.axis[0], each.op.reduce_axis[0]), factor=7)
    out = np.zeros(4, "float32")
    weft.build(s, [a, each])(given, out)
    np.testing.assert_array_equal(out, [45, 90, 135, 180])


def test_a_cache_of_a_scheduled_stage_lies_as_its_loops_do():
    a = te.placeholder((10, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    b = te.compute((10,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((10, 6), lambda i, j: a[i, j] * 2.0, name="C")
    given = np.random.default_rng(1).random((10, 6), "float32")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=4)
    assert [d.value for d in s.cache_write(b, "global").shape] == [3, 4]
    out = np.zeros(10, "float32")
    weft.build(s, [a, b])(given, out)
    np.testing.assert_allclose(out, given.sum(1), rtol=1e-5)
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    outer, inner = s[c].split(i, factor=4)
    s[c].reorder(outer, j, inner)
    assert [d.value for d in s.cache_write(c, "global").shape] == [3, 6, 4]
    out = np.zeros((10, 6), "float32")
    weft.build(s, [a, c])(given, out)
    np.testing.assert_array_equal(out, given * 2)


def add_intrin(n, extra=()):
    x, y = te.placeholder((n,), name="vx"), te.placeholder((n,), name="vy")
    z = te.compute((n,), lambda i: x[i] + y[i] + sum(extra), name="vz")

    def write(ins, outs, scalars=()):
        ib = tir.ir_builder.create()
        with ib.for_range(0, n, "i") as i:
            ib.emit(tir.BufferStore(outs[0], ins[0][i] + ins[1][i] + sum(scalars), [i]))
        return ib.get()

    return te.decl_tensor_intrin(z.op, write, scalar_params=list(extra))


def test_an_intrinsic_called_in_a_compute_function():
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((6, 8), name="B")
    two = te.compute((6, 8), lambda i, j: b[i, j] * 2.0, name="two")
    add = add_intrin(8)
    c = te.compute((6, 8), lambda i: add(a[i, 0:8], two[i, 0:8]), name="C")
    x, y = np.random.default_rng(2).random((2, 6, 8), "float32")
    for schedule in (
        lambda s: s[two].compute_at(s[c], c.op.axis[0]),
        lambda s: s[c].split(c.op.axis[0], factor=4),
        lambda s: (s.cache_read(a, "local", c), s.cache_write(c, "local")),
    ):
        s = te.create_schedule(c.op)
        schedule(s)
        out = np.zeros((6, 8), "float32")
        weft.build(s, [a, b, c])(x, y, out)
        np.testing.assert_allclose(out, x + 2 * y, rtol=1e-6)
    refuses(error.InvalidArgument, "another number of tensors", te.compute, (6, 8), lambda i: add(a[i, 0:8]))


def test_an_intrinsic_takes_scalars():
    v = te.var("v")
    a = te.placeholder((6, 8), name="A")
    add = add_intrin(8, (v,))
    assert add.scalar_params == (v,)
    c = te.compute((6, 8), lambda i: add(a[i, 0:8], i * 3, a[i, 0:8]), name="C")
    x, out = np.random.default_rng(3).random((6, 8), "float32"), np.zeros((6, 8), "float32")
    weft.build(te.create_schedule(c.op), [a, c])(x, out)
    np.testing.assert_allclose(out, x + x + 3 * np.arange(6)[:, None], rtol=1e-6)


def test_reducers_take_values():
    a = te.placeholder((5,), name="A", dtype="int32")
    b = te.compute((5,), lambda i: te.max(a[i], 2) + te.min(a[i], i, 1), name="B")
    out = np.zeros(5, "int32")
    weft.build(te.create_schedule(b.op), [a, b])(np.arange(5, dtype="int32"), out)
    np.testing.assert_array_equal(out, [2, 3, 3, 4, 5])


def test_a_store_predicate():
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].set_store_predicate(b.op.axis[0].var < 5)
    x, out = np.zeros(16, "float32"), np.zeros(16, "float32")
    weft.build(s, [a, b])(x, out)
    assert out.tolist() == [1.0] * 5 + [0.0] * 11


def test_schedules_are_saved():
    a, x, y, z = chain()
    s = te.create_schedule(z.op)
    s.create_group(outputs=y, inputs=x).compute_at(s[z], z.op.axis[0])
    outer, _ = s[z].split(z.op.axis[1], factor=4)
    s[z].pragma(outer, "auto_unroll_max_step", 3)
    assert [k.value for k in s[z].iter_var_attrs[outer].pragma_keys] == ["auto_unroll_max_step"]
    for again in (weft.ir.load_json(weft.ir.save_json(s)), pickle.loads(pickle.dumps(s))):
        assert [repr(stage) for stage in again.stages] == [repr(stage) for stage in s.stages]
        check_chain(again, again.stages[0].op.output(0), again.outputs[0].output(0))


def test_a_data_type_of_indices():
    a = te.placeholder((8, 4), name="A")
    func = te.create_prim_func([a, te.compute((4, 8), lambda i, j: a[j, i] + i, name="T")], "int64")
    buffers = [b for _, b in func.buffer_map]
    assert {d.dtype for b in buffers for d in b.shape} == {"int64"}
    assert {n.loop_var.dtype for n in ir.walk(func) if isinstance(n, tir.For)} == {"int64"}
    x, out = np.random.default_rng(4).random((8, 4), "float32"), np.zeros((4, 8), "float32")
    weft.build(func)(x, out)
    np.testing.assert_allclose(out, x.T + np.arange(4)[:, None], rtol=1e-6)


def test_layouts_that_are_free():
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    c = te.compute((4,), lambda i: a[i] * b[i], name="C", attrs={"layout_free_placeholders": [b]})
    d = te.compute((4,), lambda i: c[i] + 1.0, name="D", attrs={"layout_free_placeholders": [c]})
    func = te.create_prim_func([a, b, d])
    assert func.attrs["layout_free_buffers"] == (1,)
    (noted,) = [n.annotations for n in ir.walk(func) if isinstance(n, tir.Block) and n.annotations]
    assert [t.name for t in noted["layout_free_placeholders"]] == ["C"]
