"""Tasks of Relay programs: extracted by operator, tuned, and built with what was found."""

import numpy as np
import pytest
from weft.contrib import graph_executor

import weft
from weft import autotvm, error, relay
from weft.autotvm import graph_tuner
from weft.autotvm.task import kernels

RNG = np.random.default_rng(0)
SHAPES = {"w": (1, 1, 6, 10), "b": (10,), "v": (7, 10)}
PARAMS = {n: RNG.standard_normal(s).astype("float32") for n, s in SHAPES.items()}
X = RNG.standard_normal((1, 5, 3, 6)).astype("float32")


def program():
    x, (w, b, v) = relay.var("x", shape=X.shape), (relay.var(n, shape=s) for n, s in SHAPES.items())
    y = relay.nn.conv2d(x, w, kernel_size=(1, 1), channels=10, data_layout="NHWC", kernel_layout="HWIO")
    y = relay.reshape(relay.nn.relu(relay.nn.bias_add(y, b, 3)), (15, 10))
    return weft.IRModule.from_expr(relay.nn.dense(y, v))


def result(mod):
    g = graph_executor.GraphModule(relay.build(mod, target="llvm", params=PARAMS)["default"](weft.cpu()))
    g.set_input("x", X)
    g.run()
    return g.get_output(0).numpy()


def test_tasks_are_found_tuned_and_applied(tmp_path, monkeypatch):
    mod, log = program(), str(tmp_path / "log.json")
    tasks = autotvm.task.extract_from_program(mod, PARAMS, "llvm")
    assert [t.name.split("_")[0] for t in tasks] == ["nn.conv2d", "nn.matmul"]
    assert len(autotvm.task.extract_from_multiple_program([mod, mod["main"]], [PARAMS] * 2, "llvm")) == 2
    for op, name in (("nn.conv2d", tasks[0].name), ("nn.dense", tasks[1].name)):
        assert [t.name for t in autotvm.task.extract_from_program(mod, PARAMS, "llvm", ops=[relay.op.get(op)])] == [
            name
        ]
    how = autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner(number=1, repeat=1))
    for task in tasks:
        autotvm.tuner.RandomTuner(task).tune(2, how, callbacks=[autotvm.callback.log_to_file(log)])
    found, ask = [], kernels.from_log
    monkeypatch.setattr(kernels, "from_log", lambda *args: found.append(ask(*args)) or found[-1])
    exact = np.maximum(X.reshape(15, 6).astype("float64") @ PARAMS["w"][0, 0] + PARAMS["b"], 0) @ PARAMS["v"].T
    with autotvm.apply_history_best(log):
        np.testing.assert_allclose(result(mod), exact, rtol=1e-5, atol=1e-5)
    assert len(found) == 2 and None not in found
    with autotvm.apply_history_best(None):  # it knows nothing
        np.testing.assert_allclose(result(mod), exact, rtol=1e-5, atol=1e-5)
    assert found[2:] == [None, None]
    best = str(tmp_path / "best.json")
    for tuner in (graph_tuner.DPTuner, graph_tuner.PBQPTuner):
        chosen = tuner(mod["main"], {"x": X.shape}, log, [relay.op.get("nn.conv2d")], "llvm")
        chosen.benchmark_layout_transform(min_exec_num=10)
        chosen.run()
        chosen.write_opt_sch2record_file(best)
        autotvm.record.pick_best(log, str(tmp_path / "picked.json"))
        assert (tmp_path / "best.json").read_text() == (tmp_path / "picked.json").read_text()
    with autotvm.apply_graph_best(best):
        np.testing.assert_allclose(result(mod), exact, rtol=1e-5, atol=1e-5)
    assert len(found) == 6 and None not in found[4:]
    with pytest.raises(error.InvalidArgument, match="no records to choose from"):
        graph_tuner.DPTuner(mod["main"], {}, log, [], "cuda")


def test_every_configuration_computes_the_same():
    (task, *_) = autotvm.task.extract_from_program(program(), PARAMS, "llvm", ops=[relay.op.get("nn.conv2d")])
    exact = X.reshape(15, 6).astype("float64") @ PARAMS["w"][0, 0]
    space = task.config_space
    for i in RNG.choice(len(space), 8, replace=False):
        with task.target:
            s, args = task.instantiate(space.get(int(i)))
        out = weft.nd.empty((1, 5, 3, 10), "float32")
        weft.build(s, args, "llvm")(weft.nd.array(X), weft.nd.array(PARAMS["w"]), out)
        np.testing.assert_allclose(
            out.numpy().reshape(15, 10), exact, rtol=1e-5, atol=1e-5, err_msg=str(space.get(int(i)))
        )
