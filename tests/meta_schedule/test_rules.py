"""Rules and postprocessors by TVM's names: what they make of programs computes the same, again from its trace."""

import numpy as np
import pytest

from tests.fuzz.schedules import arrays_of
from tests.refusals import refuses
from tests.tir.schedule.run_scheduled import run
from weft import error, ffi, te, topi
from weft import meta_schedule as ms
from weft.meta_schedule.testing import space_generation
from weft.script import tir as T
from weft.tir import ForKind, Schedule
from weft.tir.schedule import Trace
from weft.tir.schedule.testing import verify_trace_roundtrip

TARGETS = {"llvm": "llvm -num-cores=4", "cuda": "nvidia/nvidia-a100"}
POSTPROCS = {
    "llvm": [ms.postproc.RewriteParallelVectorizeUnroll],
    "cuda": [ms.postproc.RewriteCooperativeFetch, ms.postproc.RewriteUnboundBlock],
}


def product(n=12, m=8, k=6):
    a, b = te.placeholder((n, k), "int32", "A"), te.placeholder((k, m), "int32", "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.max(c[i, j], 0), name="D")])


def window():
    x, w = te.placeholder((1, 9, 4), "int32", "X"), te.placeholder((3, 4, 5), "int32", "W")
    padded = topi.nn.pad(x, (0, 1, 0), pad_value=0)
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 4), "c")
    y = te.compute((1, 9, 5), lambda n, i, o: te.sum(padded[n, i + r, c] * w[r, c, o], axis=[r, c]), name="Y")
    return te.create_prim_func([x, w, y])


def totals(n=2, m=64):
    x, r = te.placeholder((n, m), "int32", "X"), te.reduce_axis((0, m), "r")
    total = te.compute((n,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="T")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: x[i, j] - total[i], name="Y")])


def elements():
    x = te.placeholder((3, 7), "int32", "X")
    double = te.compute((3, 7), lambda i, j: x[i, j] * 2, name="A")
    return te.create_prim_func([x, te.compute((7, 3), lambda i, j: double[j, i] + 1, name="B")])


def drawn(func, design, posts):
    """Draw what a design leaves open until the postprocessors find it good."""
    for _ in range(50):
        sch = Schedule(func)
        Trace(design.trace.insts).apply_to_schedule(sch)
        sch.enter_postproc()
        if all([post.apply(sch) for post in posts]):
            return sch
    raise AssertionError("no draw is good")


@pytest.mark.parametrize(
    ("program", "kind", "count"),
    [
        (product, "llvm", 3),
        (product, "cuda", 3),
        (window, "llvm", 3),
        (window, "cuda", 3),
        (totals, "llvm", 3),
        (totals, "cuda", 2),
        (elements, "llvm", 1),
        (elements, "cuda", 1),
    ],
)
def test_rules_keep_values(program, kind, count):
    func = program()
    given = arrays_of(func, 1)
    expected = [a.copy() for a in given]
    run(func, *expected)
    kinds = [*POSTPROCS[kind], ms.postproc.RewriteReductionBlock, ms.postproc.RewriteTensorize]
    posts = [post() for post in kinds]
    rules = ms.ScheduleRule.create(kind)
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=posts, mutator_probs={})
    found = ms.TuneContext(func, target=TARGETS[kind], space_generator=space).generate_design_space()
    assert len(found) == count
    for design in found:
        verify_trace_roundtrip(design, func, text_format="json")
        sch = drawn(func, design, posts)
        result = [a.copy() for a in given]
        run(sch.func, *result)
        for e, f in zip(expected, result, strict=True):
            np.testing.assert_array_equal(f, e)
        loops = sch.state.all_loops()
        tags = {f.thread_binding.thread_tag for f in loops if f.thread_binding is not None}
        assert kind == "llvm" or {"blockIdx.x", "threadIdx.x"} <= tags
        assert kind == "cuda" or program is not elements or any(f.kind is ForKind.PARALLEL for f in loops)
        assert "meta_schedule.parallel" not in str(sch.func) and "cooperative_fetch" not in str(sch.func)


