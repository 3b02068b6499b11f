"""Converters of PyTorch's operators, by the name of the overload: ``aten.add.Tensor``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.common import pairs
from weft.registry import Registry

Condition = Callable[[Sequence[Any]], bool]
"""Of a call's arguments: whether a converter takes it; PyTorch takes other calls apart."""

_CONVERTERS: Registry[Callable[..., Any]] = Registry(once=True)
_CONDITIONS: dict[str, Condition] = {}
_DRAWS: dict[str, Condition] = {}

_ALIASES = pairs("""_is_all_true:all _is_any_true:any absolute:abs clip:clamp concat:cat divide:div greater:gt
    greater_equal:ge less:lt less_equal:le multiply:mul negative:neg not_equal:ne subtract:sub true_divide:div
    __and__:bitwise_and __or__:bitwise_or __xor__:bitwise_xor __lshift__:bitwise_left_shift
    __rshift__:bitwise_right_shift""")
"""Names that PyTorch has for operators of other names, of which its own decompositions leave some in a graph."""


def name_of(target: object) -> str:
    """An overload's name, with the name that its operator's converter goes by."""
    library, _, rest = str(target).partition(".")
    operator, *overload = rest.split(".")
    return ".".join((library, _ALIASES.get(operator, operator), *overload))


def aten(*names: str, when: Condition | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter for operators of ATen: ``add.Tensor``; a name alone stands for all its overloads."""
    return operators(*(f"aten.{name}" for name in names), when=when)


def operators(*names: str, when: Condition | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter for operators of any library, named with it: ``torchvision.nms``."""
    _CONDITIONS.update(dict.fromkeys(names, when) if when else {})
    return _CONVERTERS.on(*names)


def draws(*names: str, when: Condition = lambda args: True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter for operators of ATen that draw random numbers, or do for some arguments."""
    _DRAWS.update(dict.fromkeys((f"aten.{name}" for name in names), when))
    return aten(*names)


def is_drawn(target: object, args: Sequence[Any] = ()) -> bool:
    """Whether a call of an overload draws random numbers; without arguments, whether every call does."""
    name = str(target).rpartition(".")[0]
    return name in _DRAWS and _DRAWS[name](args)


def find(target: object, args: Sequence[Any] | None = None) -> Callable[..., Any] | None:
    """The converter of an overload, by its own name, else by that of its operator; none for arguments it leaves."""
    name = name_of(target)
    if args is not None and name in _CONDITIONS and not _CONDITIONS[name](args):
        return None
    return _CONVERTERS.get(name) or _CONVERTERS.get(name.rpartition(".")[0])


def supported_operators() -> list[str]:
    """Names of the operators that are converted, some with their overload."""
    return sorted(_CONVERTERS)
