"""Whole models: which kernels are tuned, with what, and that records which do not help are taken back."""

import json

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import relax, runtime, target
from weft.error import InvalidArgument
from weft.relax import tuning
from weft.relax.tune_choices import tune_choices
from weft.tune import CHOICE, Asked, BudgetError, Case, Database, Hardware, Measured, Trial, TuningRecord, WorkerError
from weft.tune import workload_of_choice as choice_key
from weft.tune.measure import Built

TARGET = target.Target("llvm")
RNG = np.random.default_rng(0)


def layers(rows=64, count=2):
    """A module of products that are one kernel, and one more."""
    script = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 32), "float32"))
    with script.function("main", [x]):
        with script.dataflow():
            y = x
            for _ in range(count):
                w = relax.const(RNG.standard_normal((32, 32), np.float32) / 6)
                y = script.emit(relax.op.nn.relu(relax.op.matmul(y, w)))
            w = relax.const(RNG.standard_normal((32, 64), np.float32) / 6)
            out = script.emit_output(relax.op.matmul(y, w))
        script.emit_func_output(out)
    return script.get()


def convolution(c=32, size=28):
    w = relax.const(np.random.default_rng(1).standard_normal((c, c, 3, 3), np.float32))
    return model(lambda x: relax.op.nn.conv2d(x, w, padding=1), (1, c, size, size))


def values(*shape):
    return RNG.standard_normal(shape, np.float32)


def run(mod, x, database=None):
    return runtime.VirtualMachine(relax.build(mod, TARGET, tuned=database), jit=False)["main"](x).numpy()


def test_tasks_are_kernels_with_their_calls():
    tasks = relax.extract_tasks(layers(), [[values(64, 32)]], TARGET)
    assert len(tasks) == 2
    (twice,) = [t for t in tasks if sum(c.calls for c in t.cases) == 2]
    (case,) = twice.cases
    assert isinstance(case, Case) and [a.written for a in case.arguments] == [False, False, True]
    assert case.arguments[0].shape == case.arguments[2].shape == (64, 32)
    assert tasks == sorted(tasks, key=lambda t: -t.us) and all(t.us > 0 for t in tasks)
    assert not any(a.cold for t in tasks for c in t.cases for a in c.arguments)


def test_symbolic_sizes_are_cases_of_one_task():
    little = target.Target("llvm -l3-cache-bytes=1024")  # the weights come from memory
    n = weft.tir.Var("n", "int64")
    tasks = relax.extract_tasks(layers(n), [[values(3, 32)], [values(70, 32)]], little)
    first = next(t for t in tasks if sum(c.calls for c in t.cases) == 4)
    assert sorted(c.arguments[0].shape for c in first.cases) == [(3, 32), (70, 32)]
    assert all(c.arguments[1].cold and not c.arguments[0].cold for c in first.cases)


def test_a_model_is_tuned_and_computes_the_same():
    mod, x = layers(), values(64, 32)
    seen = []
    result = relax.tune_relax(mod, target=TARGET, max_trials_global=4, inputs=[[x]], budget=100, report=seen.append)
    assert result.measured == 4 == seen[-1].measured and not result.interrupted
    assert 0 < result.now_us <= result.before_us
    np.testing.assert_allclose(run(mod, x, result.database), run(mod, x), rtol=1e-4, atol=1e-4)


class Fast:
    """Stands in for measuring: every candidate seems to be fast, which the model does not confirm."""

    def __init__(self, *_):
        pass

    def prepare(self, *_):
        return 1.0

    def build(self, _func, candidates, _known=()):
        return [Built("built", b"", str(c)) for c in candidates]

    def measure(self, *_):
        return Measured("measured", 0.1, 0.1)

    def __exit__(self, *_):
        pass


def test_records_that_do_not_help_the_model_are_taken_back(monkeypatch):
    monkeypatch.setattr("weft.tune.task.Measurer", Fast)
    monkeypatch.setattr(tuning, "_KEPT", 0.0)
    result = relax.tune_relax(layers(), target=TARGET, max_trials_global=4, inputs=[[values(64, 32)]], budget=100)
    assert result.kernels == [] and result.left_out and result.now_us == result.before_us
    trials = [t for r in result.database.get_all_tuning_records() for t in r.trials]
    assert {t.state for t in trials if t.ratio is not None} == {"no gain", "measured"}
    assert all(r.best is None for r in result.database.get_all_tuning_records())


