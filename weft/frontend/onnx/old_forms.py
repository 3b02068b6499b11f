"""Nodes of opsets before 7, brought into the form that opset 7 has: then one converter serves every opset."""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.value import Value
from weft.registry import Registry

OLDEST_FORM = 7
"""The opset whose forms converters know."""
_FORGOTTEN = ("consumed_inputs", "is_test", "output_sequence", "broadcast")
"""Attributes that told executors something, or that mean nothing in the new form."""
_BROADCAST = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_RULES: Registry[Callable[[Node], None]] = Registry()


def modern_form(node: Node) -> Node:
    """Return a node that means in opset 7 what `node` means in its own.

    Raises
    ------
    ModelImportError
        When its operands do not have the shapes that its own opset asks for.
    """
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    new = Node(node.graph, proto, node.inputs, node.opset, node.where)
    rule = _RULES.get(node.op_type)
    if rule is not None:
        rule(new)
    kept = [a for a in new.attrs.values() if a.name not in _FORGOTTEN]
    final = onnx.NodeProto()
    final.CopyFrom(proto)
    del final.attribute[:]
    final.attribute.extend(kept)
    del final.input[:]
    final.input.extend(
        name if i < len(proto.input) else f"input {i}"
        for i, name in enumerate(
            [*proto.input, *[""] * (len(new.inputs) - len(proto.input))][: max(len(new.inputs), 0)]
        )
    )
    return Node(node.graph, final, new.inputs, OLDEST_FORM, node.where)


def _set(node: Node, name: str, value: Any) -> None:
    node.attrs[name] = onnx.helper.make_attribute(name, value)


@_RULES.on(*_BROADCAST)
def _broadcast(node: Node) -> None:
    """The second operand lies along the first one's axes from `axis` on, or is of its shape."""
    axis, rank, own = node.attr("axis"), node.ndim(0), node.ndim(1)
    node.attrs.pop("axis", None)
    if not node.attr("broadcast", 0):
        node.require_shape(1, node.shape(0))
        return
    start = rank - own if axis is None else axis + rank if axis < 0 else axis
    if not 0 <= start <= rank - own:
        node.error(
            "the second operand does not lie inside of the first", found=f"axis {axis}", expected=f"0..{rank - own}"
        )
    shape = [*node.shape(1), *[1] * (rank - own - start)]
    if len(shape) != own:
        node.inputs = (node.inputs[0], Value.of_expr(node.reshape(node.x(1), shape), node.value(1).kind))
    node.require_broadcast_to(1, node.shape(0))


@_RULES.on("PRelu")
def _prelu(node: Node) -> None:
    """One slope is for each channel, the second axis."""
    if node.ndim() > 2 and node.ndim(1) == 1:
        slope = node.reshape(node.x(1), [*node.shape(1), *[1] * (node.ndim() - 2)])
        node.inputs = (node.inputs[0], Value.of_expr(slope))


@_RULES.on("BatchNormalization", "Dropout")
def _for_inference(node: Node) -> None:
    drops_nothing = node.op_type == "Dropout" and node.attr("ratio", 0.5) == 0.0
    if not node.attr("is_test", 0) and not drops_nothing:
        node.unsupported(
            "training mode of opset 1 to 6 cannot be compiled",
            expected="is_test=1",
            help="export the model for inference",
        )


@_RULES.on("Cast")
def _cast(node: Node) -> None:
    to = node.attr("to")
    if isinstance(to, str):
        number = onnx.TensorProto.DataType.items()
        known = {name: n for name, n in number}
        if to.upper() not in known:
            node.error("an unknown element type", expected="a name such as FLOAT", found=to)
        _set(node, "to", known[to.upper()])


@_RULES.on("Concat")
def _concat(node: Node) -> None:
    if "axis" not in node.attrs:
        _set(node, "axis", 1)


@_RULES.on("Pad")
def _pad(node: Node) -> None:
    if "paddings" in node.attrs:
        _set(node, "pads", node.attr("paddings"))
        del node.attrs["paddings"]


@_RULES.on("Reshape")
def _reshape(node: Node) -> None:
    shape = node.attr("shape")
    if shape is not None:
        del node.attrs["shape"]
        node.inputs = (node.inputs[0], Value.of_array(np.array(shape, np.int64)))


@_RULES.on("Selu")
def _selu(node: Node) -> None:
    if node.opset < 6:
        for name, value in (("alpha", 1.6732), ("gamma", 1.0507)):
            _set(node, name, node.attr(name, value))


@_RULES.on("Split")
def _split(node: Node) -> None:
    if node.has(1):
        sizes = node.const(1)
        if sizes is None:
            node.unsupported("sizes that are data are not supported before opset 13")
        _set(node, "split", [int(n) for n in sizes.reshape(-1)])
        node.inputs = node.inputs[:1]


@_RULES.on("Tile")
def _tile(node: Node) -> None:
    """Before opset 6, one axis is repeated."""
    if node.opset >= 6:
        return
    times, at = node.one(1, sizes=True), node.axis(node.one(2))
    repeats = [s.choose(s.compare("Equal", at, i), times, 1) for i in range(node.ndim())]
    node.inputs = (node.inputs[0], Value.of_elements(repeats, "int64"))


@_RULES.on("Upsample")
def _upsample(node: Node) -> None:
    if "scales" not in node.attrs:
        _set(node, "scales", [1.0, 1.0, node.attr("height_scale", 1.0), node.attr("width_scale", 1.0)])
        for name in ("height_scale", "width_scale"):
            node.attrs.pop(name, None)


@_RULES.on("LpPool", "GlobalLpPool")
def _lp(node: Node) -> None:
    p = node.attr("p", 2)
    if float(p) != int(p):
        node.unsupported("only whole norms are supported", found=str(p))
    _set(node, "p", int(p))
