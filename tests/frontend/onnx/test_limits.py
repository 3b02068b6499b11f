"""Small models that stand for enormous ones are refused at once, by a limit that the error names."""

import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import model_of
from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx

node = helper.make_node
X = np.ones(1, np.float32)


def calling(levels: int, calls: int) -> onnx.ModelProto:
    """Functions that each call the one before some times."""
    functions = []
    names = ["v", *(f"h{k}" for k in range(calls - 1)), "w"]
    for i in range(levels):
        op, domain = (f"F{i - 1}", "my") if i else ("Relu", "")
        f = onnx.FunctionProto(name=f"F{i}", domain="my", input=["v"], output=["w"])
        f.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("my", 1)])
        f.node.extend(node(op, [a], [b], domain=domain) for a, b in zip(names, names[1:], strict=False))
        functions.append(f)
    model = model_of([node(f"F{levels - 1}", ["x"], ["y"], domain="my")], {"x": X}, ["y"], 17, functions=functions[:1])
    model.functions.extend(functions[1:])
    return model


def nested(levels: int, loop: bool) -> onnx.ModelProto:
    """A loop or choice inside of another, and so on."""

    def graph(k: int) -> Any:
        io = [
            helper.make_tensor_value_info(f"{n}{k}", t, d)
            for n, t, d in (("i", TensorProto.INT64, []), ("g", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [1]))
        ]
        last, outs = f"o{k}", [f"go{k}", f"o{k}"] if loop else [f"o{k}"]
        if k == 0:
            inner = node("Relu", ["s0" if loop else "x"], [last])
        elif loop:
            inner = node("Loop", ["n", "", f"s{k}"], [last], body=graph(k - 1))
        else:
            inner = node("If", ["c"], [last], then_branch=graph(k - 1), else_branch=graph(0))
        nodes = [node("Identity", [f"g{k}"], [f"go{k}"]), inner] if loop else [inner]
        infos = [helper.make_empty_tensor_value_info(o) for o in outs]
        return helper.make_graph(nodes, "g", io if loop else [], infos)

    inputs = {"x": X, "n": np.array(3), "c": np.array(True)}
    if loop:
        return model_of([node("Loop", ["n", "", "x"], ["y"], body=graph(levels - 1))], inputs, ["y"])
    branch = {"then_branch": graph(levels - 1), "else_branch": graph(0)}
    return model_of([node("If", ["c"], ["y"], **branch)], inputs, ["y"])


def shaped(op: str, shape: Any) -> onnx.ModelProto:
    return model_of([node(op, ["x", "s"], ["y"])], {"x": X}, ["y"], weights={"s": np.array(shape, np.int64)})


def sparse(*dims: int) -> onnx.ModelProto:
    weight = helper.make_sparse_tensor(
        helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [5]),
        dims,
    )
    model = model_of([node("Relu", ["w"], ["y"])], {"x": X}, ["y"])
    model.graph.sparse_initializer.append(weight)
    return model


CASES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "calls": (lambda: calling(10, 8), ("function 'F6' has too many nodes", "1,000,000", "1,198,372", "(F9)")),
    "deep calls": (lambda: calling(41, 2), ("nest too deeply in function 'F9'", "32 levels", "33", "(F40)")),
    "choices": (lambda: nested(33, False), ("nest too deeply", "32 levels", "33", '"y" (If)')),
    "loops": (lambda: nested(9, True), ("loops nest too deeply", "at most 8", "9", '"y" (Loop)')),
    "input": (
        lambda: model_of([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], dims={"x": [1] * 5000}),
        ("input 'x' has too many dimensions", "64", "5000"),
    ),
    "reshape": (lambda: shaped("Reshape", [1] * 5000), ("output 'y' has too many dimensions", "64", "5000", "Reshape")),
    "unsqueeze": (lambda: shaped("Unsqueeze", range(5000)), ("too many dimensions", "64", "5001", "Unsqueeze")),
    "sparse": (lambda: sparse(10**13), ("tensor 'w' is too large", "2,147,483,648 bytes", "40,000,000,000,000")),
    "sparse negative": (lambda: sparse(-3), ("tensor 'w' is too large", "found -12")),
    "attribute": (
        lambda: model_of([node("Transpose", ["x"], ["y"], perm=[0] * (1 << 20 | 1))], {"x": X}, ["y"]),
        ("attribute 'perm' is too long", "1,048,576", "1,048,577", "(Transpose)"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_too_large_is_refused_at_once(case: str) -> None:
    make, parts = CASES[case]
    model = make()
    start = time.process_time()
    with pytest.raises(ModelImportError) as caught:
        from_onnx(model)
    assert time.process_time() - start < 2
    assert all(p in str(caught.value) for p in parts), str(caught.value)


def test_what_is_within_the_limits_is_imported() -> None:
    for model in (calling(5, 3), nested(10, False), nested(3, True), shaped("Reshape", [1] * 64)):
        assert "main" in from_onnx(model)


def test_written_out_loops_do_not_multiply() -> None:
    model = nested(3, True)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(10), "n"))  # 1000 iterations
    assert 1 <= str(from_onnx(model)).count("relu(") <= 200
