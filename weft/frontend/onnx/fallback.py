"""Operators that Weft does not have, run on the host: by a user's function, or by ONNX's reference implementation."""

from __future__ import annotations

import base64
import warnings
from typing import Any

from weft.error import InvalidArgument, UnsupportedOperator, require
from weft.frontend.onnx.function_body import type_proto
from weft.frontend.onnx.inputs import kind_of
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.schema import attribute_value, normal_domain
from weft.frontend.onnx.value import Value
from weft.runtime.host import Kind
from weft.runtime.host.reference import find_operator

_SIMPLE = (int, float, str)


def check_fallback(fallback: str | None) -> None:
    """Refuse what is no way to run missing operators.

    Raises
    ------
    InvalidArgument
        When it is neither None nor ``"reference"``.
    """
    if fallback not in (None, "reference"):
        raise InvalidArgument("an unknown fallback", expected="None or 'reference'", found=repr(fallback))


def can_fall_back(domain: str, op_type: str, opset: int | None) -> bool:
    """Whether the host can run an operator."""
    if find_operator(domain, op_type) is not None:
        return True
    if opset is None:
        return False
    try:
        require("onnx.reference.ops", extra="onnx").load_op(domain, op_type, opset)
    except Exception:  # what it raises differs between versions; it says that there is none
        return False
    return True


def run_on_host(node: Node) -> list[Value]:
    """Call an operator of the host in a node's place, and warn that it will be slow.

    Raises
    ------
    UnsupportedOperator
        When the types of its outputs are not known, or it has subgraphs.
    """
    domain = normal_domain(node.proto.domain)
    by = "a registered function" if find_operator(domain, node.op_type) else "ONNX's reference implementation"
    kinds = _kinds(node)
    for kind in (*(v.full_kind for v in node.inputs if v is not None), *kinds):
        if kind.form != "tensor" or not (kind.is_plain or kind.dtype == "string"):
            node.unsupported(
                "the host runs operators on tensors of numbers, truth values and strings",
                found=f"{kind.form} {kind.dtype}",
            )
    attributes = {a.name: attribute_value(a) for a in node.proto.attribute}
    if find_operator(domain, node.op_type) and not all(
        isinstance(v, _SIMPLE) or (isinstance(v, list) and all(isinstance(x, _SIMPLE) for x in v))
        for v in attributes.values()
    ):
        node.unsupported("registered functions take attributes that are numbers, texts or lists of them")
    warnings.warn(f"{node.where}: Weft has no {node.op_type}; {by} runs it on the host", stacklevel=2)
    model = base64.b64encode(_model(node, domain).SerializeToString()).decode()
    simple = attributes if find_operator(domain, node.op_type) else {}
    given = [v for v in node.inputs if v is not None]
    return node.host("Reference", given, kinds, model=model, domain=domain, op_type=node.op_type, attributes=simple)


def _model(node: Node, domain: str) -> Any:
    """Make a model of the node alone, whose inputs are called ``x0``, ``x1``..."""
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(node.inputs)]
    outputs = [f"y{i}" if name else "" for i, name in enumerate(node.proto.output)]
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:], proto.output[:]
    proto.input.extend(names)
    proto.output.extend(outputs)
    infos = [onnx.helper.make_value_info(n, type_proto(v)) for n, v in zip(names, node.inputs, strict=True) if n]
    outs = [onnx.helper.make_empty_tensor_value_info(n) for n in outputs if n]
    graph = onnx.helper.make_graph([proto], "one", infos, outs)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in {**node.graph.scope.opsets, domain: node.opset or 1}.items()]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def _kinds(node: Node) -> list[Kind]:
    """Return the kinds of a node's outputs: as the model declares them, else as ONNX infers them."""
    names = [name for name in node.proto.output if name]
    declared = node.graph.declared
    if not all(name in declared for name in names):
        try:
            inferred = onnx.shape_inference.infer_shapes(_model(node, normal_domain(node.proto.domain)))
        except Exception as e:  # of onnx's own kinds, which moved between versions
            raise UnsupportedOperator(
                f"{node.op_type}: its outputs have no types", where=node.where, found=str(e)
            ) from e
        found = {o.name: o.type for o in inferred.graph.output}
        made = [f"y{i}" for i, name in enumerate(node.proto.output) if name]
        types = [declared.get(name, found[own]) for name, own in zip(names, made, strict=True)]
    else:
        types = [declared[name] for name in names]
    if any(t.WhichOneof("value") is None or (t.HasField("tensor_type") and not t.tensor_type.elem_type) for t in types):
        node.unsupported("the types of its outputs are not known", help="add them to the graph's value_info")
    return [kind_of(t, f"output '{name}'") for t, name in zip(types, names, strict=True)]
