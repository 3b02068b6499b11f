"""Graphs of kernels that are written by hand: running, binding, parameters, export, and graphs that are malformed."""

import json

import numpy as np
import pytest

import weft
from tests.refusals import flipped, refusals, refuses
from tests.threads import at_once
from weft import error, runtime, te

N = 33


@pytest.fixture(scope="module")
def kernels():
    """add(a, b, c) and scale(a, b) on vectors of N, and split(a, b, c)."""
    a, b = te.placeholder((N,), name="a"), te.placeholder((N,), name="b")
    functions = {
        "add": [a, b, te.compute((N,), lambda i: a[i] + b[i])],
        "twice": [a, te.compute((N,), lambda i: a[i] * 2.0)],
    }
    named = {n: te.create_prim_func(args).with_attr("global_symbol", n) for n, args in functions.items()}
    return weft.target.build(weft.IRModule(named))


def op(name, func, inputs, outputs=1, flatten=0):
    attrs = {
        "func_name": func,
        "num_inputs": str(len(inputs)),
        "num_outputs": str(outputs),
        "flatten_data": str(flatten),
    }
    return {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": inputs}


def graph(shape=(N,), device=None):
    """y = 2 * (x + w), z = y + x; the storage of x + w is used again for z."""
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
        op("sum", "add", [[0, 0, 0], [1, 0, 0]]),
        op("y", "twice", [[2, 0, 0]]),
        op("z", "add", [[3, 0, 0], [0, 0, 0]]),
    ]
    attrs = {
        "dltype": ["list_str", ["float32"] * 5],
        "shape": ["list_shape", [list(shape)] * 5],
        "storage_id": ["list_int", [0, 1, 2, 3, 2]],
    }
    if device is not None:
        attrs["device_index"] = ["list_int", [device] * 5]
    return {
        "nodes": nodes,
        "arg_nodes": [0, 1],
        "heads": [[3, 0, 0], [4, 0, 0]],
        "attrs": attrs,
        "node_row_ptr": list(range(6)),
    }


