"""Malformed models: each gives a ModelImportError that names the place, whatever is wrong, and never anything else."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import model_of
from tests.refusals import refuses
from weft.error import ModelImportError, UnsupportedOperator
from weft.frontend.onnx import from_onnx, importer

node = helper.make_node


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def refuse(model: Any, *parts: str, error: type = ModelImportError, **options: Any) -> str:
    text = str(refuses(error, "", from_onnx, model, **options))
    for part in parts:
        assert part in text, text
    return text


def of(
    *nodes: Any, inputs: Any = None, outputs: Any = ("y",), opset: int = 17, **weights: np.ndarray
) -> onnx.ModelProto:
    return model_of(nodes, inputs or {"x": f32(2, 3)}, outputs, opset, weights)


# --- files ------------------------------------------------------------------------------------------------------------


def test_no_model_at_all(tmp_path: Any) -> None:
    refuse(tmp_path / "missing.onnx", "cannot read", "missing.onnx")
    refuse(b"", "is not a complete ONNX model")
    refuse(b"these are no bytes of a model", "is not a complete ONNX model")
    refuse(42, "cannot import this object", "int")
    (tmp_path / "folder.onnx").mkdir()
    refuse(tmp_path / "folder.onnx", "cannot read")


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_dangling_output() -> None:
    refuse(of(node("Relu", ["x"], ["y"]), outputs=["z"]), "graph output 'z' is not defined")


def test_duplicate_names() -> None:
    refuse(of(node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])), "defines 'y' twice", "ONNX node 1")
    refuse(of(node("Relu", ["x"], ["x"])), "defines 'x' twice")
    model = of(node("Relu", ["x"], ["y"]), w=f32(2))
    model.graph.initializer.append(model.graph.initializer[0])
    refuse(model, "two weights called 'w'")
    model = of(node("Relu", ["x"], ["y"]))
    model.graph.input.append(model.graph.input[0])
    refuse(model, "two inputs called 'x'")


def test_no_outputs() -> None:
    model = of(node("Relu", ["x"], ["y"]))
    del model.graph.output[:]
    refuse(model, "no outputs")


def test_no_opset() -> None:
    model = of(node("Relu", ["x"], ["y"]))
    del model.opset_import[:]
    refuse(model, "which opset")
    assert from_onnx(model, opset=17) is not None


def test_input_that_is_no_tensor() -> None:
    model = of(node("Relu", ["x"], ["y"]))
    model.graph.input[0].type.CopyFrom(
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    )
    refuse(model, "Relu: input 0", "found seq(tensor(float))")
    model.graph.input[0].type.sparse_tensor_type.elem_type = TensorProto.FLOAT
    refuse(model, "input 'x' has no type that Weft has", "sparse_tensor_type")


def test_input_of_an_unknown_type() -> None:
    for kind, name in ((TensorProto.COMPLEX64, "COMPLEX64"), (0, "UNDEFINED"), (77, "number 77")):
        model = of(node("Identity", ["x"], ["y"]))
        model.graph.input[0].type.tensor_type.elem_type = kind
        refuse(model, "input 'x'", name)


# --- operators --------------------------------------------------------------------------------------------------------


def test_all_missing_operators_in_one_message() -> None:
    model = of(
        node("Relu", ["x"], ["a"]),
        node("NoSuchOp", ["a"], ["b"], name="first"),
        node("Fancy", ["b"], ["c"], domain="acme", name="second"),
        node("NoSuchOp", ["c"], ["d"], name="third"),
        node("Fancier", ["d"], ["y"], name="fourth"),
    )
    model.opset_import.append(helper.make_opsetid("acme", 3))
    text = refuse(
        model,
        "3 operators",
        "NoSuchOp (domain ai.onnx, opset 17)",
        '"first"',
        "Fancy (domain acme, opset 3)",
        '"second"',
        "Fancier",
        error=UnsupportedOperator,
    )
    assert '"third"' not in text


def test_missing_operator_in_a_branch() -> None:
    body = helper.make_graph([node("NoSuchOp", ["x"], ["a"])], "b", [], [helper.make_empty_tensor_value_info("a")])
    refuse(
        of(node("If", ["c"], ["y"], then_branch=body, else_branch=body), c=np.array(True)),
        "NoSuchOp",
        error=UnsupportedOperator,
    )
    loop = node("GreedySearch", ["x"], ["y"], domain="com.microsoft", decoder=body)
    refuse(of(loop), "its 'decoder' can be imported as a model of its own", error=UnsupportedOperator)


def test_domain_without_opset() -> None:
    refuse(of(node("Fancy", ["x"], ["y"], domain="acme")), "opset not imported", error=UnsupportedOperator)


def test_operator_newer_than_the_opset() -> None:
    refuse(of(node("Gelu", ["x"], ["y"]), opset=17), "Gelu", "opset 17", error=UnsupportedOperator)


@pytest.mark.parametrize(
    ("nodes", "parts"),
    [
        ([node("Add", ["x"], ["y"])], ["wrong number of inputs", "expected 2, found 1"]),
        ([node("Add", ["x", ""], ["y"])], ["its input 'B' is missing"]),
        ([node("Relu", ["x"], ["y", "z"])], ["wrong number of outputs"]),
        ([node("Softmax", ["x"], ["y"], axis=1.5)], ["'axis' has the wrong type", "expected int, found float"]),
        ([node("Softmax", ["x"], ["y"], colour=1)], ["no attribute 'colour'"]),
        ([node("Cast", ["x"], ["y"])], ["attribute 'to' is missing"]),
        ([node("Cast", ["x"], ["y"], to=99)], ["number 99"]),
        ([node("Softmax", ["x"], ["y"], axis=5)], ["axis is out of range", "-2..1"]),
        ([node("Transpose", ["x"], ["y"], perm=[0, 0])], ["no permutation"]),
        ([node("Reshape", ["x", "five"], ["y"])], ["number of elements changes"]),
        ([node("MatMul", ["x", "x"], ["y"])], ["inner dimensions differ", "found 2"]),
        ([node("Unsqueeze", ["x", "half"], ["y"])], ["input 1, 'axes', has a wrong element type", "expected int64"]),
        ([node("Reshape", ["x", "half"], ["y"])], ["'shape', has a wrong element type", "found float32"]),
        ([node("Expand", ["x", "yes"], ["y"])], ["'shape', has a wrong element type", "found bool"]),
        ([node("Clip", ["x", "five"], ["y"])], ["'min', and 'input' have different types", "add a Cast"]),
        ([node("Slice", ["x", "half", "yes"], ["y"])], ["2 errors", "'starts', has a wrong", "'ends', has a wrong"]),
        ([node("Pow", ["x", "yes"], ["y"])], ["'Y', has a wrong element type"]),
        ([node("Add", ["x", "five"], ["y"])], ["different types", "expected float32, found int64"]),
        ([node("Add", ["x", "four"], ["y"])], ["do not broadcast"]),
        ([node("Conv", ["x", "x"], ["y"])], ["wrong rank"]),
        ([node("Gather", ["x", "five"], ["y"])], ["index is out of range"]),
        ([node("Concat", ["x", "four"], ["y"], axis=0)], ["ranks differ"]),
        ([node("Split", ["x"], ["y", "z"], axis=1)], ["does not divide"]),
        ([node("Constant", [], ["y"])], ["exactly one value"]),
        ([node("Einsum", ["x"], ["y"], equation="ij,jk->ik")], ["2 inputs"]),
        ([node("Squeeze", ["x", "zero"], ["y"])], ["is not 1"]),
        ([node("OneHot", ["five", "five", "x"], ["y"])], []),
        ([node("Resize", ["x"], ["y"])], ["neither scales nor sizes"]),
        ([node("Resize", ["x", "", "scale"], ["y"], mode="magic")], ["'mode' has an unknown value"]),
        ([node("TopK", ["x", "five"], ["y", "z"])], ["k is out of range"]),
        ([node("Pad", ["x", "five"], ["y"])], ["wrong number of pads", "expected 4"]),
        ([node("LSTM", ["x", "x", "x"], ["y"])], ["wrong rank"]),
        ([node("GRU", ["x", "x", "x"], ["y"])], ["GRU: input 0 has a wrong rank"]),
        (
            [node("Softmax", ["x", "x"], ["y"], axis="last", colour=1)],
            ["3 errors", "wrong number of inputs", "wrong type", "colour"],
        ),
        ([node("Add", ["x", "nowhere"], ["y"], name="/a/b")], ["'nowhere' is not defined", 'ONNX node 0 "/a/b" (Add)']),
        (
            [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])],
            ["depend on their own results"],
        ),
    ],
)
def test_nodes_that_are_wrong(nodes: Any, parts: list[str]) -> None:
    weights = {
        "five": np.array([5]),
        "four": f32(4),
        "zero": np.array([0]),
        "scale": np.array([1, 2], np.float32),
        "half": f32(1),
        "yes": np.array([True]),
    }
    refuse(of(*nodes, **weights), "ONNX node 0", *parts)


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "constants", "outputs", "part"),
    [
        ("Slice", (4, 5), {}, [[0], [2], [0], [0]], 1, "a step is 0"),
        ("Slice", (4, 5), {}, [[0], [2], [7]], 1, "an axis is out of range"),
        ("Expand", (4, 5), {}, [[-1, 5]], 1, "is negative"),
        ("Reshape", (4, 5), {}, [[3, -1]], 1, "do not divide"),
        ("Split", (4, 6), {"axis": 1}, [[2, 2]], 2, "do not add up"),
        ("Split", (4, 6), {"num_outputs": 3}, [], 2, "not the number of outputs"),
        ("TopK", (4, 6), {}, [[-1]], 2, "is negative"),
        ("DepthToSpace", (1, 4, 2, 2), {"blocksize": 0}, [], 1, "has a wrong value"),
        ("MaxPool", (1, 1, 4, 4), {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}, [], 1, "as wide as the window"),
        ("ReverseSequence", (4, 2), {}, [[9, 1]], 1, "a length is out of range"),
        ("Slice", (4, 5), {}, [[0, 0], [2, 2], [0, -2]], 1, "an axis is repeated"),
        ("Expand", (4, 5), {}, [[3, 5]], 1, "do not broadcast"),
        ("Tile", (4, 5), {}, [[-1, 5]], 1, "is negative"),
        ("Reshape", (4, 5), {}, [[-1, -1]], 1, "more than one"),
        ("Reshape", (0, 5), {"allowzero": 1}, [[0, -1]], 1, "beside one of 0"),
        ("Squeeze", (4, 1), {}, [[0]], 1, "is not 1"),
        ("Squeeze", (4, 1), {}, [[1, -1]], 1, "an axis is repeated"),
        ("Unsqueeze", (4, 1), {}, [[0, 0]], 1, "an axis is repeated"),
        ("Split", (4, 6), {"num_outputs": 0}, [], 2, "has a wrong value"),
        ("TopK", (4, 6), {}, [[2, 2]], 2, "is not one number"),
        ("DepthToSpace", (1, 4, 2, 2), {"blocksize": 2, "mode": "RDC"}, [], 1, "has a wrong value"),
        ("MaxPool", (1, 1, 4, 4), {"kernel_shape": [0, 2]}, [], 1, "has a wrong value"),
        ("MaxPool", (1, 1, 4, 4), {"kernel_shape": [2, 2], "strides": [0, 1]}, [], 1, "has a wrong value"),
        ("MaxPool", (1, 1, 4, 4), {"kernel_shape": [7, 2]}, [], 1, "larger than the padded input"),
        ("LRN", (1, 4, 4, 4), {"size": 4}, [], 1, "odd and positive"),
        ("CumSum", (4, 6), {}, [[7]], 1, "out of range"),
        ("ReduceSum", (4, 6), {"keepdims": 2}, [[0]], 1, "has a wrong value"),
        ("ArgMax", (4, 6), {"axis": 2}, [], 1, "out of range"),
    ],
)
def test_wrong_values(op: str, shape: Any, attrs: Any, constants: Any, outputs: int, part: str) -> None:
    """``tests/fuzz/onnx_nodes.py`` draws more of them."""
    weights, names = {f"c{i}": np.array(c) for i, c in enumerate(constants)}, [f"y{i}" for i in range(outputs)]
    model = of(node(op, ["x", *weights], names, **attrs), inputs={"x": f32(*shape)}, outputs=names, opset=18, **weights)
    refuse(model, "ONNX node 0", part)


@pytest.mark.parametrize("raised", [StopIteration, OSError("full"), NotImplementedError, KeyError("k")])
def test_whatever_a_converter_raises_names_the_node(raised: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise raised

    monkeypatch.setattr(importer, "find_converter", lambda *_: broken)
    caught = refuses(ModelImportError, 'ONNX node 0 "y"', from_onnx, of(node("Relu", ["x"], ["y"])))
    assert isinstance(caught.__cause__, raised if isinstance(raised, type) else type(raised))


# --- tensors ----------------------------------------------------------------------------------------------------------


def damaged_weight(**changes: Any) -> onnx.ModelProto:
    model = of(node("Add", ["x", "w"], ["y"]), w=f32(2, 3))
    tensor = model.graph.initializer[0]
    for name, value in changes.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    return model


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"raw_data": b"\0" * 23}, "too little data"),
        ({"raw_data": b"\0" * 25}, "too much data"),
        ({"dims": [2, -3]}, "negative dimension"),
        ({"dims": [1] * 99}, "too many dimensions"),
        ({"dims": [2**40, 2**40]}, "too little data"),
        ({"data_type": TensorProto.STRING}, "does not have the data"),
        ({"data_type": TensorProto.COMPLEX64}, "COMPLEX64"),
        ({"data_type": 0}, "UNDEFINED"),
    ],
)
def test_damaged_weight(changes: dict, part: str) -> None:
    refuse(damaged_weight(**changes), "tensor 'w'", part)


def test_weight_with_a_wrong_number_of_values() -> None:
    model = damaged_weight()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * 5)
    refuse(model, "tensor 'w'", "expected 6", "found 5")
