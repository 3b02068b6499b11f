"""Programs of TVM 0.9: one configuration for a search, which gives the best schedule or the compiled program."""

import numpy as np
import pytest
from weft.contrib import graph_executor

import weft
from weft import meta_schedule as ms
from weft import relay, te, tir

CONFIG = ms.TuneConfig(strategy="replay_trace", num_trials_per_iter=2, max_trials_per_task=2, max_trials_global=2)
TARGET = "llvm -num-cores=1"


def product():
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    return [a, b, te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def check(schedule):
    x, y, z = np.eye(8, dtype="float32") * 3, np.arange(64, dtype="float32").reshape(8, 8), np.zeros((8, 8), "float32")
    weft.build(schedule.mod, TARGET)(x, y, z)
    np.testing.assert_allclose(z, 3 * y)


@pytest.mark.parametrize("place", ["by name", "by position"])
def test_functions(place, tmp_path):
    func = te.create_prim_func(product())
    given = {"config": CONFIG, "work_dir": str(tmp_path)}
    sch = ms.tune_tir(func, TARGET, **given) if place == "by name" else ms.tune_tir(func, TARGET, *given.values())
    assert isinstance(sch, tir.Schedule)
    check(sch)
    with ms.ApplyHistoryBest(ms.Database.create("json", work_dir=str(tmp_path))) as database:
        assert ms.Database.current() is database and len(database) >= 1


def test_tensor_expressions(tmp_path):
    check(ms.tune_te(product(), TARGET, CONFIG, str(tmp_path), task_name="main", num_threads=1))


def test_programs_of_relay(tmp_path):
    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(8, 8))
    mod = weft.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    given = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    assert ms.extract_task_from_relay(mod, TARGET)
    lib = ms.tune_relay(mod, TARGET, CONFIG, str(tmp_path), params={"w": given})
    m = graph_executor.GraphModule(lib["default"](weft.cpu()))
    m.set_input("x", np.ones((4, 8), "float32"))
    m.run()
    expected = np.maximum(np.ones((4, 8)) @ given.T, 0)
    np.testing.assert_allclose(m.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-6)
