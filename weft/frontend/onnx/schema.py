"""ONNX operator schemas as plain data: what the importer checks each node against before converting it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft.frontend.onnx.model import ONNX_TYPES, onnx
from weft.runtime.host import Kind

_A = onnx.AttributeProto
NEWEST_OPSET: int = onnx.defs.onnx_opset_version()
ATTRIBUTE_KINDS = {
    code: name.lower()
    for name, code in _A.AttributeType.items()
    if name not in ("UNDEFINED", "SPARSE_TENSORS", "TYPE_PROTOS")
}
_SHORT = {_A.FLOAT: "f", _A.INT: "i", _A.STRING: "s", _A.TENSOR: "t", _A.GRAPH: "g", _A.TYPE_PROTO: "tp"}
_FIELDS = ATTRIBUTE_KINDS | _SHORT
_EARLIER = {"LayerNormalization": 17, "MeanVarianceNormalization": 9, "ThresholdedRelu": 10}
"""Operators that models had, and ONNX Runtime takes, before the opset of their first schema."""
_NAMES = {f"tensor({known})": name for name, known in ONNX_TYPES.items()}


def type_text(kind: Kind) -> str:
    """Return what `Formal.types` has for a kind: Weft's name of an element type, or ONNX's of what is no tensor."""
    return kind.dtype if kind.form == "tensor" else _onnx_text(kind)


def _onnx_text(kind: Kind) -> str:
    if kind.form == "tensor":
        return f"tensor({ONNX_TYPES[kind.dtype]})"
    inner = _onnx_text(kind.of) if kind.of is not None else ""
    if kind.form == "map":
        return f"map({ONNX_TYPES[kind.dtype]},{inner})"
    return f"{'seq' if kind.form == 'sequence' else 'optional'}({inner})"


@dataclass(frozen=True)
class Formal:
    """One input of an operator.

    ``types`` are the element types that it may have, by Weft's names; inputs of one ``variable`` have one of them.
    """

    name: str
    required: bool
    types: frozenset[str]
    variable: str


@dataclass(frozen=True)
class Schema:
    """What one version of an operator takes.

    ``attributes`` maps each attribute to its kind (``"ints"``) and whether it is required.
    """

    since_version: int
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    inputs: tuple[Formal, ...]
    outputs: tuple[str, ...]
    """Of each output, the variable that stands for its type."""
    attributes: dict[str, tuple[str, bool]]
    has_body: bool
    raw: Any


def normal_domain(domain: str) -> str:
    """Return the domain with the default one spelled as the empty string."""
    return "" if domain == "ai.onnx" else domain


@lru_cache(maxsize=4096)
def find_schema(domain: str, op_type: str, opset: int) -> Schema | None:
    """Return the schema of an operator in an opset, or None where there is none."""
    first = _EARLIER.get(op_type, 0) if not domain else 0
    try:
        raw = onnx.defs.get_schema(op_type, max(opset, first), domain)
    except Exception:  # onnx raises its own SchemaError, whose module moved between versions
        return None
    attributes = {a.name: (str(a.type).rsplit(".", 1)[-1].lower(), bool(a.required)) for a in raw.attributes.values()}
    if opset < first == 9:
        attributes = {name: ("int", False) for name in ("across_channels", "normalize_variance")}
    has_body = bool(raw.has_function or raw.has_context_dependent_function)  # type: ignore[attr-defined]
    return Schema(
        raw.since_version,
        raw.min_input,
        raw.max_input,
        raw.min_output,
        raw.max_output,
        tuple(_formal(i) for i in raw.inputs),
        tuple(o.type_str for o in raw.outputs),
        attributes,
        has_body,
        raw,
    )


def _formal(i: Any) -> Formal:
    types = frozenset(_NAMES.get(t, re.sub(r", *(\w+)\)", r",tensor(\1))", t)) for t in i.types)
    required = i.option != onnx.defs.OpSchema.FormalParameterOption.Optional
    return Formal(i.name, required, types, i.type_str if i.is_homogeneous else "")


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """Return an attribute's value by its declared kind: bytes as text, repeated fields as lists; protos as they are."""
    value = getattr(attribute, _FIELDS[attribute.type])
    if attribute.type == _A.STRING:
        return value.decode("utf-8", "surrogateescape")
    if attribute.type == _A.STRINGS:
        return [s.decode("utf-8", "surrogateescape") for s in value]
    if attribute.type in (_A.FLOATS, _A.INTS, _A.GRAPHS, _A.TENSORS):
        return list(value)
    return value
