"""Converters of PyTorch's operators, by the name of the overload: ``aten.add.Tensor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_CONVERTERS: dict[str, Callable[..., Any]] = {}


def aten(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter for operators of ATen: ``add.Tensor``; a name alone stands for all its overloads."""
    return operators(*(f"aten.{name}" for name in names))


def operators(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter for operators of any library, named with it: ``torchvision.nms``."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in _CONVERTERS, name
            _CONVERTERS[name] = fn
        return fn

    return register


def find(target: Any) -> Callable[..., Any] | None:
    """The converter of an overload, by its own name, else by that of its operator."""
    name = str(target)
    return _CONVERTERS.get(name) or _CONVERTERS.get(name.rpartition(".")[0])


def supported_operators() -> list[str]:
    """Names of the operators that are converted, some with their overload."""
    return sorted(_CONVERTERS)
