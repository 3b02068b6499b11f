"""Small ONNX models that several test files build."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

Values = Mapping[str, tuple[str, Sequence[int | str] | None]]


def element(dtype: str) -> int:
    """ONNX's number of a data type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def onnx_nodes(text: str) -> list[onnx.NodeProto]:
    """Nodes in ONNX's own syntax, apart by semicolons: ``s = Shape (x); y = Concat <axis = 0> (s, t)``."""
    return list(onnx.parser.parse_graph("g () => () {" + text.replace(";", "\n") + "}").node)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Values,
    outputs: Values,
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of some nodes; inputs and outputs map names to dtype and shape, None where it is open."""

    def infos(values: Values) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, element(d), s) for n, (d, s) in values.items()]

    initializers = [numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "test", infos(inputs), infos(outputs), initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def add(shape: Sequence[int | str] = ("n", 4)) -> onnx.ModelProto:
    """``z = x + y``, both of one symbolic shape."""
    spec = ("float32", shape)
    return model([helper.make_node("Add", ["x", "y"], ["z"])], {"x": spec, "y": spec}, {"z": spec})


def linear(seed: int = 0) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """``y = relu(x @ w + b)`` for any number of rows, with its weights."""
    rng = np.random.default_rng(seed)
    w, b = rng.standard_normal((8, 5), np.float32), rng.standard_normal(5, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="/dense/MatMul"),
        helper.make_node("Add", ["p", "b"], ["q"], name="/dense/Add"),
        helper.make_node("Relu", ["q"], ["y"], name="/Relu"),
    ]
    proto = model(nodes, {"x": ("float32", ("rows", 8))}, {"y": ("float32", ("rows", 5))}, {"w": w, "b": b})
    return proto, w, b


def _field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message."""
    size, out = len(data), b""
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + out + bytes([size]) + data


def nested_choices(depth: int) -> bytes:
    """A model of an If in an If, so deep that ``onnx`` may not make it."""
    graph = _field(2, b"g")
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        node = _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute)
        graph = _field(1, node) + _field(2, b"g")
    return b"\x08\x08" + _field(7, graph) + _field(8, b"\x10\x11")
