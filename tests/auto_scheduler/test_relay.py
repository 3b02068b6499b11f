"""Tasks of Relay programs: extracted, tuned, and built with what was found."""

import json

import numpy as np
import pytest
from weft.contrib import graph_executor

import weft
from weft import auto_scheduler, error, relay
from weft.relay.database import kernel_sources
from weft.relay.vm.compiler import VMCompiler

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.standard_normal((3, 3, 8, 16)).astype("float32"), "b": RNG.standard_normal(16).astype("float32")}
X = RNG.standard_normal((1, 6, 5, 8)).astype("float32")


def program(x=None):
    x = relay.var("x", shape=(1, 6, 5, 8)) if x is None else x
    w, b = relay.var("w", shape=(3, 3, 8, 16)), relay.var("b", shape=(16,))
    y = relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=16, data_layout="NHWC", kernel_layout="HWIO")
    return relay.nn.relu(relay.nn.bias_add(y, b, 3))


def extracted(mod, **options):
    return auto_scheduler.extract_tasks(mod, PARAMS, "llvm", **options)


def results(mod, build=relay.build):
    g = graph_executor.GraphModule(build(mod, target="llvm", params=PARAMS)["default"](weft.cpu()))
    g.set_input("x", X)
    g.run()
    return g.get_output(0).numpy()


def test_tasks_with_and_without_control_flow(tmp_path):
    plain = weft.IRModule.from_expr(program())
    tasks, weights = extracted(plain, dump_workload_to_dag_log=str(tmp_path / "dags"))
    assert weights == [1] and tasks[0].compute_dag.flop_ct > 2 * 4 * 3 * 16 * 72
    assert json.loads((tmp_path / "dags").read_text()) == {t.workload_key: str(t.compute_dag) for t in tasks}
    x = relay.var("x", shape=(1, 6, 5, 8))
    chosen = relay.If(relay.less(relay.sum(x), relay.const(0.0)), program(x), relay.negative(program(x)))
    many = auto_scheduler.extract_tasks(weft.IRModule.from_expr(chosen), None, "llvm", include_simple_tasks=True)
    assert len(many[0]) > 1
    anything = relay.Function([v := relay.var("v", shape=(relay.Any(), 4))], relay.sum(v))
    assert auto_scheduler.extract_tasks(weft.IRModule.from_expr(anything), None, "llvm") == ([], [])


def test_a_graph_that_is_refused_is_not_lowered_once_more(monkeypatch):
    def refuse(mod, target):
        raise error.LoweringError("no schedule")

    monkeypatch.setattr(relay.build_module, "scheduled", refuse)
    monkeypatch.setattr(VMCompiler, "optimize", lambda *_: pytest.fail("lowered for the machine, too"))
    with pytest.raises(error.LoweringError, match="no schedule"):
        extracted(weft.IRModule.from_expr(program()))


@pytest.mark.parametrize("sample", [False, True])
def test_a_build_takes_what_was_found(tmp_path, sample):
    mod, log = weft.IRModule.from_expr(program()), str(tmp_path / "log.json")
    expected = results(mod)
    asked = weft.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True})
    if sample:
        context = auto_scheduler.ApplyHistoryBestOrSample(None, num_measure=1)
    else:
        tasks, weights = extracted(mod)
        options = auto_scheduler.TuningOptions(
            2, num_measures_per_round=2, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(log)]
        )
        auto_scheduler.TaskScheduler(tasks, weights, callbacks=[]).tune(options, search_policy="sketch.random")
        context = auto_scheduler.ApplyHistoryBest(log)
    made, ask = [], context.kernel
    context.kernel = lambda *args: made.append(ask(*args)) or made[-1]
    with context:
        assert not auto_scheduler.is_auto_scheduler_enabled()
        results(mod)  # nothing is asked without the option
        assert not made
        with asked:
            np.testing.assert_allclose(results(mod), expected, rtol=1e-4, atol=1e-4)
    assert made and made[0] is not None


def test_sources_are_kept_only_where_they_are_wanted():
    with kernel_sources() as sources:
        assert sources is None
        results(weft.IRModule.from_expr(program()))


def test_a_group_that_the_program_made_is_one_kernel():
    x, w, v = relay.var("x", shape=(1, 3, 7, 6)), relay.var("w", shape=(8, 3, 3, 3)), relay.var("v", shape=(8, 8, 1, 1))
    y = relay.nn.conv2d(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))), v)
    inner = relay.Function([x, w, v], y)
    params = [relay.var(p.name_hint, p.ty) for p in inner.params]
    group = relay.Function(params, relay.Call(inner.with_attr("Primitive", 1), params))
    values = [RNG.standard_normal([int(d) for d in p.ty.shape]).astype("float32") for p in params]
    for kind in ("graph", "vm"):
        a, b = (relay.create_executor(kind).evaluate(f)(*values).numpy() for f in (inner, group))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert len(auto_scheduler.extract_tasks(group, None, "llvm")[0]) == 1
