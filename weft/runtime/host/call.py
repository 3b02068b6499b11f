"""The one packed function through which a program calls operators of the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.ffi import as_opaque, register_global_func
from weft.runtime.host.kind import numbers_of, texts_of
from weft.runtime.tensor import Tensor, tensor

__all__ = ["HOST_FUNCTION", "call_host", "host_operator", "host_operators"]

HOST_FUNCTION = "weft.host"
"""Called with a description, JSON of ``op``, ``attrs``, element types ``in`` and ``out``, and the operands."""
_OPERATORS: dict[str, Callable[..., Any]] = {}


def host_operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``fn(*arrays, **attrs)``, which returns an array, list or dict, or a tuple of such.

    Strings come and go as arrays of objects. What it keeps in a list it has to copy: memory of the machine is reused.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in _OPERATORS, name
        _OPERATORS[name] = fn
        return fn

    return register


def host_operators() -> list[str]:
    """List the operators of the host."""
    return sorted(_OPERATORS)


@lru_cache(maxsize=4096)
def _described(text: str) -> dict[str, Any]:
    return json.loads(text)


def call_host(text: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Call an operator on arrays, lists and dicts in the machine's form."""
    about = _described(text)
    fn = _OPERATORS.get(about["op"])
    if fn is None:
        raise InvalidArgument(f"the host has no operator '{about['op']}'", help="the model is of another version")
    given = [texts_of(a) if dtype == "string" else a for a, dtype in zip(args, about["in"], strict=True)]
    with np.errstate(all="ignore"):
        found = fn(*given, **about["attrs"])
    results = found if isinstance(found, tuple) else (found,)
    return tuple(numbers_of(r) if dtype == "string" else r for r, dtype in zip(results, about["out"], strict=True))


@register_global_func(HOST_FUNCTION, override=True)
def _host(text: str, *args: Any) -> Any:
    found = call_host(text, [a.numpy() if isinstance(a, Tensor) else a for a in args])
    results = [as_opaque(r) if isinstance(r, (list, dict)) else tensor(_contiguous(r)) for r in found]
    return results[0] if len(results) == 1 else tuple(results)


def _contiguous(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return np.ascontiguousarray(array).reshape(array.shape)
