"""Maps whose keys and values may be Python objects, such as the nodes of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm_ffi

from weft.ffi.function import convert_argument, duplicate, register_wrapper, wrap


class Map(tvm_ffi.Map[Any, Any]):
    """A map of the runtime in which Python objects are found as what they are.

    The native map holds each in a box of its own, so that equal keys in two boxes are different ones to it. What it
    holds is therefore looked up in a dictionary, which is made at the first use.

    Parameters
    ----------
    items : mapping
        What it maps; keys that are no numbers or strings are compared as Python compares them.
    """

    __slots__ = ("_items",)
    _items: dict[Any, Any]

    def __init__(self, items: Mapping[Any, Any]) -> None:
        super().__init__({convert_argument(k): convert_argument(v) for k, v in items.items()})

    @staticmethod
    def of(native: tvm_ffi.Map[Any, Any]) -> Map:
        """The same map, as this class."""
        if isinstance(native, Map):
            return native
        out = Map.__new__(Map)
        out.__move_handle_from__(duplicate(native))
        return out

    def _dict(self) -> dict[Any, Any]:
        try:
            return self._items
        except AttributeError:
            self._items = {wrap(k): wrap(v) for k, v in tvm_ffi.Map.items(self)}
            return self._items

    def __getitem__(self, key: Any) -> Any:
        return self._dict()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._dict()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dict())

    def keys(self) -> Any:
        """The keys."""
        return self._dict().keys()

    def values(self) -> Any:
        """The values."""
        return self._dict().values()

    def items(self) -> Any:
        """Pairs of keys and values."""
        return self._dict().items()

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self._dict().get(key, default)

    def __eq__(self, other: object) -> bool:
        return self._dict() == dict(other.items()) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return self.__chandle__()

    def __repr__(self) -> str:
        return repr(self._dict())


register_wrapper(tvm_ffi.Map, Map.of)
