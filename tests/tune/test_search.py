"""What is measured, in which order, and what becomes of it: with clocks that are made up."""

from functools import cache

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.tune.test_tuned import TARGET, choices, product, run
from weft import error, ir, te, tune
from weft.tir.schedule import schedule_func
from weft.tune.space import mark_of, schedule_as_decided

HARDWARE = tune.Hardware.of(TARGET)


MADE = {}
"""What candidates of equal functions become: most tests ask for the same."""


def made(func, decisions):
    try:
        scheduled = schedule_as_decided(func, TARGET, decisions)
    except error.ScheduleError as e:
        return tune.Built("refused", why=e.what)
    return tune.Built("built", scheduled, mark_of(scheduled))


class Clock:
    """Stands in for a measurer: `ratio(func)` says how long a function takes, or what becomes of it."""

    def __init__(self, ratio):
        self.ratio, self.prepared, self.measured = ratio, [], []

    def prepare(self, default, cases):
        self.prepared.append(ir.fingerprint(default))
        return 10.0

    def build(self, func, candidates, known=()):
        keys = [(ir.fingerprint(func), str(c)) for c in candidates]
        return [MADE.get(key) or MADE.setdefault(key, made(func, c)) for key, c in zip(keys, candidates, strict=True)]

    def measure(self, built, rounds=7):
        func = built.code
        self.measured.append(func)
        found = self.ratio(func, rounds)
        return found if isinstance(found, tune.Measured) else tune.Measured("measured", found, 10 * found)


def task(func=None, us=100.0, space=None):
    func = func if func is not None else product()
    return tune.Task(func, [tune.Case.static(func)], us, space=space)


def tuned(tasks, ratio, database=None, seconds=60, **options):
    database = database if database is not None else tune.Database()
    clock = Clock(ratio)
    options["measured"] = tune.tune_tasks(tasks, TARGET, database, seconds, measurer=clock, **options)
    return database, clock, options["measured"]


@cache
def tiled(height):
    return ir.fingerprint(schedule_func(product(), TARGET, weft.tir.schedule.Knobs({"y.tile": height})))


def tiles_of(func, height):
    """Whether a schedule of the product has tiles of so many rows."""
    return ir.fingerprint(func) == tiled(height)


def record_of(database, func=None):
    return database.query(tune.workload_of(func if func is not None else product()), HARDWARE)


def test_neighbours_come_before_combinations_and_nothing_twice():
    record = tune.TuningRecord(tune.workload_of(product()), HARDWARE)
    search = tune.Search(tune.RuleSpace(product(), TARGET), record)
    asked = choices(product())
    neighbours = sum(len(k.candidates) - 1 for k in asked.values())
    proposed = []
    while found := search.propose(5):
        proposed += found
    assert search.finished
    assert len([c for c in proposed if len(c) == 1]) >= neighbours
    assert any(len(c) > 1 for c in proposed)
    texts = [str(sorted(c.items())) for c in proposed]
    assert len(set(texts)) == len(texts) and "[]" not in texts
    names = [next(iter(c)) for c in proposed[:2]]
    assert len(set(names)) == 2  # choices take turns


def test_a_faster_candidate_is_confirmed_and_built_on():
    best = choices(product())["y.tile"].candidates[4]

    def ratio(func, rounds):
        return 0.5 if tiles_of(func, best) else 0.9 if rounds == 15 else 1.0

    database, clock, _ = tuned([task()], ratio)
    record = record_of(database)
    assert record.best[:3] == ({"y.tile": best}, 0.5, "confirmed")
    assert any(t.decisions.get("y.tile") == best and len(t.decisions) == 2 for t in record.trials)
    assert structural(tune.Tuned(database, TARGET).schedule(product()), best)


def structural(func, tile):
    return tiles_of(func, tile)


