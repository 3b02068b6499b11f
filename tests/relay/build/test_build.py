"""relay.build: graphs with planned storage, which give what the interpreter gives."""

import json
import subprocess
import sys

import numpy as np
import pytest
from weft.runtime.executor import AotModule

import weft
from tests.refusals import refuses
from weft import error, relay, runtime
from tests.arrays import floats

RNG = np.random.default_rng(0)
rand = floats(RNG)


def flat(value):
    return [v for f in value for v in flat(f)] if isinstance(value, (tuple, list)) else [value.numpy()]


def check(func, *args, params=None, rtol=1e-4, executor="graph"):
    """The executor gives what the interpreter gives, twice; returns the graph."""
    mod = func if isinstance(func, weft.IRModule) else weft.IRModule.from_expr(func)
    lib = relay.build(mod, "llvm", params=params, executor=executor)
    m = runtime.graph_executor.GraphModule(lib["default"](weft.cpu()))
    expected = flat(relay.create_executor("debug", mod, weft.cpu(), params=params).evaluate()(*args))
    for _ in range(2):
        for i, a in enumerate(args):
            m.set_input(i, a)
        m.run()
        assert m.get_num_outputs() == len(expected)
        for i, e in enumerate(expected):
            np.testing.assert_allclose(m.get_output(i).numpy(), e, rtol=rtol, atol=1e-5)
    return json.loads(lib.get_graph_json())


def convolution():
    x, w, b = relay.var("x", shape=(1, 3, 17, 16)), relay.var("w", shape=(8, 3, 3, 3)), relay.var("b", shape=(8,))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1), channels=8, kernel_size=(3, 3)), b))
    z = relay.nn.batch_flatten(relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)))
    return relay.Function([x, w, b], relay.nn.softmax(z))


@pytest.mark.parametrize("executor", ["graph", "aot", relay.backend.Executor("graph", {"link-params": True})])
def test_convolution(executor):
    params = {"w": rand(8, 3, 3, 3), "b": rand(8)}
    check(convolution(), rand(1, 3, 17, 16), params=params, executor=executor)
    check(convolution(), rand(1, 3, 17, 16), *params.values())


def mlp(layers=6, n=7, m=33):
    x = relay.var("x", shape=(n, m))
    weights = [relay.var(f"w{i}", shape=(m, m)) for i in range(layers)]
    y = x
    for w in weights:
        y = relay.nn.relu(relay.nn.dense(y, w))
    return relay.Function([x, *weights], y), {f"w{i}": rand(m, m) / 6 for i in range(layers)}


def test_storage_is_shared():
    """A chain of any length needs two storages beside those of inputs and results."""
    func, params = mlp(6)
    graph = check(func, rand(7, 33), params=params)
    storage = graph["attrs"]["storage_id"][1]
    assert len(set(storage)) == 1 + 6 + 2 + 1
    ops = [n for n in graph["nodes"] if n["op"] == "tvm_op"]
    assert len(ops) == 6


def test_values_that_live_long_keep_their_storage():
    x = relay.var("x", shape=(5, 9))
    first = relay.nn.softmax(x)
    y = first
    for _ in range(5):
        y = relay.nn.softmax(y + first)
    check(relay.Function([x], relay.Tuple([y, first, relay.reshape(first, (9, 5))])), rand(5, 9))


def test_views_and_results_that_are_inputs():
    x = relay.var("x", shape=(4, 6))
    y = relay.reshape(x, (6, 4))
    z = relay.nn.softmax(y)
    c = relay.const(rand(3))
    out = relay.Tuple([x, y, relay.reshape(z, (2, 12)), z, c, x, c * relay.const(2.0)])
    check(relay.Function([x], out), rand(4, 6))
    check(relay.Function([x], x), rand(4, 6))
    check(relay.Function([], c + c))


def test_splits_and_tuples():
    x = relay.var("x", relay.TupleType([relay.TensorType((4, 6)), relay.TensorType((4, 3), "int32")]))
    s = relay.split(relay.TupleGetItem(x, 0), 3, axis=1)
    y = relay.Tuple([relay.Tuple([s[2], s[0] + s[1]]), relay.TupleGetItem(x, 1) * relay.const(2, "int32")])
    mod = weft.IRModule.from_expr(relay.Function([x], y))
    args = (rand(4, 6), RNG.integers(-9, 9, (4, 3)).astype(np.int32))
    results = [relay.create_executor(k, mod, weft.cpu()).evaluate()(args) for k in ("debug", "graph", "aot")]
    for a, b, c in zip(*map(flat, results), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert isinstance(results[1][0], tuple) and len(results[1]) == 2


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 0), ()])
def test_odd_shapes(shape):
    x = relay.var("x", shape=shape)
    check(relay.Function([x], relay.exp(x) + relay.sum(x)), rand(*shape) if shape else np.float32(2))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int64", "bool"])