def random(seed=0, shape=(N,)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(m, x, w):
    y = 2 * (x + w)
    np.testing.assert_allclose(m.get_output(0).numpy(), y, rtol=1e-6)
    np.testing.assert_allclose(m.get_output(1).numpy(), y + x, rtol=1e-6)


def test_runs(kernels):
    m = runtime.graph_executor.create(json.dumps(graph()), kernels, weft.cpu())
    x, w = random(0), random(1)
    m.set_input("x", x)
    m.set_input(1, w)
    m.run()
    check(m, x, w)
    m.run(x=w)
    check(m, w, w)
    assert (m.get_num_inputs(), m.get_num_outputs()) == (2, 2)
    assert m.get_input_index("w") == 1 and m.get_input_index("sum") == -1
    assert m.get_input_info() == ({"x": (N,), "w": (N,)}, {"x": "float32", "w": "float32"})
    np.testing.assert_array_equal(m.get_input("w").numpy(), w)
    out = runtime.empty((N,))
    assert m.get_output(0, out) is out
    np.testing.assert_array_equal(out.numpy(), m.get_output(0).numpy())
    np.testing.assert_allclose(m.debug_get_output("sum", out).numpy(), w + w)
    assert m["get_num_outputs"]() == 2


def test_values_are_converted(kernels):
    m = runtime.graph_executor.create(graph(), kernels, "cpu")
    m.set_input(x=np.arange(N, dtype=np.float64), w=[1] * N, unknown=3)
    m.run()
    check(m, np.arange(N, dtype=np.float32), np.ones(N, np.float32))
    with pytest.raises(ValueError, match=r"set_input 'x': expected float32\[33\], found float32\[4\]"):
        m.set_input("x", np.zeros(4, np.float32))
    refuses(ValueError, "complex128", m.set_input, "x", np.zeros(N, np.complex128))
    refuses(ValueError, "the graph has no input 'sum'; it has: x, w", m.set_input, "sum", np.zeros(N, np.float32))
    refuses(ValueError, "no input 'y'", m.run, y=1)
    for index in (2, -1):
        refuses(IndexError, "of a graph of 2", m.get_output, index)
        refuses(IndexError, "of a graph of 2", m.get_input, index)
    refuses(ValueError, "no node 'q'", m.debug_get_output, "q", runtime.empty((N,)))


def test_without_copies(kernels):
    m = runtime.graph_executor.create(graph(), kernels, "cpu")
    x, w, y = runtime.tensor(random(0)), runtime.tensor(random(1)), runtime.empty((N,))
    m.set_input_zero_copy("x", x)
    m.set_input("w", w)
    m.set_output_zero_copy(0, y)
    m.run()
    check(m, x.numpy(), w.numpy())
    np.testing.assert_array_equal(y.numpy(), m.get_output(0).numpy())
    x.copyfrom(random(2))
    m.run()
    check(m, x.numpy(), w.numpy())
    before = x.numpy().copy()
    m.set_input("x", random(3))  # the caller's tensor is not written
    np.testing.assert_array_equal(x.numpy(), before)
    m.run()
    check(m, random(3), w.numpy())
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        m.set_input_zero_copy("x", runtime.from_dlpack(np.zeros(N + 64, np.float32)[1 : N + 1]))
    with pytest.raises(ValueError, match="not contiguous"):
        m.set_input_zero_copy("x", runtime.from_dlpack(np.zeros((N, 64), np.float32)[:, 0]))
    refuses(ValueError, "expected float32", m.set_output_zero_copy, 1, runtime.empty((N,), "int8"))


def test_views_share_storage(kernels):
    """A node without a kernel gives its input another shape; flattened arguments are vectors."""
    g = graph()
    g["nodes"][2] = op("sum", "add", [[0, 0, 0], [1, 0, 0]], flatten=1)
    g["nodes"][3] = op("y", "__nop", [[2, 0, 0]])
    g["nodes"][4] = op("z", "__copy", [[2, 0, 0]])
    g["attrs"]["storage_id"][1] = [0, 1, 2, 2, 3]
    g["attrs"]["shape"][1] = [[3, 11]] * 3 + [[N, 1], [3, 11]]
    m = runtime.graph_executor.create(g, kernels, "cpu")
    x, w = random(0, (3, 11)), random(1, (3, 11))
    m.run(x=x, w=w)
    np.testing.assert_allclose(m.get_output(0).numpy(), (x + w).reshape(N, 1))
    np.testing.assert_allclose(m.get_output(1).numpy(), x + w)
    out = runtime.empty((N, 1))
    m.set_output_zero_copy(0, out)
    m.run(x=w)
    np.testing.assert_allclose(out.numpy(), (w + w).reshape(N, 1))


def test_python_functions_are_kernels_and_their_errors_name_the_node(kernels):
    @weft.register_func("test.graph.square", override=True)
    def square(a, b):
        if a.numpy()[0] > 100:
            raise ValueError("too large")
        b.numpy()[:] = a.numpy() ** 2

    g = graph()
    g["nodes"][3] = op("y", "test.graph.square", [[2, 0, 0]])
    m = runtime.graph_executor.create(g, kernels, "cpu")
    x, w = random(0), random(1)
    m.run(x=x, w=w)
    np.testing.assert_allclose(m.get_output(0).numpy(), (x + w) ** 2)
    refuses(ValueError, "too large", m.run, x=np.full(N, 101), w=w)
    m.run(x=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), (x + w) ** 2)


def test_parameters(kernels):
    m = runtime.graph_executor.create(graph(), kernels, "cpu")
    x, w = random(0), random(1)
    data = runtime.save_param_dict({"w": w, "elsewhere": np.zeros(3)})
    m.load_params(data)
    m.run(x=x)
    check(m, x, w)
    other = runtime.graph_executor.create(graph(), kernels, "cpu")
    other.share_params(m, runtime.save_param_dict({"w": w}))
    other.run(x=w)
    check(other, w, w)
    other.set_input("w", x)  # from here on its own
    m.run()
    check(m, x, w)
    with pytest.raises(ValueError, match=r"parameter 'w': expected float32\[33\], found int8\[2\]"):
        m.load_params(runtime.save_param_dict({"w": np.zeros(2, np.int8)}))
    refuses(ValueError, "no input 'elsewhere'", other.share_params, m, data)


def test_saved_parameters(tmp_path):
    values = {
        "a": random(0, (3, 4)),
        "b.weight": np.arange(5),
        "empty": np.zeros((0, 2), np.float64),
        "s": np.float32(3),
    }
    runtime.save_param_dict_to_file(values, tmp_path / "p")
    found = runtime.load_param_dict_from_file(tmp_path / "p")
    assert list(found) == list(values)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name].numpy(), value)
        assert str(found[name].dtype) == str(np.asarray(value).dtype)
    data = runtime.save_param_dict(values)
    assert data[:8] == (0xF7E58D4F05049CB7).to_bytes(8, "little")
    for size in range(0, len(data), 7):
        refuses(error.ExecutableError, "params: section", runtime.load_param_dict, data[:size])
    refuses(error.ExecutableError, "1 bytes after the end", runtime.load_param_dict, data + b"x")
    assert refusals(error.ExecutableError, runtime.load_param_dict, flipped(data, 300))


