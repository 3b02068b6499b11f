"""Workloads by key: a function's name with its arguments, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.error import InvalidArgument
from weft.ir import FloatImm, IntImm, StringImm

__all__ = [
    "WORKLOAD_FUNC_REGISTRY", "deserialize_args", "make_workload_key", "register_workload",
    "register_workload_tensors", "serialize_args", "workload_func_name", "workload_key_to_tensors",
]  # fmt: skip

WORKLOAD_FUNC_REGISTRY: dict[str, Any] = {}
"""By name, the function that makes the tensors; by key, tensors that were registered themselves."""


def register_workload(func_name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function that returns the tensors of a computation, its inputs and outputs.

    Use it as a decorator, with or without a name.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in WORKLOAD_FUNC_REGISTRY and not override:
            raise InvalidArgument(f"a workload '{func_name}' is registered already", help="pass override=True")
        WORKLOAD_FUNC_REGISTRY[func_name] = function
        return function

    return register(f) if f is not None else register


def register_workload_tensors(workload_key: str, tensors: Sequence[te.Tensor], override: bool = True) -> str:
    """Register tensors under a key, and return it."""
    if workload_key in WORKLOAD_FUNC_REGISTRY and not override:
        raise InvalidArgument(f"a workload '{workload_key}' is registered already", help="pass override=True")
    WORKLOAD_FUNC_REGISTRY[workload_key] = list(tensors)
    return workload_key


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Make arguments strings and numbers: tensors become ``("TENSOR", shape, dtype)``."""
    return tuple(_plain(a) for a in args)


def _plain(value: Any) -> Any:
    if isinstance(value, te.Tensor):
        return ("TENSOR", tuple(_plain(d) for d in value.shape), value.dtype)
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Sequence):
        return tuple(_plain(v) for v in value)
    raise InvalidArgument("an argument of a workload is neither a number, a string nor a tensor", found=repr(value))


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Make placeholders of what stands for tensors."""
    return [
        te.placeholder(a[1], dtype=a[2]) if isinstance(a, (list, tuple)) and a and a[0] == "TENSOR" else a for a in args
    ]


def workload_func_name(func: Any) -> str:
    """Return the name under which a workload's function is registered."""
    if isinstance(func, str):
        return func
    names = [name for name, known in WORKLOAD_FUNC_REGISTRY.items() if known is func]
    return names[0] if names else func.__name__


def make_workload_key(func: Any, args: Sequence[Any]) -> str:
    """Name a workload: a registered function, or its name, with arguments.

    Examples
    --------
    >>> make_workload_key("matmul", (128, 128, "float32"))
    '["matmul", 128, 128, "float32"]'
    """
    name = workload_func_name(func)
    return json.dumps([name, *serialize_args(tuple(args))])


def workload_key_to_tensors(workload_key: str) -> list[te.Tensor]:
    """Make the tensors of a workload."""
    if isinstance(WORKLOAD_FUNC_REGISTRY.get(workload_key), list):
        return WORKLOAD_FUNC_REGISTRY[workload_key]
    try:
        name, *args = json.loads(workload_key)
    except ValueError as e:
        raise InvalidArgument("not the key of a workload", expected="a JSON list", found=workload_key) from e
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise InvalidArgument(f"there is no workload '{name}'", help="register_workload its function first")
    return list(WORKLOAD_FUNC_REGISTRY[name](*deserialize_args(args)))