def test_dtypes(dtype):
    x = relay.var("x", shape=(3, 5), dtype=dtype)
    y = relay.transpose(x) if dtype == "bool" else relay.transpose(x + x)
    check(relay.Function([x], y), RNG.integers(0, 2, (3, 5)).astype(dtype))


def test_functions_are_inlined():
    mod = relay.fromtext("""#[version = "0.0.5"]
def @square(%a: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] { multiply(%a, %a) }
def @fourth(%a: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] { @square(@square(%a)) }
def @main(%x: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] { add(@fourth(%x), @square(%x)) }
""")
    check(mod, rand(3, 4))
    assert "fourth" in mod and "Inline" not in (mod["square"].attrs or {})  # the caller's module is as it was


def test_control_flow_that_is_decided_is_gone():
    """Recursion over a known number, closures, matches and references are no obstacle where nothing hangs on data."""
    mod = relay.fromtext("""#[version = "0.0.5"]
def @power(%x: Tensor[(3, 4), float32], %n: int32) -> Tensor[(3, 4), float32] {
  if (equal(%n, 0)) { ones_like(%x) } else { multiply(%x, @power(%x, subtract(%n, 1))) }
}
def @main(%x: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] {
  let %c = 0.5f;
  let %twice = fn (%f: fn (Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32], %a: Tensor[(3, 4), float32])
      -> Tensor[(3, 4), float32] { %f(%f(%a)) };
  let %half = fn (%a: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] { multiply(%a, %c) };
  add(@power(%x, 3), %twice(%half, %x))
}
""")
    for executor in ("graph", "aot"):
        check(mod, rand(3, 4), executor=executor)


