"""Templates, tuners and log files, from a program's side."""

import base64
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import auto_scheduler, autotvm, te
from weft.autotvm.task.task import compute_flop
from weft.testing.autotvm import DummyRunner, get_sample_records, get_sample_task


class DummyBuilder(autotvm.measure.Builder):
    def build(self, measure_inputs):
        return [None] * len(measure_inputs)


OPTION = autotvm.measure_option(DummyBuilder(n_parallel=4), DummyRunner())


@autotvm.template("tests/scale")
def scale(n):
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", s[b].op.axis[0], num_outputs=2, policy="candidate", candidate=[[-1, 1], [-1, 16]])
    cfg["tile"].apply(s, b, s[b].op.axis[0])
    return s, [a, b]


@pytest.mark.parametrize("kind", ["GridSearchTuner", "RandomTuner", "GATuner", "XGBTuner", "DropletTuner"])
def test_tuners_try_each_configuration_once(kind):
    task, _ = get_sample_task(32)
    tuner, tried = getattr(autotvm.tuner, kind)(task), []
    tuner.tune(12, OPTION, callbacks=[lambda t, inputs, results: tried.extend(i.config.index for i in inputs)])
    assert 0 < len(tried) <= 12 and len(set(tried)) == len(tried)
    assert tuner.best_flops > 0


def test_a_model_learns_from_records():
    task, _ = get_sample_task(32)
    tuner = autotvm.tuner.XGBTuner(task, feature_type="knob")
    tuner.load_history(get_sample_records(40), min_seed_records=40)
    scores = tuner.cost_model.predict([0, 35])
    assert scores[0] > scores[1]  # the n-th record takes n seconds


def test_the_best_of_a_log_is_applied(tmp_path):
    task = autotvm.task.create("tests/scale", args=(64,), target="llvm")
    log = tmp_path / "log.json"
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in range(2)]
    results = [autotvm.MeasureResult((c,), 0, 0.1, 0.0) for c in (0.3, 0.2)]
    autotvm.callback.log_to_file(str(log))(None, inputs, results)
    with autotvm.apply_history_best(str(log)), weft.target.Target("llvm"):
        s, tensors = scale(64)
    lowered = str(weft.lower(s, tensors, simple_mode=True))
    assert "range(16)" in lowered or "16" in lowered
    found = weft.runtime.empty((64,), "float32")
    weft.build(s, tensors, "llvm")(weft.runtime.tensor(np.arange(64, dtype="float32")), found)
    np.testing.assert_array_equal(found.numpy(), 2 * np.arange(64))


@pytest.mark.parametrize("protocol", ["json", "pickle"])
def test_records_are_read_as_they_were_written(protocol):
    (inp, res), *_ = get_sample_records(1)
    again, result = autotvm.record.decode(autotvm.record.encode(inp, res, protocol), protocol)
    assert autotvm.record.measure_str_key(again) == autotvm.record.measure_str_key(inp)
    assert result.costs == res.costs


def test_a_log_keeps_the_fastest_of_each_workload(tmp_path):
    text = io.StringIO()
    records = get_sample_records(3)
    autotvm.callback.log_to_file(text)(None, [i for i, _ in records], [r for _, r in records])
    (tmp_path / "all").write_text(text.getvalue())
    autotvm.record.pick_best(str(tmp_path / "all"), str(tmp_path / "best"))
    (best,) = autotvm.record.load_from_file(tmp_path / "best")
    assert best[1].costs == (1,)


def test_operations_are_counted():
    a = te.placeholder((4, 8))
    k = te.reduce_axis((0, 8))
    s = te.create_schedule(te.compute((4,), lambda i: te.sum(a[i, k], axis=k)).op)
    assert compute_flop(s) == 32
    refuses(RuntimeError, "operations", compute_flop, te.create_schedule(te.compute((4,), lambda i: a[i, 0]).op))


def test_measuring_on_this_machine():
    tuner = autotvm.tuner.GridSearchTuner(autotvm.task.create("tests/scale", args=(64,), target="llvm"))
    runner = autotvm.LocalRunner(number=2, repeat=2, cooldown_interval=0)
    tuner.tune(2, autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1), runner))
    assert (tuner.counter, tuner.index_offset) == (2, 0)
    assert tuner.best_measure_pair[1].error_no == 0 and len(tuner.best_measure_pair[1].costs) == 2


def test_a_log_runs_no_code():
    (inp, res), *_ = get_sample_records(1)
    parts = autotvm.record.encode(inp, res, "pickle").split("\t")
    parts[2] = base64.b64encode(pickle.dumps(print)).decode()
    refuses(weft.WeftError, r"builtins\.print", autotvm.record.decode, "\t".join(parts), "pickle")


def test_contexts_are_of_their_thread():
    def best():
        return autotvm.DispatchContext.current

    outermost = best()
    with autotvm.task.ApplyFixedConfig([], []) as fixed, ThreadPoolExecutor(1) as pool:
        assert best() is fixed and pool.submit(best).result() is outermost
        assert auto_scheduler.DispatchContext.current is not fixed
    assert best() is outermost
