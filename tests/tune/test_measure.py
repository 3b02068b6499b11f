"""Candidates are measured in processes of their own; whatever they do, measuring goes on."""

import pytest

from tests.refusals import refuses
from weft import target, te
from weft.runtime.worker import Process, WorkerCrashed, WorkerError, WorkerHung
from weft.script import tir as T
from weft.tir.schedule import Knobs, default_schedule, schedule_func
from weft.tune.case import Argument, Case
from weft.tune.measure import Measurer
from weft.tune.space import mark_of

TARGET = target.Target("llvm")
N = 4096


def doubled(factor=2.0):
    x = te.placeholder((N,), "float32", "x")
    return te.create_prim_func([x, te.compute((N,), lambda i: x[i] * factor, "y")])


CASES = [Case((Argument("float32", (N,)), Argument("float32", (N,), written=True)))]


@T.prim_func
def hangs(x: T.Buffer((4096,), "float32"), y: T.Buffer((4096,), "float32")):
    n = T.sblock_alloc_buffer((1,), "int32")
    n[0] = 1
    while n[0] > 0:
        y[0] = x[0]
        n[0] = 1


@T.prim_func
def crashes(x: T.Buffer((4096,), "float32"), y: T.Buffer((4096,), "float32")):
    for i in range(4096):
        y[i * T.int64(1000000000)] = x[i]


@pytest.fixture(scope="module")
def measurer():
    with Measurer(TARGET, 2, builders=2) as made:
        yield made


@pytest.fixture
def ready(measurer):
    measurer.prepare(default_schedule(doubled(), TARGET), CASES)
    return measurer


def outcome(measurer, func):
    (code,) = measurer.compile([func])
    return measurer.measure(code)


def good(measurer):
    found = outcome(measurer, schedule_func(doubled(), TARGET, Knobs({"y.unroll": 4})))
    assert found.state == "measured" and 0.05 < found.ratio < 20 and found.us > 0, found


def test_the_same_kernel_takes_the_same_time(ready):
    ratios = [outcome(ready, default_schedule(doubled(), TARGET)).ratio for _ in range(5)]
    assert 0.5 < sorted(ratios)[2] < 2, ratios


def test_a_slower_kernel_is_slower(measurer):
    a, b, k = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="b"), te.reduce_axis((0, 64), "k")
    func = te.create_prim_func([a, b, te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "c")])
    square = Argument("float32", (64, 64))
    measurer.prepare(default_schedule(func, TARGET), [Case((square, square, square._replace(written=True)))])
    assert outcome(measurer, func).ratio > 1.15  # without a schedule


def test_a_wrong_result_is_told(ready):
    found = outcome(ready, default_schedule(doubled(2.01), TARGET))
    assert found.state == "wrong" and "output 0 differs by" in found.why
    good(ready)


def test_a_crash_is_told_and_measuring_goes_on(ready):
    found = outcome(ready, crashes)
    assert found.state == "crashed" and "signal" in found.why
    good(ready)


def test_a_hanging_kernel_is_ended_and_measuring_goes_on(ready, monkeypatch):
    monkeypatch.setattr("weft.tune.measure._RUN_SECONDS", 0.5)
    found = outcome(ready, hangs)
    assert found.state == "hung" and "no answer" in found.why
    monkeypatch.undo()
    good(ready)


def test_what_does_not_compile_is_told(ready):
    x = te.placeholder((N,), "float32", "x")
    y = te.compute((N,), lambda i: T.call_extern("float32", "no_such_function_anywhere", x[i]), "y")
    assert outcome(ready, te.create_prim_func([x, y])).state in ("failed", "crashed")
    good(ready)


def test_many_are_compiled_at_once_in_order(ready):
    functions = [default_schedule(doubled(f), TARGET) for f in (2.0, 3.0, 2.0, 4.0, 2.0)]
    states = [ready.measure(code, 3).state for code in ready.compile(functions)]
    assert states == ["measured", "wrong", "measured", "wrong", "measured"]


def test_candidates_are_scheduled_where_they_are_compiled(ready):
    decisions = [{"y.unroll": 4}, {}, {"no.such": 1}, {"y.unroll": 2}]
    known = [mark_of(default_schedule(doubled(), TARGET))]
    built = ready.build(doubled(), decisions, known)
    assert [b.state for b in built] == ["built", "same", "refused", "built"]
    assert built[0].mark == mark_of(schedule_func(doubled(), TARGET, Knobs({"y.unroll": 4})))
    assert "no.such" in built[2].why
    assert [ready.measure(b).state for b in built] == ["measured", "same", "refused", "measured"]


def test_integers_scalars_cold_weights_and_several_cases(measurer):
    n = te.var("n", "int64")
    x, i = te.placeholder((n, 8), "float32", "x"), te.placeholder((n,), "int64", "i")
    func = te.create_prim_func([x, i, te.compute((n, 8), lambda a, b: x[i[a], b], "y")])
    cases = [
        Case((Argument("float32", (m, 8), cold=True), Argument("int64", (m,)), Argument("float32", (m, 8), True)), m)
        for m in (3, 50)
    ]
    assert measurer.prepare(default_schedule(func, TARGET), cases) > 0
    assert outcome(measurer, func).state == "measured"


def test_a_process_that_was_killed_says_so():
    process = Process("weft.tune.worker")
    process.start().kill()
    refuses(WorkerCrashed, "signal 9", process.ask, {"do": "compile", "func": "", "target": "llvm"}, 30)
    refuses(WorkerError, "malformed", process.ask, {"do": "compile", "func": "", "target": "llvm"}, 30)
    process.stop()


def test_time_limits_are_kept():
    process = Process("weft.tune.worker")
    refuses(WorkerHung, "no answer in 0 s", process.ask, {"do": "compile", "func": "", "target": "llvm"}, 0.01)
    assert process.process is None
