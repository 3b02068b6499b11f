"""Operators that Weft does not have, on the host."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from tests.refusals import refuses
from weft.runtime.host import register_operator


def model(op: str, domain: str, declared: bool = True, **attrs: Any) -> onnx.ModelProto:
    """Make a model: an operator between two of Weft's."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node(op, ["a"], ["b"], domain=domain, **attrs),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_empty_tensor_value_info("y")],
        value_info=[helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", "m"])] if declared else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)])


def test_a_registered_function_runs_it() -> None:
    register_operator("test.domain", "TwiceAsWide", lambda x, times, label: np.tile(x * len(label), (1, times)))
    made = model("TwiceAsWide", "test.domain", times=2, label="abc")
    refuses(weft.error.UnsupportedOperator, "TwiceAsWide.*", weft.Session, made)
    with pytest.warns(UserWarning, match="a registered function runs it on the host"):
        session = weft.Session(made, fallback="reference")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = session.run({"x": x})
    np.testing.assert_array_equal(got.numpy(), -np.tile(6 * x, (1, 2)))


def test_the_reference_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.frontend.onnx import registry

    monkeypatch.delitem(registry._CONVERTERS, ("", "CumSum"))
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["i"], value_int=1), helper.make_node("CumSum", ["x", "i"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    refuses(weft.error.UnsupportedOperator, "fallback='reference'", weft.Session, made)
    with pytest.warns(UserWarning, match="ONNX's reference implementation"):
        session = weft.Session(made, fallback="reference")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(session.run({"x": x})[0].numpy(), np.cumsum(x, 1))


def test_what_nobody_can_run_is_an_error() -> None:
    with pytest.raises(weft.error.UnsupportedOperator, match="NoSuchThing"):
        weft.Session(model("NoSuchThing", "test.domain"), fallback="reference")
    register_operator("test.domain", "Untyped", lambda x: x)
    with pytest.raises(weft.error.UnsupportedOperator, match="types of its outputs"):
        weft.Session(model("Untyped", "test.domain", declared=False), fallback="reference")
    with pytest.raises(weft.error.InvalidArgument, match="unknown fallback"):
        weft.Session(model("Untyped", "test.domain"), fallback="guess")
