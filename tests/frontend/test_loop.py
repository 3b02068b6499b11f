"""Loop and Scan against ONNX Runtime: conditions and counts as data, states that grow, axes and directions."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx import from_onnx

F, B, L = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
RNG = np.random.default_rng(5)
value, node = helper.make_tensor_value_info, helper.make_node
GO_ON = [value("i", L, []), value("c", B, [])]


def check(nodes, inputs, outputs, feeds, weights=()):
    tensors = [numpy_helper.from_array(np.asarray(w), k) for k, w in weights]
    graph = helper.make_graph(nodes, "g", inputs, [value(o, t, s) for o, t, s in outputs], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session, oracle = weft.Session(model), onnxruntime.InferenceSession(model.SerializeToString())
    for feed in feeds:
        for found, expected in zip(session.run(feed), oracle.run(None, feed), strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def x(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_count_is_data():
    """The state keeps its shape, a weight from around is used, an output a step is stacked."""
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["p"]), node("Tanh", ["p"], ["t"]), node("Identity", ["c"], ["d"])],
        "body", [*GO_ON, value("s", F, ["n", 4])], [value("d", B, []), value("t", F, None), value("p", F, None)],
    )  # fmt: skip
    check([node("Loop", ["k", "", "x"], ["last", "all"], body=body)], [value("k", L, []), value("x", F, ["n", 4])],
          [("last", F, ["n", 4]), ("all", F, ["k", "n", 4])],
          [{"k": np.array(k), "x": x(n, 4)} for k, n in ((1, 2), (7, 3), (300, 1))], [("w", x(4, 4))])  # fmt: skip


@pytest.mark.parametrize("trips", [5, 3000])
def test_condition_is_data(trips):
    """Written out where the count is small and known, unless the condition depends on data."""
    body = helper.make_graph(
        [node("Add", ["s", "one"], ["t"]), node("ReduceSum", ["t"], ["u"], keepdims=0),
         node("Less", ["u", "lim"], ["d"])],
        "body", [*GO_ON, value("s", F, [4])], [value("d", B, []), value("t", F, [4])],
    )  # fmt: skip
    check([node("Loop", ["k", "yes", "x"], ["last"], body=body)], [value("x", F, [4]), value("lim", F, [])],
          [("last", F, [4])], [{"x": x(4), "lim": np.array(v, np.float32)} for v in (-50, 8, 9000)],
          [("k", np.int64(trips)), ("yes", np.array(True)), ("one", np.ones(4, np.float32))])  # fmt: skip


def test_known_count_is_written_out():
    body = helper.make_graph(
        [node("Cast", ["i"], ["f"], to=F), node("Add", ["s", "f"], ["t"]), node("Identity", ["c"], ["d"])],
        "body", [*GO_ON, value("s", F, ["n"])], [value("d", B, []), value("t", F, None), value("t", F, None)],
    )  # fmt: skip
    loop = node("Loop", ["k", "", "x"], ["last", "all"], body=body)
    weights = [("k", np.int64(4))]
    check([loop], [value("x", F, ["n"])], [("last", F, ["n"]), ("all", F, [4, "n"])], [{"x": x(3)}], weights)
    graph = helper.make_graph([loop], "g", [value("x", F, ["n"])], [value("all", F, [4, "n"])],
                              [numpy_helper.from_array(w, k) for k, w in weights])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert "loop" not in from_onnx(model).script()


def test_state_grows():
    body = helper.make_graph(
        [node("ReduceMean", ["s"], ["m"], axes=[0], keepdims=1), node("Concat", ["s", "m"], ["t"], axis=0),
         node("Identity", ["c"], ["d"])],
        "body", [*GO_ON, value("s", F, ["q", 3])], [value("d", B, []), value("t", F, ["r", 3])],
    )  # fmt: skip
    check([node("Loop", ["k", "", "x"], ["last"], body=body), node("Relu", ["last"], ["y"])],
          [value("k", L, []), value("x", F, ["n", 3])], [("y", F, ["m", 3])],
          [{"k": np.array(k), "x": x(2, 3)} for k in (0, 6)])  # fmt: skip


@pytest.mark.parametrize(("axes", "back"), [((0, 0), (0, 0)), ((1, 1), (1, 0)), ((1, 2), (0, 1))])
def test_scan(axes, back):
    body = helper.make_graph(
        [node("MatMul", ["xt", "w"], ["a"]), node("MatMul", ["h", "u"], ["b"]), node("Add", ["a", "b"], ["p"]),
         node("Tanh", ["p"], ["g"]), node("Identity", ["g"], ["y"])],
        "body", [value("h", F, ["n", 5]), value("xt", F, ["n", 3])], [value("g", F, ["n", 5]), value("y", F, ["n", 5])],
    )  # fmt: skip
    scan = node("Scan", ["h", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[axes[0]],
                scan_output_axes=[axes[1]], scan_input_directions=[back[0]],
                scan_output_directions=[back[1]])  # fmt: skip
    dims = ["n", 3]
    dims.insert(axes[0], "t")
    shape = {"n": 2, "t": 9, 3: 3}
    check([scan], [value("h", F, ["n", 5]), value("x", F, dims)], [("last", F, ["n", 5]), ("all", F, ["p", "q", "r"])],
          [{"h": x(2, 5), "x": x(*(shape[d] for d in dims))}], [("w", x(3, 5)), ("u", x(5, 5) / 3)])  # fmt: skip