def factory(kernels):
    return runtime.graph_executor.create_factory(json.dumps(graph()), kernels, {"w": random(1)})


def test_factory(kernels, tmp_path):
    lib = factory(kernels)
    path = lib.export_library(tmp_path / "model.so")
    x, w = random(0), random(1)
    for module in (lib, runtime.load_module(path)):
        m = runtime.graph_executor.GraphModule(module["default"](weft.cpu()))
        m.run(x=x)
        check(m, x, w)
        second = runtime.graph_executor.GraphModule(module["default"](weft.cpu()))
        second.run(x=x, w=x)  # parameters are shared until one sets them
        check(second, x, x)
        m.run()
        check(m, x, w)
        assert json.loads(module["get_graph_json"]()) == graph()
        params = module["get_graph_params"]()
        assert list(params) == ["w"]
        np.testing.assert_array_equal(params["w"].numpy(), w)
        bare = module["remove_params"]()
        assert not bare["get_graph_params"]()
        if module is lib:
            bare = runtime.load_module(bare.export_library(tmp_path / "bare.so"))
        given = runtime.graph_executor.GraphModule(bare["default"](weft.cpu()))
        given.set_input("x", x, **params)
        given.run()
        check(given, x, w)
    refuses(ValueError, "not a graph executor", runtime.graph_executor.GraphModule, lib)


def test_altered_library_bytes(kernels):
    data = bytes(weft.runtime.module._to_bytes(factory(kernels)))
    load = weft.get_global_func("ffi.Module.load_from_bytes.weft.GraphExecutorFactory")
    assert runtime.Module(load(data)).kind == "weft.GraphExecutorFactory"
    for size in range(0, len(data), 41):
        refuses(error.ExecutableError, "", load, data[:size])
    assert refusals((error.ExecutableError, UnicodeDecodeError), load, flipped(data, 400))


