"""Recurrent layers of whole models: what is computed when they are compiled."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft

GATES = {"LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("kind", GATES)
def test_biases_of_constants_are_added_once(kind):
    n, inputs, rng = 20, 12, np.random.default_rng(3)
    shapes = {"W": (1, GATES[kind] * n, inputs), "R": (1, GATES[kind] * n, n), "B": (1, 2 * GATES[kind] * n)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), k) for k, s in shapes.items()]
    late = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["y"], hidden_size=n, **late)
    spec = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "layer", [spec("x", TensorProto.FLOAT, ("t", 1, inputs))],
        [spec("y", TensorProto.FLOAT, ("t", 1, 1, n))], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = weft.Session(model.SerializeToString())
    kernels = {f.name for f in session.executable.functions if "." not in f.name} - {"main"}
    assert not [k for k in kernels if k.startswith(("add", "split", "concat", "strided_slice"))], kernels
    x = rng.standard_normal((7, 1, inputs)).astype(np.float32)
    onnxruntime = pytest.importorskip("onnxruntime")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected, rtol=1e-4, atol=1e-5)
