"""Rules refuse in words, and what is no refusal is a defect that nothing hides."""

import random

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import te, tir, topi
from weft.error import InternalError, ScheduleError, UnknownHandle
from weft.ir import as_int, floordiv, int64, walk
from weft.target import Target
from weft.tir.schedule import explain_schedule, noting_schedules, schedule_func
from weft.tir.schedule.rules import generic, select
from weft.tir.stmt import ForKind
from weft.topi.conv import conv

TARGETS = [
    Target("llvm -mattr=-amx-tile"),  # whose rule would be asked before the others
    Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"),
    Target("llvm -mtriple=aarch64-linux-gnu"),
]


def record_of(func, target=TARGETS[0]):
    with noting_schedules() as records:
        schedule_func(func, target)
    (record,) = records
    return record


def product(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, topi.matmul(a, b)])


def test_the_record_names_the_rule_of_each_block():
    record = record_of(product(64, 64, 64))
    assert list(record.taken.values()) == ["contraction"] and not record.refusals and not record.unfit()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("rows", [199, 7, 1, 0, None])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 15])
def test_few_columns_are_right_and_one_is_dot_products(columns, rows, dtype):
    n, rng = te.size_var("n", "int64") if rows is None else rows, np.random.default_rng(3)
    a, b = te.placeholder((3, n, 61), dtype, name="A"), te.placeholder((3, 61, columns), dtype, name="B")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    if rows != 0 and columns == 1:
        assert set(record_of(func).taken.values()) == {"rows"}
    x, y = rng.standard_normal((3, rows or 7, 61)).astype(dtype), rng.standard_normal((3, 61, columns)).astype(dtype)
    x = x[:, :0] if rows == 0 else x
    found = np.zeros((*x.shape[:2], columns), dtype)
    weft.build(schedule_func(func, TARGETS[0]), TARGETS[0])(x, y, found)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=4 * 61 * np.finfo(dtype).eps)


@pytest.mark.parametrize("columns", [2, 3, 5, 8, 15])
def test_lanes_are_no_more_than_columns(columns):
    scheduled = schedule_func(product(199, columns, 122), TARGETS[1])
    lanes = {as_int(f.extent) for f in walk(scheduled.body) if isinstance(f, tir.For) and f.kind == ForKind.VECTORIZED}
    assert lanes == {columns}


@pytest.mark.parametrize("size", [(9, 1), (1, 40), (33, 35), (5, 64), (2, 0), (7, 31)])
@pytest.mark.parametrize(("window", "stride"), [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((5, 5), (3, 2)), ((1, 4), (1, 3))])
@pytest.mark.parametrize("mode", ["max", "avg"])
def test_padded_windows_of_unknown_images_have_their_rule(mode, window, stride, size):
    h, w, rng = te.size_var("h", "int64"), te.size_var("w", "int64"), np.random.default_rng(5)
    x, pads = te.placeholder((2, 3, h, w), name="x"), tuple(k // 2 for k in window)
    func = te.create_prim_func([x, topi.nn.pool2d(x, window, stride, (1, 1), (*pads, *pads), mode)])
    taken = record_of(func).taken
    assert {rule for block, rule in taken.items() if "pool" in block and block != "T_avg_pool"} == {"windows"}
    data = rng.standard_normal((2, 3, *size)).astype(np.float32)
    outs = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, pads, window, stride, strict=True)]
    found = np.zeros((2, 3, *outs), np.float32)
    weft.build(schedule_func(func, TARGETS[0]), TARGETS[0])(data, found)
    around = [(0, 0), (0, 0), *((p, p) for p in pads)]
    edge = np.pad(data.astype(np.float64), around, constant_values=np.nan)
    if all(size):
        seen = np.lib.stride_tricks.sliding_window_view(edge, window, (2, 3))[:, :, :: stride[0], :: stride[1]]
        exact = np.nanmax(seen, (4, 5)) if mode == "max" else np.nansum(seen, (4, 5)) / np.prod(window)
        np.testing.assert_allclose(found, exact, atol=1e-6)


def test_a_refusal_is_a_rule_a_block_and_a_reason():
    record = record_of(product(3, 2, 4))
    (refusal,) = record.refusals
    assert (refusal.rule, refusal.reason) == ("contraction", "too small to tile")
    assert refusal.block in record.taken


