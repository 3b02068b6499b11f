"""``meta_schedule.relay_integration``: the kernels of a Relay program are tuned, and built as the database says."""

import numpy as np
import pytest

import weft as tvm
from weft import meta_schedule as ms
from weft import error, relay
from weft.relay.build_module import lower_to_graph

TARGET = tvm.target.Target("llvm --num-cores=1")


def _program():
    x, w = relay.var("x", shape=(3, 8)), relay.var("w", shape=(8, 8))
    out = relay.nn.dense(relay.nn.relu(relay.nn.dense(x, w)), w)
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.exp(out)))


def test_tasks_are_the_kernels_with_how_often_they_are_called():
    x, w = relay.var("x", shape=(3, 8)), relay.var("w", shape=(8, 8))
    out = x
    for _ in range(3):
        out = relay.nn.relu(relay.nn.dense(out, w))
    tasks = ms.relay_integration.extract_tasks(tvm.IRModule.from_expr(relay.Function([x, w], out)), TARGET)
    assert sorted(t.weight for t in tasks if "matmul" in t.task_name or "linear" in t.task_name) == [3]
    assert all(isinstance(t.dispatched[0]["main"], tvm.tir.PrimFunc) for t in tasks)


def test_what_was_tuned_is_what_is_built(tmp_path):
    mod = _program()
    rng = np.random.default_rng(0)
    x, w = rng.normal(0, 0.3, (3, 8)).astype("float32"), rng.normal(0, 0.3, (8, 8)).astype("float32")
    database = ms.relay_integration.tune_relay(mod, {"w": w}, TARGET, str(tmp_path), 4, strategy="replay-trace", seed=1,
                                               op_names=["matmul"])
    assert len(database) > 0
    with database:
        lowered, _ = lower_to_graph(relay.build_module.bind_params(mod, {"w": w}), TARGET)
    marked = {v.name_hint for v, f in lowered.items() if f.attrs.get("tir.is_scheduled")}
    assert marked and all("matmul" in name for name in marked)
    wanted = np.exp(np.maximum(x.astype("float64") @ w.T, 0) @ w.T)
    lib = ms.relay_integration.compile_relay(database, mod, TARGET, {"w": w})
    graph = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    graph.run(x=x)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-5)
    machine = relay.vm.VirtualMachine(
        ms.relay_integration.compile_relay(database, mod, TARGET, {"w": w}, backend="vm"), tvm.cpu()
    )
    np.testing.assert_allclose(machine.invoke("main", x).numpy(), wanted, rtol=1e-5)
    with pytest.raises(error.InvalidArgument, match="no such backend"):
        ms.relay_integration.compile_relay(database, mod, TARGET, backend="aot2")
    with pytest.raises(error.InvalidArgument, match="unknown option 'levels'"):
        ms.relay_integration.extract_tasks(mod, TARGET, levels=3)