def test_results_are_unpacked_exported_and_loaded(tmp_path):
    func, params = mlp(2)
    graph, lib, values = relay.build(func, target="llvm", params=params)
    x = rand(7, 33)
    expected = relay.create_executor("debug", weft.IRModule.from_expr(func), params=params).evaluate()(x).numpy()
    m = runtime.graph_executor.create(graph, lib, weft.cpu())
    m.set_input("x", x)
    m.set_input(**values)
    m.run()
    np.testing.assert_allclose(m.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-6)
    saved = relay.save_param_dict(values)
    lib.export_library(tmp_path / "kernels.so")
    m = runtime.graph_executor.create(graph, runtime.load_module(tmp_path / "kernels.so"), weft.cpu())
    m.load_params(saved)
    m.run(x=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_library_runs_without_the_compiler(tmp_path, executor):
    func, params = mlp(3)
    built = relay.build(func, params=params, mod_name="net", executor=executor)
    path, x = built.export_library(tmp_path / "net.so"), rand(7, 33)
    np.save(tmp_path / "x.npy", x)
    program = f"""
import sys, numpy as np, weft
from weft.contrib import graph_executor
m = graph_executor.GraphModule(weft.runtime.load_module({str(path)!r})["net"](weft.cpu()))
m.run(x=np.load({str(tmp_path / "x.npy")!r}))
np.save({str(tmp_path / "y.npy")!r}, m.get_output(0).numpy())
assert not [n for n in sys.modules if n.startswith(("weft.tir", "weft.relay", "weft.relax", "llvmlite"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    expected = relay.create_executor("debug", weft.IRModule.from_expr(func), params=params).evaluate()(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-6)


def test_library_without_kernels(tmp_path):
    x = relay.var("x", shape=(2, 3))
    path = relay.build(relay.Function([x], relay.reshape(x, (3, 2)))).export_library(tmp_path / "view.so")
    m = runtime.graph_executor.GraphModule(runtime.load_module(path)["default"](weft.cpu()))
    m.run(x=np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(m.get_output(0).numpy(), np.arange(6).reshape(3, 2))


HEAD = '#[version = "0.0.5"]\n'


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def @main(%c: bool, %x: Tensor[(2), float32]) {\n  if (%c) { %x } else { add(%x, %x) }\n}", "a branch", 3),
        ("def @main(%x: Tensor[(?, 2), float32]) {\n  add(%x, %x)\n}", "an unknown dimension", 2),
        ("def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {\n  @main(add(%x, %x))\n}", "recursion", 3),
        ("def @main(%x: Tensor[(2), float32]) {\n  let %r = ref(%x);\n  ref_read(%r)\n}", "a reference", 3),
        (
            "type Box { Full(Tensor[(2), float32]), Empty }\ndef @main(%b: Box, %x: Tensor[(2), float32]) {\n"
            "  match (%b) { Full(%y) => add(%y, %x), Empty => %x }\n}",
            "a match",
            4,
        ),
        ("type Box { Full(Tensor[(2), float32]), Empty }\ndef @main(%b: Box) {\n  %b\n}", "a data type", 3),
    ],
)
def test_what_needs_the_virtual_machine_is_named_with_its_place(text, message, line):
    mod = relay.fromtext(HEAD + text)
    e = refuses((error.LoweringError, error.ErrorGroup), message, relay.build, mod, "llvm")
    errors = e.errors if isinstance(e, error.ErrorGroup) else [e]
    found = next(x for x in errors if message in str(x))
    assert found.where.line == line and "relay.vm.compile" in str(found)


def test_wrong_arguments():
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], x + x)
    refuses(error.InvalidArgument, 'Executor "vm" is not defined', relay.build, func, executor="vm")
    refuses(error.InvalidArgument, 'Runtime "crt" is not defined', relay.build, func, runtime="crt")
    refuses(error.InvalidArgument, "no function 'main'", relay.build, weft.IRModule({"other": func}))
    refuses(error.InvalidArgument, "one target", relay.build, func, target=["llvm", "cuda"])
    refuses(error.InvalidArgument, "", relay.build, 3)
    with weft.target.Target("llvm"), relay.build_config(opt_level=3):
        assert relay.build(func, runtime=relay.backend.Runtime("cpp")).target.kind.name == "llvm"


def test_optimize():
    x = relay.var("x", shape=(2,))
    mod, params = relay.optimize(relay.Function([x], x + (relay.const(1.0) + relay.const(2.0))), "llvm")
    assert params == {} and "3f" in str(mod["main"])


def test_ahead_of_time(tmp_path):
    """One function, whose intermediate tensors lie in an arena."""
    func, params = mlp(5, 64, 96)
    built = relay.build(func, params=params, executor="aot", mod_name="net")
    nodes = [n for n in json.loads(built.get_graph_json())["nodes"] if n["op"] == "tvm_op"]
    assert [n["attrs"]["func_name"] for n in nodes] == ["net_run"]
    assert built.get_lib().function_names() == ["net_run"]
    m = AotModule(runtime.load_module(built.export_library(tmp_path / "net.so"))["net"](weft.cpu()))
    assert m.get_input_name(0) == "x" and m.get_num_outputs() == 1
    x = rand(64, 96)
    m.run(x=x)
    expected = relay.create_executor("debug", weft.IRModule.from_expr(func), params=params).evaluate()(x).numpy()
    np.testing.assert_allclose(m.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-5)
    refuses(error.InvalidArgument, "input 99", m.get_input_name, 99)
    check(func, rand(64, 96), params=params, executor="aot")


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_each_executor_gives_views_and_inputs(executor):
    x = relay.var("x", shape=(4, 6))
    y = relay.nn.softmax(relay.reshape(x, (6, 4)))
    z = relay.reshape(y, (24,))
    out = relay.Tuple([relay.reshape(x, (24,)), z, y, y, x, z + z, relay.const(rand(3))])
    check(relay.Function([x], out), rand(4, 6), executor=executor)
    check(relay.Function([x], relay.reshape(x, (2, 12))), rand(4, 6), executor=executor)


def test_inputs_keep_their_names():
    """Also where they are those that constants would get."""
    p0, p1 = relay.var("p0", shape=(2, 3)), relay.var("p1", shape=(2, 3))
    graph = check(relay.Function([p0, p1], p0 - p1 + relay.const(rand(2, 3))), rand(2, 3), rand(2, 3))
    names = [graph["nodes"][i]["name"] for i in graph["arg_nodes"]]
    assert names[:2] == ["p0", "p1"] and len(set(names)) == 3
