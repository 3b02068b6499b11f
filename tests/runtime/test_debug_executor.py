"""A watched graph says what each node computed and how long it took, in memory and in files."""

import json
from pathlib import Path

import numpy as np

import weft
from tests.refusals import refuses
from weft import error, relay, runtime
from weft.runtime import debug_executor, profiler_vm


def build():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    return weft.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.dense(x, w))))


def test_a_run_writes_graph_outputs_and_times(capsys):
    lib = relay.build(build(), "llvm")
    m = debug_executor.create(lib.get_graph_json(), lib.get_lib(), weft.cpu())
    folder = Path(m._dump_path)
    assert set(json.loads((folder / "_tvmdbg_graph_dump.json").read_text())) >= {"nodes", "heads", "arg_nodes"}
    x, w = np.random.rand(2, 3).astype("float32"), np.random.rand(4, 3).astype("float32")
    m.run(number=1, min_repeat_ms=0, x=x, w=w)
    table = m.debug_datum.get_debug_result().split("\n")
    assert table[0].split()[:2] == ["Node", "Name"] and table[-1].startswith("Total_time")
    assert table[0].split() == capsys.readouterr().out.split("\n")[0].split()
    computing = [n for n in m.debug_datum.get_graph_nodes() if n["op"] != "param"]
    assert len(table) == 3 + len(computing)
    assert all(m.debug_datum.get_graph_node_output_num(n) == 1 for n in m.debug_datum.get_graph_nodes())
    e = np.exp(x @ w.T)
    last = computing[-1]["name"]
    dumped = runtime.load_param_dict((folder / "output_tensors.params").read_bytes())
    for got in (
        m.get_output(0),
        m.debug_get_output(last),
        m.debug_datum.get_output_tensors()[f"{last}____0"],
        dumped[f"{last}____0"],
    ):
        np.testing.assert_allclose(got.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    events = json.loads((folder / "_tvmdbg_execution_trace.json").read_text())["traceEvents"]
    assert [e["ph"] for e in events] == ["B", "E"] * len(m.debug_datum.nodes)
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    m.exit()
    assert not folder.exists()


def test_single_nodes_are_timed(tmp_path):
    lib = relay.build(build(), "llvm")
    m = debug_executor.create(json.loads(lib.get_graph_json()), lib.get_lib(), weft.cpu(), str(tmp_path))
    nodes = m.debug_datum.nodes
    assert [m.run_individual_node(i, number=1).mean == 0 for i in range(len(nodes))] == [
        n["op"] == "param" for n in nodes
    ]
    assert len(m.run_individual(1)) == len(nodes)
    assert len(m.profile(x=np.zeros((2, 3), "float32")).calls) == sum(n["op"] != "param" for n in nodes)
    refuses(error.InvalidArgument, f"expected 0 to {len(nodes) - 1}", m.run_individual_node, len(nodes))
    m.exit()
    assert Path(m._dump_path).exists()


def test_the_machine_that_profiles():
    assert profiler_vm.enabled()
    machine = profiler_vm.VirtualMachineProfiler(relay.vm.compile(build(), "llvm"), weft.cpu())
    report = machine.profile(np.zeros((2, 3), "float32"), np.zeros((4, 3), "float32"), func_name="main")
    assert report.calls