def one_channel(h):
    x, w = te.placeholder((1, h, 16, 3), name="x"), te.placeholder((1, 3, 3, 3, 16), name="w")
    y = conv(x, w, 1, 1, data_layout="NHWC", kernel_layout="OHWI16o", channels=1)
    return te.create_prim_func([x, w, y])


def test_one_channel_and_no_summands_are_refused_in_words():
    n = te.size_var("n", "int64")
    assert ("contraction", "the output has one element along its last axis") in [
        r[::2] for r in record_of(one_channel(n)).refusals
    ]
    assert ("contraction", "there is nothing to sum, or no place for a sum") in [
        r[::2] for r in record_of(product(n, 64, 0)).refusals
    ]


@pytest.mark.parametrize("error", [KeyError("v_i3"), IndexError("list index out of range"), AssertionError()])
def test_a_defect_of_a_rule_ends_the_compilation_and_names_rule_and_function(monkeypatch, error):
    def broken(ctx, name):
        raise error

    monkeypatch.setattr(select, "schedule_contraction", broken)
    func = product(64, 64, 64).with_attr("global_symbol", "fused_matmul")
    with pytest.raises(InternalError) as caught:
        weft.relax.transform.schedule_tir(target=TARGETS[0])(weft.IRModule({"fused_matmul": func}))
    for part in ("'contraction'", "'fused_matmul'", "block 'T_matmul", type(error).__name__, "report"):
        assert part in str(caught.value)
    assert caught.value.__cause__ is error


def uses_a_loop_that_is_split(ctx, name):
    (loop, *_) = ctx.sch.get_loops(name)
    ctx.sch.split(loop, [None, 8])
    ctx.sch.parallel(loop)


def uses_a_block_that_is_gone(ctx, name):
    ctx.sch.get_loops("T_gone")


def uses_what_is_no_loop(ctx, name):
    ctx.sch.unroll(name)


@pytest.mark.parametrize("misuse", [uses_a_loop_that_is_split, uses_a_block_that_is_gone, uses_what_is_no_loop])
@pytest.mark.parametrize("rule", ["schedule_contraction", "schedule_generic", "inline_elementwise"])
def test_a_loop_or_block_that_is_gone_is_no_refusal(monkeypatch, rule, misuse):
    def broken(ctx, name="T_matmul"):
        misuse(ctx, getattr(name, "name", name))

    func = product(64, 64, 64)
    if rule == "schedule_generic":
        x = te.placeholder((64,), name="x")
        func = te.create_prim_func([x, te.compute((64,), lambda i: x[i] + 1, name="T_add")])
    monkeypatch.setattr(select, rule, broken)
    caught = refuses(InternalError, "", schedule_func, func, TARGETS[0])
    assert isinstance(caught.__cause__, UnknownHandle) and "UnknownHandle" in str(caught)


def test_rules_that_catch_refusals_let_defects_through(monkeypatch):
    def gone(*_):
        raise UnknownHandle("the loop 'i' is no longer in the function")

    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] + 1, name="y")
    func = te.create_prim_func([x, te.compute((64,), lambda i: y[i] * 2, name="z")])
    for owner, name in ((tir.Schedule, "compute_inline"), (generic, "schedule_spatial")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, gone)
            refuses(InternalError, "", schedule_func, func, TARGETS[0])


def test_a_refusal_leaves_the_function_to_the_next_rule(monkeypatch):
    def refusing(ctx, name):
        raise ScheduleError("contraction: not today")

    monkeypatch.setattr(select, "schedule_contraction", refusing)
    record = record_of(product(64, 64, 64))
    assert record.refusals[0][::2] == ("contraction", "not today") and "contraction" not in record.taken.values()