def test_what_is_slower_as_a_whole_is_taken_back(monkeypatch):
    monkeypatch.setattr("weft.tune.task.Measurer", Fast)
    monkeypatch.setattr(tuning, "_KEPT", 1e9)
    monkeypatch.setattr(tuning, "_totals", lambda *_: (100.0, 101.0))
    result = relax.tune_relax(layers(), target=TARGET, max_trials_global=2, inputs=[[values(64, 32)]], budget=100)
    assert (result.before_us, result.now_us, result.kernels) == (100.0, 100.0, []) and result.left_out
    assert all(r.best is None for r in result.database.get_all_tuning_records())


def test_an_interrupt_ends_with_what_was_found(monkeypatch, tmp_path):
    monkeypatch.setattr("weft.tune.task.Measurer", Fast)

    def stop(progress):
        if progress.measured == 3:
            raise KeyboardInterrupt

    path = tmp_path / "t.json"
    result = relax.tune_relax(
        layers(), target=TARGET, database=path, inputs=[[values(64, 32)]], budget=100, report=stop
    )
    assert result.interrupted and result.measured == 3 and path.exists()
    assert any(r.best is not None for r in weft.tune.JSONDatabase(path).get_all_tuning_records())


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"inputs": []}, InvalidArgument, "needs inputs"),
        ({"target": "nvptx"}, InvalidArgument, "cannot be tuned"),
        ({"budget": 0.001}, BudgetError, "before one candidate was measured"),
    ],
)
def test_bad_requests_are_told(options, error, told):
    with pytest.raises(error, match=told):
        relax.tune_relax(layers(), **{"inputs": [[values(64, 32)]], **options})


def subject_of(mod):
    with Database() as database:
        weft.relax.get_pipeline("default", TARGET)(mod)
    ((subject, asked),) = database.asked.items()
    return subject, asked


def decided(subject, choice):
    record = TuningRecord(choice_key(subject), Hardware.of(TARGET), trials=[Trial({CHOICE: choice}, 0.5, "confirmed")])
    return Database([record])


def test_convolutions_ask_for_their_algorithm():
    subject, asked = subject_of(convolution())
    assert json.loads(subject)["convolution"] == [1, 28, 28] and json.loads(subject)["channels"] == [32, 32]
    assert asked.default in asked.candidates == (0, 2, 4) and asked.calls == 1


@pytest.mark.parametrize("choice", [0, 2, 4])
def test_records_decide_the_algorithm(choice):
    mod, x = convolution(), values(1, 32, 28, 28)
    subject, _ = subject_of(mod)
    with decided(subject, choice):
        text = str(weft.relax.get_pipeline("default", TARGET)(mod))
    assert ("winograd" in text) == (choice > 0)
    np.testing.assert_allclose(run(mod, x, decided(subject, choice)), run(mod, x), rtol=1e-3, atol=1e-3)


def test_a_choice_that_is_no_candidate_is_not_taken():
    mod = convolution()
    subject, asked = subject_of(mod)
    with decided(subject, 77):
        text = str(weft.relax.get_pipeline("default", TARGET)(mod))
    assert ("winograd" in text) == (asked.default > 0)


class Scales:
    """Stands in for measuring: kernels take what they are told to, by the number of their stages."""

    def __init__(self, us):
        self.us, self.prepared = us, 0

    def prepare(self, func, cases):
        self.prepared += 1
        found = self.us("winograd" in str(func), cases)
        if found is None:
            raise WorkerError("crashed")
        return found


def test_choices_are_measured_once_and_the_best_is_kept():
    subject, asked = subject_of(convolution())
    asked = {subject: Asked(asked.candidates, 4, 3)}
    database, seen = Database(), []
    scales = Scales(lambda winograd, cases: 9.0 if winograd else 5.0)
    (record,) = tune_choices(asked, TARGET, database, 60, cold=True, measurer=scales, report=lambda *a: seen.append(a))
    assert record.best.decisions == {CHOICE: 0} and record.gain == pytest.approx(1.8, rel=0.01) and len(seen) == 2
    before = scales.prepared
    assert tune_choices(asked, TARGET, database, 60, measurer=scales) == [record] and scales.prepared == before


def test_choices_that_crash_are_dropped():
    subject, _ = subject_of(convolution())
    scales = Scales(lambda winograd, cases: None if winograd else 5.0)
    (record,) = tune_choices({subject: Asked((0, 2, 4), 0)}, TARGET, Database(), 60, measurer=scales)
    assert record.best is None and [t.state for t in record.trials] == ["measured", "failed", "failed"]


def test_without_time_choices_keep_their_default():
    subject, asked = subject_of(convolution())
    (record,) = tune_choices({subject: asked}, TARGET, Database(), 0.0, measurer=Scales(lambda *_: 1.0))
    assert record.best is None and len(record.trials) == 1