def test_a_gain_that_does_not_repeat_is_none():
    database, _, _ = tuned([task()], lambda _f, rounds: 0.5 if rounds == 7 else 1.01, max_trials=20)
    record = record_of(database)
    assert record.best is None and record.gain == 1.0
    assert all(t.ratio == 1.01 for t in record.trials if t.state == "measured")


def test_a_gain_within_the_noise_is_none():
    assert record_of(tuned([task()], lambda *_: 0.98)[0]).best is None


@pytest.mark.parametrize("state", ["crashed", "hung", "wrong", "failed"])
def test_candidates_that_fail_are_dropped_and_tuning_goes_on(state):
    best = choices(product())["y.tile"].candidates[5]
    seen = []

    def ratio(func, _rounds):
        return 0.6 if tiles_of(func, best) else tune.Measured(state, why="for a reason")

    database, _, measured = tuned([task()], ratio, report=seen.append, max_trials=24)
    record = record_of(database)
    assert record.best.decisions == {"y.tile": best}
    assert {t.state for t in record.trials} - {"same", "refused"} == {state, "confirmed"}
    assert seen[-1].measured == measured and seen[-1].dropped == measured - 1
    assert seen[-1].gain == pytest.approx(1 / 0.6)


def test_a_candidate_that_fails_the_second_time_is_dropped():
    database, _, _ = tuned([task()], lambda _f, rounds: 0.5 if rounds == 7 else tune.Measured("hung"), max_trials=3)
    assert record_of(database).best is None
    assert [t.state for t in record_of(database).trials if t.state not in ("same", "refused")] == ["hung"] * 3


def test_time_goes_to_kernels_with_the_largest_share():
    small, large = task(product(40), us=10.0), task(product(41), us=1000.0)
    _, clock, _ = tuned([small, large], lambda *_: 1.0, max_trials=30)
    first = ir.fingerprint(large.search.default)
    assert clock.prepared.count(first) == len(clock.prepared) > 3


def test_kernels_without_gains_lose_their_turn():
    one, two = task(product(40), us=100.0), task(product(41), us=60.0)
    _, clock, _ = tuned([one, two], lambda *_: 1.0, max_trials=48)
    assert len(set(clock.prepared[:4])) == 2


def test_kernels_that_cost_much_to_try_come_less_often(monkeypatch):
    cheap, dear = task(product(40), us=100.0), task(product(41), us=150.0)
    now = [0.0]
    monkeypatch.setattr("weft.tune.task.time.monotonic", lambda: now[0])

    def ratio(_func, _rounds):
        now[0] += 10.0 if clock.prepared[-1] == ir.fingerprint(dear.search.default) else 0.1
        return 1.0

    clock = Clock(ratio)
    tune.tune_tasks([cheap, dear], TARGET, tune.Database(), 1e9, max_trials=48, measurer=clock)
    assert clock.prepared.count(ir.fingerprint(cheap.search.default)) > 5 * clock.prepared.count(
        ir.fingerprint(dear.search.default)
    )


def test_what_was_measured_is_not_measured_again(tmp_path):
    path = tmp_path / "t.json"
    _, clock, first = tuned([task()], lambda *_: 1.0, tune.JSONDatabase(path), max_trials=7)
    _, again, second = tuned([task()], lambda *_: 1.0, tune.JSONDatabase(path), max_trials=7)
    assert first == second == 7
    assert not {ir.fingerprint(f) for f in clock.measured} & {ir.fingerprint(f) for f in again.measured}


def test_all_measured_ends_early_and_is_no_error():
    database, _, measured = tuned([task()], lambda *_: 1.0, seconds=1e9)
    assert measured > 30
    assert tuned([task()], lambda *_: 1.0, database, seconds=1e9)[2] < measured


def test_records_of_other_choices_start_anew():
    old = tune.TuningRecord(
        tune.workload_of(product()), HARDWARE, "f", "others", 1.0, [tune.Trial({"z": 1}, 0.1, "confirmed")]
    )
    database, _, _ = tuned([task()], lambda *_: 1.0, tune.Database([old]), max_trials=1)
    assert record_of(database).best is None and {"z": 1} not in [t.decisions for t in record_of(database).trials]


