"""Workloads by key: a function's name with its arguments, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from weft import error, te
from weft.auto_scheduler.workload_key import get_func_name
from weft.tune.front_end import deserialize_args, serialize_args

WORKLOAD_FUNC_REGISTRY: dict[str, Any] = {}
"""By name, the function that makes the tensors; by key, tensors that were registered themselves."""


def register_workload(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Register a function that returns the tensors of a computation, its inputs and outputs.

    Use it as a decorator, with or without a name.
    """
    if callable(func_name):
        return register_workload(get_func_name(func_name), func_name, override)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in WORKLOAD_FUNC_REGISTRY and not override:
            raise error.InvalidArgument(f"a workload '{func_name}' is registered already", help="pass override=True")
        WORKLOAD_FUNC_REGISTRY[func_name] = function
        return function

    return register(f) if f is not None else register


def register_workload_tensors(workload_key: str, tensors: Sequence[te.Tensor], override: bool = True) -> str:
    """Register tensors under a key, and return it."""
    if workload_key in WORKLOAD_FUNC_REGISTRY and not override:
        raise error.InvalidArgument(f"a workload '{workload_key}' is registered already", help="pass override=True")
    WORKLOAD_FUNC_REGISTRY[workload_key] = list(tensors)
    return workload_key


def workload_func_name(func: str | Callable[..., Any]) -> str:
    """Return the name under which a workload's function is registered."""
    if isinstance(func, str):
        return func
    names = [name for name, known in WORKLOAD_FUNC_REGISTRY.items() if known is func]
    return names[0] if names else get_func_name(func)


def make_workload_key(func: str | Callable[..., Any], args: Sequence[Any]) -> str:
    """Name a workload: a registered function, or its name, with arguments.

    Examples
    --------
    >>> make_workload_key("matmul", (128, 128, "float32"))
    '["matmul", 128, 128, "float32"]'
    """
    name = workload_func_name(func)
    try:
        return json.dumps([name, *serialize_args(tuple(args))])
    except TypeError as e:
        raise error.InvalidArgument(
            "the key of a workload is JSON", expected="numbers, strings, tensors", found=str(e)
        ) from e


def workload_key_to_tensors(workload_key: str) -> list[te.Tensor]:
    """Make the tensors of a workload."""
    if isinstance(WORKLOAD_FUNC_REGISTRY.get(workload_key), list):
        return WORKLOAD_FUNC_REGISTRY[workload_key]
    name, args = _parts(workload_key)
    return list(WORKLOAD_FUNC_REGISTRY[name](*deserialize_args(args)))


def _parts(workload_key: str) -> tuple[str, list[Any]]:
    try:
        name, *args = json.loads(workload_key)
    except ValueError as e:
        raise error.InvalidArgument("not the key of a workload", expected="a JSON list", found=workload_key) from e
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise error.InvalidArgument(f"there is no workload '{name}'", help="register_workload its function first")
    return name, args


def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Any]:
    """Return what is registered for a key or a name, for another process; ``pickle`` takes it."""
    name = workload_key if workload_key in WORKLOAD_FUNC_REGISTRY else _parts(workload_key)[0]
    return name, WORKLOAD_FUNC_REGISTRY[name]


def deserialize_workload_registry_entry(data: tuple[str, Any]) -> None:
    """Register what :func:`serialize_workload_registry_entry` returned, unless there is one of the name."""
    WORKLOAD_FUNC_REGISTRY.setdefault(*data)
