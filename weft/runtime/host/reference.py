"""Operators that Weft does not have, run by ONNX's reference implementation or by a function of the user's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from weft.error import InvalidArgument, require
from weft.runtime.host.registry import host_operator

_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}


def register_operator(domain: str, op_type: str, fn: Callable[..., Any]) -> None:
    """Run an ONNX operator that Weft does not have by a Python function, where models are imported with a fallback.

    Parameters
    ----------
    domain, op_type : str
        The operator; the default domain is the empty text.
    fn : callable
        Takes arrays, and attributes by name; returns an array or a tuple of them.
    """
    if not callable(fn):
        raise InvalidArgument(f"what runs {op_type} must be a function", found=type(fn).__name__)
    _FUNCTIONS[domain, op_type] = fn


def find_operator(domain: str, op_type: str) -> Callable[..., Any] | None:
    """Return the function that somebody registered for an operator, or None."""
    return _FUNCTIONS.get((domain, op_type))


@lru_cache(maxsize=256)
def _evaluator(model: str) -> Any:
    require("onnx", extra="onnx")
    reference = require("onnx.reference", extra="onnx")
    onnx = require("onnx", extra="onnx")
    return reference.ReferenceEvaluator(onnx.ModelProto.FromString(base64.b64decode(model)))


@host_operator("Reference")
@np.errstate(all="ignore")
def _reference(*args: Any, model: str, domain: str, op_type: str, attributes: dict[str, Any]) -> Any:
    """Run a model of one node, whose inputs are called ``x0``, ``x1``..."""
    fn = find_operator(domain, op_type)
    if fn is not None:
        found = fn(*args, **attributes)
        return tuple(map(np.array, found if isinstance(found, tuple) else (found,)))
    evaluator = _evaluator(model)
    feeds = dict(zip((i for i in evaluator.input_names if i), args, strict=True))
    return tuple(map(np.array, evaluator.run(None, feeds)))