def test_an_interrupt_saves_what_was_found(tmp_path):
    path = tmp_path / "t.json"
    best = choices(product())["y.tile"].candidates[1]

    def ratio(func, _rounds):
        if tiles_of(func, best):
            return 0.5
        if clock_is_over():
            raise KeyboardInterrupt
        return 1.0

    calls = iter(range(100))

    def clock_is_over():
        return next(calls) == 5

    refuses(KeyboardInterrupt, "", tuned, [task()], ratio, tune.JSONDatabase(path))
    assert record_of(tune.JSONDatabase(path)).best[:3] == ({"y.tile": list(best)}, 0.5, "confirmed")


def test_no_time_for_one_measurement_is_an_error():
    refuses(tune.BudgetError, "before one candidate was measured", tuned, [task()], lambda *_: 1.0, seconds=-1)


def space(sch):
    (i, j, k) = sch.get_loops("y")
    rows = sch.sample_perfect_tile(j, n=2, max_innermost_factor=32)
    outer, inner = sch.split(j, rows)
    sch.reorder(i, outer, k, inner)
    if sch.sample_categorical([0, 1], [0.5, 0.5]):
        sch.vectorize(inner)


def test_a_space_of_the_users_own(tmp_path):
    path = tmp_path / "t.json"
    database, clock, measured = tuned([task(space=space)], lambda *_: 0.5, tune.JSONDatabase(path), max_trials=4)
    assert measured == 4
    (trial,) = [t for t in record_of(database).trials if t.state == "confirmed"]
    again = tune.JSONDatabase(path)
    scheduled = tune.Tuned(again, TARGET).schedule(product())
    assert ir.fingerprint(scheduled) == ir.fingerprint(clock.measured[0])
    with again:
        run(product())
    drawn = tune.DrawnSpace(product(), TARGET, space)
    assert drawn.draw(3) == drawn.draw(3)


def test_a_trace_that_does_not_apply_is_told():
    trial = tune.Trial({"trace": [["no_such_primitive", [], {}, 0, None]]}, 0.5, "confirmed")
    database = tune.Database([tune.TuningRecord(tune.workload_of(product()), HARDWARE, trials=[trial])])
    with pytest.warns(RuntimeWarning, match="trace does not apply"):
        assert tune.Tuned(database, TARGET).schedule(product()) is None


def test_rules_refuse_choices_they_do_not_have():
    refuses(error.ScheduleError, r"choices no\.such", tune.RuleSpace(product(), TARGET).schedule, {"no.such": 1})


def test_tune_tir_measures_for_real():
    func = product()
    database = tune.tune_tir(func, max_trials_global=3)
    assert len([t for t in record_of(database, func).trials if t.ratio]) == 3
    with database:
        run(func)


def test_tune_tir_of_symbolic_shapes_needs_arguments():
    n = te.var("n", "int64")
    x = te.placeholder((n, 32), "float32", "x")
    func = te.create_prim_func([x, te.compute((n, 32), lambda i, j: x[i, j] * 2.0, "y")])
    refuses(error.InvalidArgument, "without being told with what", tune.tune_tir, func)
    with pytest.raises(error.InvalidArgument, match="wrong arguments"):
        tune.tune_tir(func, arguments={"main": [[np.zeros((4, 32), np.float32)]]})
    calls = [[np.zeros((m, 32), np.float32)] * 2 for m in (4, 400)]
    database = tune.tune_tir(func, max_trials_global=2, arguments={"main": calls})
    assert record_of(database, func).default_us > 0


def test_names_of_the_package():
    assert weft.tune.tune_relax is weft.relax.tune_relax
    refuses(AttributeError, "no attribute 'nothing'", getattr, weft.tune, "nothing")
