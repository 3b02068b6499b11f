"""Searching schedules by trace: spaces, strategies, tasks, passes on Relax."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import error, relax, te
from weft import meta_schedule as ms
from weft.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from weft.relax.meta_schedule import compile_relax, extract_tasks
from weft.support.derived import derived_object


def product(n=16):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def tiled(sch):
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.split(i, sch.sample_perfect_tile(i, n=2))
    sch.split(j, sch.sample_perfect_tile(j, n=2))


def context(strategy, space=tiled):
    return ms.TuneContext(product(), target="llvm", space_generator=space, search_strategy=strategy, rand_state=1)


@pytest.mark.parametrize("strategy", ["replay-func", "replay-trace"])
def test_strategies_that_replay_give_as_many_as_asked(strategy):
    task = context(strategy)
    task.pre_tuning(max_trials=5, num_trials_per_iter=2)
    counts = []
    while (batch := task.generate_measure_candidates()) is not None:
        counts.append(len(batch))
        task.notify_runner_results(batch, [ms.runner.RunnerResult([1.0], None)] * len(batch))
    task.post_tuning()
    assert counts == [2, 2, 1]


def test_evolution_gives_each_schedule_once():
    task = context(ms.search_strategy.EvolutionarySearch(population_size=24, genetic_num_iters=1))
    task.pre_tuning(max_trials=100, num_trials_per_iter=8, cost_model=ms.cost_model.RandomModel(seed=0))
    seen = []
    while (batch := task.generate_measure_candidates()) is not None:
        seen += [str(c.sch.trace) for c in batch]
    assert len(set(seen)) == len(seen) == 25  # 16 has five divisors
    refuses(ValueError, "has begun", task.pre_tuning, 4, 2)


def test_the_first_schedule_is_the_one_that_compilation_chooses():
    first, *others = context("evolutionary", "post-order-apply").generate_design_space()
    chosen = weft.tir.schedule.schedule_func(product(), weft.target.Target("llvm"))
    weft.ir.assert_structural_equal(first.mod["main"], chosen)
    assert others


def test_rules_of_users():
    @derived_object
    class SplitOuter(ms.schedule_rule.PyScheduleRule):
        def apply(self, sch, block):
            other = sch.copy()
            other.split(other.get_loops(block)[0], [None, 4])
            return [sch, other]

    space = ms.space_generator.PostOrderApply(sch_rules=[SplitOuter()], f_block_filter=lambda b: b.name_hint == "C")
    spaces = space.generate_design_space(weft.IRModule({"main": product()}))
    assert [len(s.get_loops(s.get_block("C"))) for s in spaces] == [3, 4]


def test_postprocessors_refuse():
    @derived_object
    class Never(ms.postproc.PyPostproc):
        def apply(self, sch):
            return False

    task = context("replay-trace", ms.space_generator.ScheduleFn(tiled, postprocs=[Never()]))
    task.pre_tuning(4, 2)
    assert task.generate_measure_candidates() is None


def test_what_was_found_runs(tmp_path):
    func = product()
    database = ms.tune_tir(func, "llvm", str(tmp_path), 3, num_trials_per_iter=3)
    assert len(database) == 3 and all(r.is_valid() for r in database.get_all_tuning_records())
    sch = ms.compile_tir(database, func, "llvm")
    x, y = (np.random.default_rng(i).standard_normal((16, 16), "float32") for i in range(2))
    z = weft.runtime.empty((16, 16), "float32")
    weft.build(sch.mod, target="llvm")["main"](weft.runtime.tensor(x), weft.runtime.tensor(y), z)
    np.testing.assert_allclose(z.numpy(), x @ y, rtol=1e-4, atol=1e-5)


def test_a_task_that_fails_is_noted():
    @derived_object
    class Refuses(ms.builder.PyBuilder):
        def build(self, build_inputs):
            return [ms.builder.BuilderResult(None, "no") for _ in build_inputs]

    database = ms.database.MemoryDatabase()
    ms.tune_tasks(
        tasks=[context("replay-trace")],
        task_weights=[1.0],
        work_dir="",
        max_trials_global=2,
        num_trials_per_iter=2,
        builder=Refuses(),
        runner=DummyRunner(),
        database=database,
        cost_model="none",
    )
    assert len(database) == 2 and not any(r.is_valid() for r in database.get_all_tuning_records())


def doubled(x):
    y = relax.op.nn.relu(x)
    return relax.op.add(y, y)


def test_kernels_of_a_program(tmp_path):
    mod = relax.transform.LegalizeOps()(model(doubled, (4, 8)))
    tasks = extract_tasks(mod, "llvm")
    assert [t.task_name[-4:].strip("_") for t in tasks] == ["relu", "add"] and {t.weight for t in tasks} == {1}
    work_dir = str(tmp_path)
    with weft.target.Target("llvm"):
        tuned = relax.transform.MetaScheduleTuneIRMod({}, work_dir, 2, op_names=["relu"])(mod)
        applied = relax.transform.MetaScheduleApplyDatabase(work_dir)(tuned)
    scheduled = [v.name_hint for v, f in applied.items() if f.attrs.get("tir.is_scheduled")]
    assert len(scheduled) == 1 and scheduled[0].endswith("relu")
    x = np.random.default_rng(0).standard_normal((4, 8), "float32")
    vm = relax.VirtualMachine(compile_relax(ms.database.JSONDatabase(work_dir=work_dir), mod, "llvm"))
    np.testing.assert_allclose(vm["main"](weft.runtime.tensor(x)).numpy(), 2 * np.maximum(x, 0))


def test_a_pipeline_that_tunes(tmp_path):
    pipeline = relax.get_pipeline("static_shape_tuning", "llvm", total_trials=1, work_dir=str(tmp_path))
    assert any(f.attrs.get("tir.is_scheduled") for f in pipeline(model(doubled, (4, 8))).functions.values())


def test_seconds_of_parts():
    with ms.Profiler() as profiler, ms.Profiler.timeit("part"):
        pass
    assert set(profiler.get()) == {"part", "Total"} and "part" in profiler.table()
    refuses(TypeError, "", derived_object, 3)
    assert DummyBuilder().build([None])[0].artifact_path and error.ScheduleError


def test_feature_extractors_serve_cost_models():
    @ms.derived_object
    class Ones(ms.feature_extractor.PyFeatureExtractor):
        def extract_from(self, context, candidates):
            return [weft.nd.array(np.ones((2, 3), "float32")) for _ in candidates]

    candidates = [object()] * 3
    assert str(Ones()).startswith("meta_schedule.Ones(0x")
    drawn = ms.feature_extractor.RandomFeatureExtractor(feature_size=4, max_block_num=2, seed=1)
    state = drawn.random_state
    first = [f.numpy() for f in drawn.extract_from(None, candidates)]
    assert {f.shape[1] for f in first} == {4} and {f.shape[0] for f in first} <= {1, 2}
    drawn.random_state = state
    for a, b in zip(first, drawn.extract_from(None, candidates), strict=True):
        np.testing.assert_array_equal(a, b.numpy())
    for extractor in (Ones(), drawn):
        model = ms.cost_model.XGBModel(extractor=extractor, num_warmup_samples=0)
        assert model.predict(None, candidates).shape == (3,)
        assert str(model).startswith("meta_schedule.XGBModel(0x")
