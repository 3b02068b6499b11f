"""Gradient of the preview of training."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx import from_onnx

TRAINING = "ai.onnx.preview.training"


def model(xs: list[str], zs: list[str]) -> onnx.ModelProto:
    """Make y = tanh(a w + b), and its gradient behind another operator."""
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Tanh", ["q"], ["y"]),
        helper.make_node(
            "Gradient", [*xs, *zs], [f"d{x}" for x in xs], domain=TRAINING, xs=xs, y="y", **({"zs": zs} if zs else {})
        ),
        helper.make_node("Neg", [f"d{xs[0]}"], ["n"]),
    ]
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, d) for k, d in (("a", ["n", 3]), ("b", [2]))]
    outs = [helper.make_empty_tensor_value_info(o) for o in ("y", *(f"d{x}" for x in xs), "n")]
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2) / 7, "w")
    graph = helper.make_graph(nodes, "g", infos, outs, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(TRAINING, 1)])


@pytest.mark.parametrize("names", [(["a", "b"], []), (["a"], ["b"]), (["b"], ["a"])])
def test_gradient_of_a_layer(names: Any) -> None:
    session = weft.Session(model(*names))
    a, b = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.array([0.2, -0.1], np.float32)
    y, *found = (x.numpy() for x in session.run({"a": a, "b": b}))
    w = np.arange(6, dtype=np.float64).reshape(3, 2) / 7
    slope = 1 - np.tanh(a @ w + b) ** 2
    want = {"a": slope @ w.T, "b": slope.sum(0)}
    np.testing.assert_allclose(y, np.tanh(a @ w + b), rtol=1e-5)
    for name, got in zip(names[0], found, strict=False):
        np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[-1], -found[0])


def test_what_the_result_needs_is_named() -> None:
    with pytest.raises(weft.error.ModelImportError, match="not in 'xs' or 'zs'"):
        from_onnx(model(["a"], []))
