"""Graph executors on another machine: what `relay.build` made is uploaded, opened, fed, run and timed there."""

import numpy as np
import pytest
from weft.contrib import graph_executor

import weft
from tests.refusals import refuses
from weft import error, relay, runtime

DATA = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
WEIGHT = np.random.default_rng(1).standard_normal((4, 5)).astype("float32")
EXPECTED = np.maximum(DATA.astype("float64") @ WEIGHT.T.astype("float64"), 0)


def built(**options):
    x, w = relay.var("x", shape=(3, 5)), relay.var("w", shape=(4, 5))
    out = relay.nn.relu(relay.nn.dense(x, w))
    return relay.build(weft.IRModule.from_expr(relay.Function([x, w], out)), target="llvm", **options)


def library(remote, folder, lib, name):
    remote.upload(str(lib.export_library(str(folder / name)) or folder / name))
    return remote.load_module(str(folder / name))


@pytest.mark.parametrize(("name", "kind"), [("lib.so", "graph"), ("lib.tar", "graph"), ("lib.so", "aot")])
def test_a_library_runs_where_it_lies(remote, tmp_path, name, kind):
    there, lib = remote.cpu(0), built(params={"w": WEIGHT}, executor=relay.backend.Executor(kind))
    make = runtime.aot_executor.AotModule if kind == "aot" else graph_executor.GraphModule
    module = make(library(remote, tmp_path, lib, name)["default"](there))
    module.set_input("x", DATA)
    module.run()
    out = module.get_output(0)
    assert "remote" in str(out.device)
    np.testing.assert_allclose(out.numpy(), EXPECTED, rtol=1e-5)
    module.set_input(no_such=1)  # compilation may have folded it
    module.run(x=(DATA * 2).astype("float64"))  # values are converted to the input's dtype
    here = module.get_output(0, runtime.tensor(np.zeros((3, 4), "float32")))
    np.testing.assert_allclose(here.numpy(), EXPECTED * 2, rtol=1e-5)
    assert module.benchmark(there, number=2, repeat=2, x=DATA).mean > 0
    assert module.module.time_evaluator("run", there, number=2)().mean > 0


def test_inputs_by_place_as_tensors_and_as_parameters(remote, tmp_path):
    there = remote.cpu(0)
    lib = built()
    module = graph_executor.create(lib.get_graph_json(), library(remote, tmp_path, lib.lib, "k.so"), there)
    assert module.get_num_inputs() == 2
    assert module.get_num_outputs() == 1
    assert module.get_input("x").shape == (3, 5)
    assert [module.get_input_index(n) for n in ("x", "none")] == [0, -1]
    module.load_params(runtime.save_param_dict({"w": runtime.tensor(WEIGHT)}))
    module.set_input(0, runtime.tensor(DATA, there))
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)
    refuses(Exception, "no_such", module.set_input, "no_such", DATA)
    refuses(Exception, "shapes differ", module.set_input, "x", DATA[:2])
    for asked in (module.get_input_info, module.profile):
        refuses(error.InvalidArgument, "in the process that runs the graph", asked)


@pytest.mark.parametrize("far", [False, True])
def test_executors_that_are_watched(remote, tmp_path, far):
    lib = built(params={"w": WEIGHT})
    where, module = (remote.cpu(0), library(remote, tmp_path, lib, "lib.so")) if far else (weft.cpu(), lib)
    made = module["debug_create"]("default", where)
    watched = runtime.debug_executor.GraphModuleDebug(made, [where], lib.get_graph_json(), dump_root=str(tmp_path))
    watched.run(x=DATA, number=1, repeat=1)
    np.testing.assert_allclose(watched.get_output(0).numpy(), EXPECTED, rtol=1e-5)
    np.testing.assert_allclose(
        watched.debug_get_output(len(watched.debug_datum.nodes) - 1).numpy(), EXPECTED, rtol=1e-5
    )
    assert sum(watched.run_individual(2)) > 0
    assert list(tmp_path.glob("_tvmdbg_device_*/*"))


@pytest.mark.parametrize("several", [False, True])
def test_the_machine_of_relay_runs_where_its_executable_lies(remote, tmp_path, several):
    x, n = relay.var("x", shape=(relay.Any(), 5)), relay.var("n", shape=(relay.Any(), 5))
    out = relay.Tuple([relay.nn.relu(x), relay.Tuple([x + n])]) if several else relay.nn.relu(x + n)
    executable = relay.vm.compile(weft.IRModule.from_expr(relay.Function([x, n], out)), "llvm")
    machine = runtime.VirtualMachine(library(remote, tmp_path, executable.mod, "vm.so"), remote.cpu(0))
    a, b = (runtime.tensor(value, remote.cpu(0)) for value in (DATA, DATA * 2))
    found = machine.invoke("main", a, n=b)
    if several:
        np.testing.assert_allclose(found[0].numpy(), np.maximum(DATA, 0))
        np.testing.assert_allclose(found[1][0].numpy(), DATA * 3, rtol=1e-6)
    else:
        np.testing.assert_allclose(found.numpy(), np.maximum(DATA * 3, 0), rtol=1e-6)
        machine.set_input("main", b, b)
        machine.invoke_stateful("main")
        np.testing.assert_allclose(machine.get_outputs("main").numpy(), np.maximum(DATA * 4, 0), rtol=1e-6)
        np.testing.assert_allclose(machine.run(x=a, n=a).numpy(), np.maximum(DATA * 2, 0), rtol=1e-6)
    refuses(error.InvalidArgument, "nowhere", machine.invoke, "nowhere", a)