def random_sum(r: random.Random) -> tir.PrimFunc:
    """A sum of products over random axes: of one element or none, of symbolic length, windows, groups."""
    lengths = [0, 1, 1, 2, 3, 5, 8, 16, 17, 32, 64]
    n_spatial, n_summed = r.randint(1, 4), r.randint(1, 2)
    extents = [
        te.size_var(f"n{i}", "int64") if r.random() < 0.2 else int64(r.choice(lengths))
        for i in range(n_spatial + n_summed)
    ]
    axes = [te.reduce_axis((int64(0), e), "k") for e in extents[n_spatial:]]

    def operand(name, dtype):
        chosen = [i for i in range(len(extents)) if r.random() < 0.6] or [0]
        shape, at = [], []
        for i in chosen:
            j, kind = r.randrange(len(extents)), r.random()
            if kind < 0.1 and as_int(extents[i]):
                shape.append(int64(-(-as_int(extents[i]) // 4)))
                at.append(lambda v, i=i: floordiv(v[i], int64(4)))
            elif kind < 0.2 and as_int(extents[i]) != 0:
                shape.append((extents[i] - int64(1)) * int64(2) + extents[j])
                at.append(lambda v, i=i, j=j: v[i] * int64(2) + v[j])
            else:
                shape.append(extents[i])
                at.append(lambda v, i=i: v[i])
        data = te.placeholder(shape, dtype, name)
        return data, lambda v: data(*[f(v) for f in at])

    dtype, wide = r.choice([("float32", "float32"), ("float32", "float32"), ("int8", "int32"), ("bfloat16", "float32")])
    (x, x_at), (w, w_at) = operand("X", dtype), operand("W", dtype)

    def element(*i):
        v = [*i, *(a.var for a in axes)]
        return te.sum(x_at(v).astype(wide) * w_at(v).astype(wide), axis=axes)

    y = te.compute(extents[:n_spatial], element, name="Y")
    z = te.compute(y.shape, lambda *i: tir.max(y(*i), tir.const(0, wide)), name="Z") if r.random() < 0.5 else y
    return te.create_prim_func([x, w, z])


@pytest.mark.parametrize("seed", range(40))
def test_rules_fail_with_refusals_alone(seed):
    func = random_sum(random.Random(seed))
    for target in TARGETS:
        record = record_of(func, target)
        assert record.taken
        assert all(r.reason and r.rule for r in record.refusals)


def test_a_convolution_with_one_channel_is_right():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 9, 16, 3), np.float32)
    w = np.zeros((1, 3, 3, 3, 16), np.float32)
    w[..., 0] = rng.standard_normal((1, 3, 3, 3))
    out = weft.runtime.tensor(np.zeros((1, 9, 16, 1), np.float32))
    built = weft.build(one_channel(te.size_var("h", "int64")), target="llvm")
    built["main"](weft.runtime.tensor(x), weft.runtime.tensor(w), out)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    np.testing.assert_allclose(out.numpy()[..., 0], np.einsum("nhwcij,ijc->nhw", windows, w[0, ..., 0]), atol=1e-4)


def greatest_with_its_place():
    """A reduction of pairs, which no rule takes."""
    x, k = te.placeholder((64, 256), name="x"), te.reduce_axis((int64(0), int64(256)), name="k")

    def better(a, b):
        first = a[1] >= b[1]
        return tir.Select(first, a[0], b[0]), tir.Select(first, a[1], b[1])

    pair = te.comm_reducer(better, lambda t0, t1: (tir.const(-1, t0), te.min_value(t1)), name="best")
    found = te.compute((64,), lambda i: pair((k.var, x(i, k.var)), axis=k), name="best")
    return te.create_prim_func([x, te.compute((64,), lambda i: found[0](i), name="place")])


def test_explain_schedule_says_rule_reason_and_estimate():
    report = explain_schedule(greatest_with_its_place(), TARGETS[0])
    (kernel,) = report.kernels
    assert kernel.slow and kernel.record.taken[kernel.slow[0]] == "generic"
    assert kernel.estimate is not None and 0 < kernel.estimate.share < 1 and kernel.estimate.work.bytes > 64 * 256 * 4
    assert "rows: a reduction is not of the form" in kernel.reasons()
    for part in ("generic, which does not suit it", "rows refused", "bytes", "of the machine's ceiling"):
        assert part in str(report)


def test_explain_schedule_of_a_module_puts_what_costs_most_without_a_rule_first():
    n = te.size_var("n", "int64")
    mod = weft.IRModule({"plain": product(n, 64, 64), "best": greatest_with_its_place()})
    assert [k.name for k in explain_schedule(mod, TARGETS[0]).kernels] == ["best", "plain"]


def test_a_record_survives_being_written():
    record = record_of(product(3, 2, 4))
    assert type(record).from_json(record.as_json()) == record