def change(path, value):
    def apply(g):
        *way, last = path
        for key in way:
            g = g[key]
        if value is KeyError:
            del g[last]
        else:
            g[last] = value

    return apply


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (change(["nodes"], KeyError), 'the whole: has no "nodes"'),
        (change(["attrs", "shape"], KeyError), 'attrs: has no "shape"'),
        (change(["nodes", 2, "op"], "call"), r'nodes\[2\].op: expected "null" or "tvm_op", found "call"'),
        (change(["nodes", 2], []), r"nodes\[2\]: expected an object"),
        (change(["nodes", 2, "name"], 3), r"nodes\[2\].name: expected a string, found the int 3"),
        (change(["nodes", 2, "inputs", 1], [3, 0, 0]), r"nodes\[2\].inputs\[1\] 'sum': names node 3, which is not"),
        (change(["nodes", 2, "inputs", 1], [2, 0, 0]), "not before it"),
        (change(["nodes", 2, "inputs", 1], [1, 1, 0]), "names output 1 of node 'w', which has 1"),
        (change(["nodes", 2, "inputs", 1], [1]), r"expected \[node, index, version\], found 1 items"),
        (change(["nodes", 2, "inputs", 1], [-1, 0, 0]), r"nodes\[2\].inputs\[1\]: expected 0 to \d+, found -1"),
        (change(["nodes", 2, "attrs", "num_inputs"], "5"), "num_inputs is 5, the node has 2 inputs"),
        (change(["nodes", 2, "attrs", "num_outputs"], "2"), "its 2 outputs begin at entry 2, but node_row_ptr says"),
        (change(["nodes", 2, "attrs", "num_outputs"], "two"), "expected a whole number"),
        (change(["nodes", 2, "attrs", "func_name"], ""), "func_name is empty"),
        (change(["nodes", 2, "attrs"], KeyError), r'nodes\[2\]: has no "attrs"'),
        (change(["nodes", 1, "name"], "x"), "'x': another node has this name"),
        (change(["arg_nodes"], [0]), r"nodes\[1\] 'w': an input that arg_nodes does not name"),
        (change(["arg_nodes"], [0, 1, 2]), r"arg_nodes\[2\]: names node 2, which is no input"),
        (change(["arg_nodes"], [0, 1, 1]), "named before"),
        (change(["arg_nodes"], [0, 1, 99]), "no input"),
        (change(["heads", 0], [5, 0, 0]), r"heads\[0\]: names node 5"),
        (change(["node_row_ptr"], [0, 1, 2]), "node_row_ptr: expected 6 items, found 3"),
        (change(["node_row_ptr", 3], 2**40), "expected 0 to"),
        (change(["attrs", "dltype", 1, 0], "float33x"), "no tensor is float33x"),
        (change(["attrs", "shape", 1, 0], [-4]), r"attrs.shape\[0\]: expected 0 to"),
        (change(["attrs", "shape", 1, 0], [2**40, 2**40]), "no tensor is float32"),
        (change(["attrs", "shape", 1], [[N]]), "attrs.shape: expected 5 values, one an entry, found 1"),
        (change(["attrs", "storage_id", 1, 0], 7), "expected 0 to 4, found 7"),
        (change(["attrs", "storage_id"], 7), "expected a list"),
    ],
)
def test_malformed_graphs(kernels, alter, message):
    g = graph()
    alter(g)
    refuses(error.ExecutableError, message, runtime.graph_executor.create, json.dumps(g), kernels, "cpu")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"nodes": }', "[" * 200000, '{"nodes": [' * 100000, '"' + "\\" * 3]
)
def test_no_graph_at_all(kernels, text):
    refuses(error.ExecutableError, "graph: ", runtime.graph_executor.create, text, kernels, "cpu")


def test_altered_text_never_crashes(kernels):
    text = json.dumps(graph())
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(500):
        at, n = rng.integers(len(text)), int(rng.integers(1, 9))
        bad = text[:at] + "".join(chr(c) for c in rng.integers(32, 127, int(rng.integers(0, n + 1)))) + text[at + n :]
        try:
            runtime.graph_executor.create(bad, kernels, "cpu")
        except (error.ExecutableError, MemoryError) as e:
            refused += 1
            assert str(e)
    assert 250 < refused < 500, "most texts are no graph; a few are other graphs"


def test_all_errors_are_told_at_once(kernels):
    g = graph()
    g["nodes"][2]["inputs"][0] = [9, 0, 0]
    g["heads"][1] = [0, 4, 0]
    e = refuses(error.ExecutableError, "2 errors", runtime.graph_executor.create, g, kernels, "cpu")
    assert "nodes[2].inputs[0] 'sum'" in str(e) and "heads[1]" in str(e)


def test_missing_functions_and_devices(kernels):
    with pytest.raises(error.ExecutableError, match="2 functions that it calls are neither(.|\n)*- add\n- twice"):
        runtime.graph_executor.create(graph(), None, "cpu")
    with pytest.raises(error.ExecutableError, match="for a device of type 2"):
        runtime.graph_executor.create(graph(device=2), kernels, "cpu")
    runtime.graph_executor.create(graph(device=1), kernels, ["cpu"])


def test_wrong_arguments_of_kernels_are_errors(kernels):
    refuses(ValueError, "add", runtime.graph_executor.create(graph((N + 1,)), kernels, "cpu").run)


def test_benchmark_and_profile(kernels):
    m = runtime.graph_executor.create(graph(), kernels, "cpu")
    assert m.benchmark(weft.cpu(), number=3, repeat=2, x=random(0)).mean > 0
    assert m.benchmark(weft.cpu(), number=3, repeat=2, end_to_end=True, x=random(0)).mean > 0
    rows = m.profile(x=random(0), w=random(1)).rows()
    assert {r["Name"]: r["Count"] for r in rows} == {"add": 2, "twice": 1}
    check(m, random(0), random(1))


def test_runs_wait_for_each_other(kernels):
    m = runtime.graph_executor.create(graph(), kernels, "cpu")
    m.set_input(x=random(0), w=random(1))
    at_once(lambda _: [m.run() for _ in range(200)], 4)
    check(m, random(0), random(1))


def test_empty_tensors_and_graphs():
    def inputs(shapes):
        return {
            "nodes": [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(len(shapes))],
            "arg_nodes": list(range(len(shapes))),
            "heads": [[i, 0, 0] for i in range(len(shapes))],
            "node_row_ptr": list(range(len(shapes) + 1)),
            "attrs": {
                "dltype": ["list_str", ["int64"] * len(shapes)],
                "shape": ["list_shape", shapes],
                "storage_id": ["list_int", list(range(len(shapes)))],
            },
        }

    m = runtime.graph_executor.create(inputs([[0, 3], []]), None, "cpu")
    m.run(x0=np.zeros((0, 3), np.int64), x1=5)
    assert m.get_output(0).shape == (0, 3) and m.get_output(1).numpy() == 5
    runtime.graph_executor.create(inputs([]), None, "cpu").run()
