"""Searches: sketches, policies, tasks, log files."""

import json

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import auto_scheduler, error, te, topi
from weft.testing import auto_scheduler as workloads


def task_of(func=workloads.matmul_auto_scheduler_test, args=(32, 32, 32)):
    return auto_scheduler.SearchTask(func=func, args=args, target="llvm")


def test_stages_of_ones_own_have_a_text():
    a = te.placeholder((4, 6), name="a")
    out = te.compute((4, 6), lambda i, j: topi.cumsum(a, axis=1)[i, j] + 1, name="out")
    text = str(auto_scheduler.ComputeDAG([a, out]))
    assert "= ExternOp [a]" in text and "out(i, j) =" in text


class Timed(auto_scheduler.measure.ProgramRunner):
    """Takes the number of steps for the time; the loops as they are are slow."""

    def run(self, measure_inputs, build_results, verbose=1):
        counts = [len(i.state.transform_steps) for i in measure_inputs]
        return [auto_scheduler.MeasureResult([(c or 99) / 100], 0, "", 0.1, 0) for c in counts]


class NotBuilt(auto_scheduler.measure.ProgramBuilder):
    def build(self, measure_inputs, verbose=1):
        return [None] * len(measure_inputs)


def options(log, trials=6, per_round=3):
    return auto_scheduler.TuningOptions(
        trials,
        num_measures_per_round=per_round,
        verbose=0,
        builder=NotBuilt(),
        runner=Timed(),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
    )


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (workloads.matmul_auto_scheduler_test, (16, 24, 8)),
        (workloads.conv2d_nchw_bn_relu_auto_scheduler_test, (1, 6, 6, 3, 4, 3, 1, 1)),
        (workloads.softmax_nm_auto_scheduler_test, (6, 10)),
        (workloads.zero_rank_reduce_auto_scheduler_test, (10,)),
    ],
)
def test_every_state_that_is_drawn_computes_the_same(func, args):
    task = task_of(func, args)
    policy = auto_scheduler.SketchPolicy(task, params={"sample_init_min_population": 3}, seed=0)
    states = policy.sample_initial_population()
    assert states
    sch, tensors = task.compute_dag.apply_steps_from_state(task.compute_dag.init_state)
    rng = np.random.default_rng(0)
    shapes = [tuple(int(d) for d in t.shape) for t in tensors]
    values = [rng.standard_normal(s).astype("float32") for s in shapes]

    def result(schedule, tensors):
        arrays = [weft.runtime.tensor(v) for v in values]
        weft.build(schedule, tensors, "llvm")(*arrays)
        return arrays[-1].numpy()

    expected = result(sch, tensors)
    for state in states:
        found = result(*task.compute_dag.apply_steps_from_state(state))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_best_of_a_log_is_applied(tmp_path):
    task, log = task_of(), tmp_path / "log.json"
    task.tune(options(log), "sketch.random")
    records = auto_scheduler.load_records(str(log))
    assert len(records) == 6 and len({i.state for i, _ in records}) == 6
    best, res = auto_scheduler.load_best_record(str(log), task.workload_key)
    assert res.mean == min(r.mean for _, r in records)
    sch, tensors = task.apply_best(str(log))
    assert len(sch.stages) == len(best.state.stages) and tensors is task.compute_dag.tensors
    assert "s[" in task.print_best(str(log))
    with auto_scheduler.ApplyHistoryBest(str(log)) as context:
        found = context.query(task.target, task.workload_key, True, task.compute_dag, "f")
    assert found == best.state


def test_the_loops_as_they_are_are_measured_first(tmp_path):
    task = task_of()
    policy = auto_scheduler.SketchPolicy(task, seed=3)
    proposed = policy.propose(4)
    assert proposed[0] == task.compute_dag.init_state and len(set(proposed)) == 4
    policy.take(auto_scheduler.MeasureInput(task, proposed[0]), auto_scheduler.MeasureResult([0.5], 0, "", 0.1, 0))
    assert task.compute_dag.init_state not in policy.propose(4)


def test_what_was_measured_is_not_measured_again(tmp_path):
    task, log = task_of(), tmp_path / "log.json"
    task.tune(options(log), "sketch.random")
    policy = auto_scheduler.SketchPolicy(
        task,
        auto_scheduler.XGBModel(num_warmup_sample=2),
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(str(log))],
    )
    assert len(policy.measured) == 6
    task.tune(options(log), policy)
    assert len({i.state for i, _ in auto_scheduler.load_records(str(log))}) == 12


def test_a_sketch_of_the_user():
    calls = []

    def meet(policy, state, stage):
        return auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST

    def apply(policy, state, stage):
        calls.append(stage)
        new = state.copy()
        new.split(new.stage_ops[2], new[new.stage_ops[2]].iters[0], [8])
        return [[new, -1]]

    rule = auto_scheduler.PreloadCustomSketchRule(meet, apply)
    (sketch,) = auto_scheduler.SketchPolicy(task_of(), init_search_callbacks=[rule]).generate_sketches()
    assert sketch.transform_steps == [["SP", 2, 0, 32, [8], 1]] and calls == [2]


def test_tasks_in_turns(tmp_path):
    tasks = [task_of(args=(n, n, n)) for n in (8, 16)]
    scheduler = auto_scheduler.TaskScheduler(tasks, strategy="round-robin", callbacks=[])
    scheduler.tune(options(tmp_path / "log.json", 4, 1), "sketch.random")
    keys = [i.task.workload_key for i, _ in auto_scheduler.load_records(str(tmp_path / "log.json"))]
    assert [keys.count(t.workload_key) for t in tasks] == [2, 2]
    refuses(ValueError, "strategy", auto_scheduler.TaskScheduler, tasks, strategy="other")


def test_measuring_on_this_machine(tmp_path):
    task, log = task_of(), str(tmp_path / "log.json")
    runner = auto_scheduler.LocalRunner(min_repeat_ms=0)
    callbacks = [auto_scheduler.RecordToFile(log)]
    task.tune(auto_scheduler.TuningOptions(2, runner=runner, measure_callbacks=callbacks, verbose=0), "sketch.random")
    assert [r.error_no for _, r in auto_scheduler.load_records(log)] == [0, 0]


def test_a_workload_goes_to_another_process_and_is_named_by_where_it_lies():
    registry = auto_scheduler.workload_registry
    inner = auto_scheduler.register_workload(lambda n: [te.placeholder((n,), name="a")])
    key = auto_scheduler.make_workload_key(inner, (4,))
    assert json.loads(key)[0] == auto_scheduler.utils.get_func_name(inner) == inner.__qualname__ != inner.__name__
    entry = registry.serialize_workload_registry_entry(key)
    del registry.WORKLOAD_FUNC_REGISTRY[entry[0]]
    refuses(error.InvalidArgument, "no workload", registry.serialize_workload_registry_entry, key)
    registry.deserialize_workload_registry_entry(entry)
    assert registry.workload_key_to_tensors(key)[0].shape[0] == 4
