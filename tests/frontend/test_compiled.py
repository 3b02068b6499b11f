"""Imported models, compiled and run: the parts of an import that only the virtual machine can show."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests.arrays import floats
from tests.frontend.models import compare, model_of, oracle
from tests.onnx_models import onnx_nodes
from weft.frontend.onnx import from_onnx

node = helper.make_node
RNG = np.random.default_rng(5)
f32 = floats(RNG)


def machine(model: onnx.ModelProto, **options: Any) -> Any:
    mod = from_onnx(model, **options)
    return weft.relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"]


def run(main: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    out = main(*inputs)
    return [o.numpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


def attention() -> onnx.ModelProto:
    """One attention block whose shapes all come from Shape."""
    nodes = onnx_nodes("""
        s = Shape(x); b = Gather(s, zero); t = Gather(s, one); b1 = Unsqueeze(b, axis); t1 = Unsqueeze(t, axis);
        split = Concat <axis = 0> (b1, t1, heads); merged = Concat <axis = 0> (b1, t1, minus); q = MatMul(x, w);
        q4 = Reshape(q, split); qh = Transpose <perm = [0, 2, 1, 3]> (q4); kh = Transpose <perm = [0, 2, 3, 1]> (q4);
        scores = MatMul(qh, kh); p = Softmax <axis = -1> (scores); o = MatMul(p, qh);
        ot = Transpose <perm = [0, 2, 1, 3]> (o); flat = Reshape(ot, merged);
        positions = Slice(table, from, t1, axis); h = Add(flat, positions); y = LayerNormalization(h, g)""")
    weights = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "axis": np.array([0]),
        "heads": np.array([2, 4]),
        "minus": np.array([-1]),
        "from": np.array([0]),
        "w": f32(8, 8),
        "table": f32(16, 8),
        "g": f32(8),
    }
    return model_of(nodes, {"x": f32(2, 3, 8)}, ["y"], 17, weights, {"x": ["batch", "time", 8]})


def test_shapes_of_the_model_at_several_sizes() -> None:
    model = attention()
    main = machine(model)
    for batch, time in ((2, 3), (1, 1), (3, 16)):
        x = f32(batch, time, 8)
        compare(run(main, x), oracle(model, {"x": x}), rtol=1e-3, atol=1e-4)
    with pytest.raises(Exception, match="dimension"):
        main(f32(1, 17, 8))


def branches() -> onnx.ModelProto:
    def branch(name: str, nodes: Any) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info("out")])

    then = branch("t", [node("Relu", ["h"], ["r"]), node("Concat", ["r", "x"], ["out"], axis=0)])
    other = branch("e", [node("Sub", ["x", "h"], ["out"])])
    nodes = onnx_nodes("h = Mul(x, x); total = ReduceSum <keepdims = 0> (x); c = Greater(total, limit); z = Abs(y)")
    nodes.insert(3, node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    return model_of(nodes, {"x": f32(3, 2)}, ["z", "h"], 17, {"limit": np.float32(0)}, {"x": ["n", 2]})


def test_choice_by_data() -> None:
    model = branches()
    main = machine(model)
    for x in (np.abs(f32(3, 2)), -np.abs(f32(3, 2)), np.abs(f32(1, 2))):
        compare(run(main, x), oracle(model, {"x": x}))


def test_axes_and_bounds_by_data() -> None:
    nodes = onnx_nodes("""
        part = Slice(x, start, end, axes, step); sum = ReduceSum <keepdims = 0> (part, axes);
        y = Unsqueeze(sum, axes)""")

    def of(**bounds: int) -> dict[str, np.ndarray]:
        return {"x": f32(5, 6)} | {name: np.array([v]) for name, v in bounds.items()}

    inputs = of(start=-1, end=0, axes=1, step=-2)
    model = model_of(nodes, inputs, ["part", "sum", "y"], 13, dims={"x": ["n", "m"]})
    main = machine(model)
    for axis, (start, end, step) in ((1, (-1, 0, -2)), (0, (1, 4, 1)), (-2, (0, 99, 3))):
        feed = of(start=start, end=end, axes=axis, step=step)
        compare(run(main, *feed.values()), oracle(model, feed))


def test_sizes_as_outputs_and_params_as_inputs() -> None:
    nodes = onnx_nodes("y = MatMul(x, w); s = Shape(y); f = Cast <to = 1> (s); r = Sqrt(f)")
    w = f32(4, 3)
    model = model_of(nodes, {"x": f32(2, 4)}, ["y", "s", "r"], 17, {"w": w}, {"x": ["n", 4]})
    x = f32(5, 4)
    compare(run(machine(model), x), oracle(model, {"x": x}))
    mod = from_onnx(model, keep_params_in_input=True)
    main = weft.relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())["main"]
    compare(run(main, x, *[c.data for c in mod["main"].attrs["params"]]), oracle(model, {"x": x}))


def test_empty_tensors() -> None:
    nodes = onnx_nodes("m = MatMul(x, w); y = Relu(m)")
    model = model_of(nodes, {"x": f32(2, 4)}, ["y"], 17, {"w": f32(4, 3)}, {"x": ["n", 4]})
    assert run(machine(model), f32(0, 4))[0].shape == (0, 3)


@pytest.mark.parametrize(("channels", "groups"), [(16, 16), (24, 4)])
def test_rows_that_are_a_multiple_of_the_tile(channels: int, groups: int) -> None:
    """Pixels of which only whole tiles can remain: the rest of a row is known to be empty."""
    nodes = [
        node("DepthToSpace", ["x"], ["pixels"], blocksize=4),
        node("Conv", ["pixels", "w"], ["y"], group=groups, pads=[1, 1, 1, 1]),
    ]
    weights = {"w": f32(channels, channels // groups, 3, 3)}
    x = f32(2, 16 * channels, 3, 2)
    model = model_of(nodes, {"x": x}, ["y"], weights=weights, dims={"x": ["b", 16 * channels, "h", "k"]})
    main = machine(model)
    for size in ((3, 2), (1, 1), (2, 5), (0, 2)):
        x = f32(2, 16 * channels, *size)
        compare(run(main, x), oracle(model, {"x": x}), rtol=1e-3, atol=1e-4)
