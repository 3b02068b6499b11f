"""The table of converters: which function turns which ONNX operator into Relax.

A converter gets a :class:`~weft.frontend.onnx.node.Node` and returns a Relax expression, a :class:`Value`, or a
sequence of them (None for an output that is not there). It handles every opset of its operator from 7 on, asking
``node.opset`` where they differ.
"""

from collections.abc import Callable
from typing import Any

Converter = Callable[[Any], Any]
_CONVERTERS: dict[tuple[str, str], Converter] = {}
_WITHOUT_SCHEMA: set[tuple[str, str]] = set()


def converter(*op_types: str, domain: str = "", without_schema: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated function for operators of one domain, of which ONNX may have no schema."""

    def register(fn: Converter) -> Converter:
        for op_type in op_types:
            assert (domain, op_type) not in _CONVERTERS, op_type
            _CONVERTERS[domain, op_type] = fn
            if without_schema:
                _WITHOUT_SCHEMA.add((domain, op_type))
        return fn

    return register


def find_converter(domain: str, op_type: str) -> Converter | None:
    """Return the converter of an operator, or None."""
    return _CONVERTERS.get((domain, op_type))


def has_no_schema(domain: str, op_type: str) -> bool:
    """Whether a converter is of an operator that ONNX has no schema of: it checks its nodes itself."""
    return (domain, op_type) in _WITHOUT_SCHEMA


def supported_operators(domain: str = "") -> list[str]:
    """List the operators of a domain that have a converter."""
    return sorted(op for d, op in _CONVERTERS if d == domain)
