"""Records decide how kernels are scheduled, and their code is cached by what was decided."""

import warnings

import numpy as np
import pytest

from weft import ir, relax, runtime, target, te, topi
from weft.relax.transform import schedule_tir
from weft.tir.schedule import Knobs, default_schedule, schedule_func
from weft.tune import CONFIG, Database, Hardware, Trial, Tuned, TuningRecord, workload_of

TARGET = target.Target("llvm")
M, K, N = 37, 64, 64


def product(m=M):
    x, w = te.placeholder((m, K), "float32", "x"), te.placeholder((N // 32, K, 32), "float32", "w")
    k = te.reduce_axis((0, K), "k")
    y = te.compute((m, N), lambda i, j: te.sum(x[i, k] * w[j // 32, k, j % 32], axis=k), "y")
    return te.create_prim_func([x, w, topi.nn.relu(y)])


def database(func, decisions, ratio=0.5, state="confirmed"):
    hardware = Hardware.of(TARGET)
    return Database([TuningRecord(workload_of(func), hardware, "f", "", 1.0, [Trial(decisions, ratio, state)])])


def choices(func):
    knobs = Knobs()
    schedule_func(func, TARGET, knobs)
    return knobs.asked


def others(func):
    """Decisions that differ from each default."""
    return {n: next(c for c in k.candidates if c != k.default) for n, k in choices(func).items()}


def run(func):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((M, K), np.float32), rng.standard_normal((N // 32, K, 32), np.float32)
    y = runtime.tensor(np.full((M, N), np.nan, np.float32))
    relax.compile_kernels(ir.IRModule({"f": func}), TARGET)["main"](runtime.tensor(x), runtime.tensor(w), y)
    np.testing.assert_allclose(y.numpy(), np.maximum(x @ np.concatenate(list(w), 1), 0), rtol=1e-4, atol=1e-4)


def test_a_products_choices():
    found = choices(product())
    assert {n.split(".")[1] for n in found} >= {"tile", "steps"}
    for knob in found.values():
        assert knob.candidates[0] == knob.default == knob.chosen
        assert len(set(knob.candidates)) == len(knob.candidates) > 1


@pytest.mark.parametrize("name", sorted(choices(product())))
def test_every_candidate_of_a_product_computes_the_same(name):
    for candidate in choices(product())[name].candidates[1:]:
        with database(product(), {name: candidate}):
            run(product())


def test_defaults_are_the_rules_own_choice():
    func = product()
    knobs = Knobs({n: k.default for n, k in choices(func).items()})
    assert ir.structural_equal(schedule_func(func, TARGET, knobs), default_schedule(func, TARGET))
    assert not knobs.unused()


def test_records_reach_the_schedule_pass():
    func, mod = product(), ir.IRModule({"f": product()})
    decisions = others(func)
    plain = schedule_tir(target=TARGET)(mod)["f"]
    with database(func, decisions) as given:
        tuned = schedule_tir(target=TARGET)(mod)["f"]
    with ir.PassContext(config={CONFIG: given}):
        configured = schedule_tir(target=TARGET)(mod)["f"]
    expected = schedule_func(func, TARGET, Knobs(decisions)).with_attr("tir.is_scheduled", True)
    assert ir.structural_equal(tuned, expected) and ir.structural_equal(configured, expected)
    assert not ir.structural_equal(tuned, plain)


def test_the_name_of_a_kernel_does_not_matter():
    func = product().with_attr("global_symbol", "other")
    assert workload_of(func) == workload_of(product()) != workload_of(product(M + 1))
    assert Tuned(database(product(), others(func)), TARGET).schedule(func).attrs["global_symbol"] == "other"


@pytest.mark.parametrize("state", ["measured", "no gain", "wrong", "hung"])
def test_only_confirmed_decisions_are_used(state):
    func = product()
    assert Tuned(database(func, others(func), state=state), TARGET).schedule(func) is None


def test_decisions_are_part_of_the_cached_codes_key(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    func = product()
    run(func)
    with database(func, others(func)):
        run(func)
    assert runtime.cache.statistics().entries == 2
    before = runtime.cache.statistics().hits
    with database(func, others(func)):
        run(func)
    run(func)
    assert runtime.cache.statistics().entries == 2 and runtime.cache.statistics().hits == before + 2


@pytest.mark.parametrize("decisions", [{"gone.tile": [6, 4]}, {"y.tile": [999, 4]}, {"y.tile": "all"}])
def test_records_of_other_rules_are_told_and_not_used(decisions):
    func = product()
    with pytest.warns(RuntimeWarning, match=r"out of date and not used.*tune again"):
        assert Tuned(database(func, decisions), TARGET).schedule(func) is None
    with database(func, decisions), warnings.catch_warnings(action="ignore"):
        run(func)


def test_records_of_other_threads_are_not_used():
    func = product()
    (record,) = database(func, others(func)).get_all_tuning_records()
    record.hardware = record.hardware._replace(threads=record.hardware.threads + 1)
    with pytest.warns(RuntimeWarning, match="nothing for this machine"):
        assert not Tuned(Database([record]), TARGET).decisions(func)