def test_sketches_are_told_apart():
    func = product()
    found = space_generation.generate_design_space("llvm", func, "llvm", ms.schedule_rule.MultiLevelTiling)
    programs = [sch.mod["main"] for sch in found]
    drawn = [[(i.kind.name, sch.trace.decisions[i]) for i in sch.trace.decisions] for sch in found]
    space_generation.check_sketches(func, found, programs[::-1], drawn[::-1])
    with pytest.raises(AssertionError, match="program expected with number 2"):
        space_generation.check_sketches(func, found, [*programs[:2], func], drawn)


def test_custom_rules_and_targets():
    first, second = Schedule(product()), Schedule(product())
    rule = ms.schedule_rule.ApplyCustomRule()
    for sch, name in ((first, "twice"), (second, "nothing")):
        sch.annotate("C", "schedule_rule", name)
    refuses(error.InvalidArgument, "the target is not known", rule.apply, first, first.get_block("C"))
    ms.TuneContext(product(), target="llvm", space_generator=ms.space_generator.PostOrderApply(sch_rules=[rule]))
    ffi.register_global_func("meta_schedule.cpu.twice", lambda sch, block: [sch, sch.copy()], override=True)
    assert len(rule.apply(first, first.get_block("C"))) == 2
    with pytest.warns(UserWarning, match="no schedule rule is registered"):
        assert rule.apply(second, second.get_block("C")) == [second]
    assert "schedule_rule" not in str(second.func)
    refuses(error.InvalidArgument, "unknown list of schedule rules 'vnni'", ms.ScheduleRule.create, "vnni")


def test_levels_that_are_not_there_are_refused():
    tiling, copied = ms.schedule_rule.MultiLevelTiling, ms.schedule_rule.ReuseType("must", (2,), "global")
    for arguments in (("SXR",), ("SR", ["blockIdx.x"] * 3), ("SR", None, 4, None, copied._replace(levels=[3]))):
        refuses(error.InvalidArgument, "levels that the structure lacks", tiling, *arguments)
    rule = tiling("SR", reuse_write=copied, filter_fn=lambda sch, ref: True)
    ms.TuneContext(product(), target="llvm", space_generator=ms.space_generator.PostOrderApply(sch_rules=[rule]))
    sch = Schedule(product())
    refuses(error.ScheduleError, "no loop at level 2", rule.apply, sch, sch.get_block("D"))
    n = te.size_var("n", "int64")
    sch = Schedule(product(n))  # of symbolic size: as it is
    assert tiling("SSR").apply(sch, sch.get_block("C")) == [sch] and len(sch.trace) == 1


@pytest.mark.parametrize(
    ("kind", "mutator", "program"),
    [
        ("llvm", ms.mutator.MutateTileSize(), product),
        ("llvm", ms.mutator.MutateUnroll(), product),
        ("llvm", ms.mutator.MutateParallel(16), elements),
        ("llvm", ms.mutator.MutateComputeLocation(), window),
        ("cuda", ms.mutator.MutateThreadBinding(), totals),
        ("cuda", ms.mutator.MutateTileSize(), product),
    ],
)
def test_mutators_change_one_thing(kind, mutator, program):
    func = program()
    space = ms.space_generator.PostOrderApply(
        sch_rules=ms.ScheduleRule.create(kind), postprocs=[], mutator_probs={mutator: 1}
    )
    context = ms.TuneContext(func, target=TARGETS[kind], space_generator=space)
    changed = 0
    for sch in context.generate_design_space():
        for seed in range(6):
            new = mutator.apply(sch.trace, seed)
            if new is not None:
                changed += 1
                new.apply_to_schedule(Schedule(func))
                assert sum(a != b for a, b in zip(sch.trace.as_python(), new.as_python(), strict=True)) == 1
                assert new.as_python() == mutator.apply(sch.trace, seed).as_python()
    assert changed >= 6
    assert mutator.apply(Schedule(func).trace) is None


def test_iterations_that_cannot_be_threads_stay():
    @T.prim_func
    def twice(A: T.Buffer((4,), "int32")):
        for i in range(8):
            with T.sblock("A"):
                v = T.axis.spatial(4, i // 2)
                A[v] = A[v] + 1

    rule, post = ms.schedule_rule.AutoBind(), ms.postproc.RewriteUnboundBlock()
    space = ms.space_generator.PostOrderApply(sch_rules=[rule], postprocs=[post])
    (sch,) = ms.TuneContext(twice, target=TARGETS["cuda"], space_generator=space).generate_design_space()
    assert "thread" not in str(sch.func) and len(sch.trace) == 2
    assert not post.apply(sch)
