"""Operators of other domains as compositions of standard ones: a converter calls them as a model would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.onnx.graph import Scope
from weft.frontend.onnx.importer import convert_nodes
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value

_OPSET = 24
MICROSOFT = "com.microsoft"


def calls(
    node: Node, op: str, inputs: Sequence[Value | Any | None], outputs: int = 1, opset: int = _OPSET, **attrs: Any
) -> list[Value]:
    """Convert a standard operator on values, as an opset has it, and return its outputs."""
    values = [v if v is None or isinstance(v, Value) else Value.of_expr(v) for v in inputs]
    names = ["" if v is None else f"x{i}" for i, v in enumerate(values)]
    made = [f"y{i}" for i in range(outputs)]
    scope = Scope(None, {"": opset})
    scope.values = {n: v for n, v in zip(names, values, strict=True) if v is not None}
    proto = onnx.helper.make_node(op, names, made, **{k: v for k, v in attrs.items() if v is not None})
    with node.graph.inside(scope):
        convert_nodes(node.graph, [(0, proto)], f"{node.where}, inside of it ")
        return [scope.values[name] for name in made]


def call(node: Node, op: str, *inputs: Value | Any | None, **attrs: Any) -> Any:
    """Convert a standard operator with one output, and return its expression."""
    return node.graph.expr(calls(node, op, inputs, **attrs)[0])


def microsoft(
    *op_types: str, attributes: str = "", inputs: tuple[int, int] = (1, 16), domain: str = MICROSOFT, last: int = 99
) -> Any:
    """Register a converter of what ONNX has no schema of, up to opset `last`: it says which attributes it knows."""
    known = set(attributes.split())

    def register(fn: Callable[[Node], Any]) -> Callable[[Node], Any]:
        def checked(node: Node) -> Any:
            if node.opset > last:
                node.unsupported("ONNX took it back", expected=f"up to opset {last}")
            unknown = set(node.attrs) - known
            if unknown:
                node.unsupported(
                    f"its attribute '{min(unknown)}' is not supported",
                    expected=", ".join(sorted(known)) or "no attributes",
                )
            if not inputs[0] <= len(node.inputs) <= inputs[1]:
                node.error(
                    "a wrong number of inputs", expected=f"{inputs[0]} to {inputs[1]}", found=str(len(node.inputs))
                )
            return fn(node)

        converter(*op_types, domain=domain, without_schema=True)(checked)
        return fn

    return register
