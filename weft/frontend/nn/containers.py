"""Lists and dictionaries of modules and of parameters, whose elements the exporter finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from weft.error import InvalidArgument
from weft.frontend.nn.module import Module
from weft.frontend.nn.parameter import Parameter
from weft.spelling import also_called

E = TypeVar("E")


def _checked(container: Any, value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise InvalidArgument(
            f"a {type(container).__name__} holds nn.{kind.__name__} objects", found=type(value).__name__
        )
    return value


class _List(Module, Generic[E]):
    """A list whose elements are called "0", "1" and so on."""

    _kind: type[Any]

    @also_called(modules="elements", params="elements")
    def __init__(self, elements: Iterable[E] | None = None) -> None:
        self._elements: list[E] = [_checked(self, e, self._kind) for e in elements or ()]

    def members(self) -> Iterator[tuple[str, Any]]:
        """List the elements by their positions."""
        for i, element in enumerate(self._elements):
            yield str(i), element

    def replace_member(self, name: str, value: Any) -> None:
        """Replace the element at a position."""
        self[int(name)] = value

    def __iter__(self) -> Iterator[E]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: int) -> E:
        return self._elements[index]

    def __setitem__(self, index: int, value: E) -> None:
        self._elements[index] = _checked(self, value, self._kind)

    @also_called(module="element", param="element")
    def append(self, element: E) -> None:
        """Add an element at the end."""
        self._elements.append(_checked(self, element, self._kind))

    @also_called(modules="elements", params="elements")
    def extend(self, elements: Iterable[E]) -> None:
        """Add elements at the end."""
        for element in elements:
            self.append(element)


class _Dict(Module, Generic[E]):
    """A dictionary, by names."""

    _kind: type[Any]

    @also_called(modules="elements", params="elements")
    def __init__(self, elements: Mapping[str, E] | None = None) -> None:
        self._elements: dict[str, E] = {}
        self.update(elements or {})

    def members(self) -> Iterator[tuple[str, Any]]:
        """List the elements by their keys."""
        yield from self._elements.items()

    def replace_member(self, name: str, value: Any) -> None:
        """Replace the element of a key."""
        self[name] = value

    def __len__(self) -> int:
        return len(self._elements)

    def __contains__(self, key: str) -> bool:
        return key in self._elements

    def __getitem__(self, key: str) -> E:
        return self._elements[key]

    def __setitem__(self, key: str, value: E) -> None:
        name: Any = key
        if not isinstance(name, str):
            raise InvalidArgument(f"the keys of a {type(self).__name__} are names", found=repr(key))
        self._elements[key] = _checked(self, value, self._kind)

    def keys(self) -> Iterable[str]:
        """List the keys."""
        return self._elements.keys()

    def values(self) -> Iterable[E]:
        """List the elements."""
        return self._elements.values()

    def items(self) -> Iterable[tuple[str, E]]:
        """List keys and elements."""
        return self._elements.items()

    def get(self, key: str, default: E | None = None) -> E | None:
        """Return the element of a key, or `default`."""
        return self._elements.get(key, default)

    @also_called(modules="elements", params="elements")
    def update(self, elements: Mapping[str, E]) -> None:
        """Set the elements of several keys."""
        for key, value in elements.items():
            self[key] = value

    def clear(self) -> None:
        """Drop all elements."""
        self._elements.clear()

    def pop(self, key: str) -> E:
        """Drop the element of a key and return it."""
        return self._elements.pop(key)


class ModuleList(_List[Module]):
    """A list of modules; called, it applies one after another."""

    _kind = Module

    def forward(self, x: Any) -> Any:
        """Apply the modules one after another."""
        for module in self._elements:
            x = module(x)
        return x


class ModuleDict(_Dict[Module]):
    """A dictionary of modules; as in Apache TVM, iterating lists the modules, and not their names."""

    _kind = Module

    def __iter__(self) -> Iterator[Module]:
        return iter(self._elements.values())


class ParameterList(_List[Parameter]):
    """A list of parameters."""

    _kind = Parameter


class ParameterDict(_Dict[Parameter]):
    """A dictionary of parameters; iterating lists their names."""

    _kind = Parameter

    def __iter__(self) -> Iterator[str]:
        return iter(self._elements)
