"""Operators defined by other operators: model-local functions, and schemas with a function body, are inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.onnx import check
from weft.frontend.onnx.graph import Scope
from weft.frontend.onnx.limits import subgraphs
from weft.frontend.onnx.model import ELEMENT_TYPES, onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.schema import find_schema, normal_domain
from weft.frontend.onnx.value import Value
from weft.ir import Var
from weft.runtime.host import Kind

ConvertNodes = Callable[..., None]


def inline_local(node: Node, function: onnx.FunctionProto, convert_nodes: ConvertNodes) -> list[Value | None]:
    """Inline a function of the model."""
    return _inline(node, function, {**node.graph.scope.opsets, **check.opset_imports(function)}, convert_nodes)


def inline_schema(node: Node, convert_nodes: ConvertNodes) -> list[Value | None]:
    """Inline the body that an operator's schema has.

    Raises
    ------
    UnsupportedOperator
        When it has none for these inputs.
    """
    domain = normal_domain(node.proto.domain)
    schema = find_schema(domain, node.op_type, node.opset)
    function = None
    if schema is not None and schema.raw.has_function:
        function = schema.raw.function_body
    elif schema is not None and schema.raw.has_context_dependent_function:
        types = [type_proto(v).SerializeToString() for v in node.inputs]
        body = schema.raw.get_context_dependent_function(node.proto.SerializeToString(), types)
        function = onnx.FunctionProto()
        function.ParseFromString(body)
    if function is None or not function.node:
        node.unsupported(
            "Weft cannot import the operator",
            expected="a converter or a function body",
            found=f"neither, for opset {node.opset}",
        )
    opsets = {**node.graph.scope.opsets, **check.opset_imports(function)}
    attributes = schema.raw.attributes.values()  # type: ignore[union-attr]
    defaults = [a.default_value for a in attributes if a.default_value.name]
    return _inline(node, function, opsets, convert_nodes, defaults)


def type_proto(value: Value | None) -> Any:
    """Return a value's type as ONNX writes it, without the dimensions that are not known."""
    proto = onnx.TypeProto()
    if value is None:
        return proto
    if not value.is_tensor:
        _declare_kind(proto, value.full_kind)
        return proto
    proto.tensor_type.elem_type = _NUMBERS[value.logical]
    proto.tensor_type.shape.SetInParent()
    for d in value.shape:
        dim = proto.tensor_type.shape.dim.add()
        if isinstance(d, int):
            dim.dim_value = d
        elif isinstance(d, Var):
            dim.dim_param = d.name
    return proto


def _declare_kind(proto: Any, kind: Kind | None) -> None:
    if kind is None:
        return
    if kind.form == "tensor":
        proto.tensor_type.elem_type = _NUMBERS[kind.dtype]
    elif kind.form == "map":
        proto.map_type.key_type = _NUMBERS[kind.dtype]
        _declare_kind(proto.map_type.value_type, kind.of)
    else:
        _declare_kind(getattr(proto, f"{kind.form}_type").elem_type, kind.of)


_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


def _inline(
    node: Node, function: Any, opsets: dict[str, int], convert_nodes: ConvertNodes, defaults: Sequence[Any] = ()
) -> list[Value | None]:
    scope = Scope(None, opsets)
    formals = list(function.input)
    if len(node.inputs) > len(formals):
        node.error(
            "the function has a wrong number of inputs", expected=f"at most {len(formals)}", found=str(len(node.inputs))
        )
    for name, value in zip(formals, node.inputs, strict=False):
        if value is not None:
            scope.values[name] = value
    absent = {name for i, name in enumerate(formals) if not node.has(i)}
    attributes = {a.name: a for a in (*defaults, *function.attribute_proto)}
    attributes.update({a.name: a for a in node.proto.attribute})
    body = onnx.FunctionProto()
    body.input.extend(formals)
    body.node.extend(_bind_node(n, attributes, absent) for n in function.node)
    order = check.sorted_nodes(body, (), f"function {node.op_type}")
    with node.graph.inside(scope):
        convert_nodes(node.graph, order, f"{node.where}, inside of it ", function.output)
        results = [scope.values.get(name) for name in function.output]
    return results


def _bind_node(template: Any, attributes: dict[str, Any], absent: set[str]) -> Any:
    """Return a node of a function with attribute references replaced and inputs not given left out."""
    node = onnx.NodeProto()
    node.CopyFrom(template)
    _bind_attributes(node, attributes)
    for i, name in enumerate(node.input):
        if name in absent:
            node.input[i] = ""
    return node


def _bind_attributes(node: Any, attributes: dict[str, Any]) -> None:
    bound = []
    for a in node.attribute:
        if a.ref_attr_name:
            given = attributes.get(a.ref_attr_name)
            if given is None:
                continue
            copy = onnx.AttributeProto()
            copy.CopyFrom(given)
            copy.name = a.name
            bound.append(copy)
            continue
        for sub in subgraphs(a):
            for inner in sub.node:
                _bind_attributes(inner, attributes)
        bound.append(a)
    kept = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in bound]
    del node.attribute[:]
    node.attribute.extend(kept)
