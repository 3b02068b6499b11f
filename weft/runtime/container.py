"""Containers of the runtime, under TVM's names: values that cross the language border as one."""

from abc import ABC
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm_ffi import Array, Map, Shape
from tvm_ffi.core import String

from weft._aliases import names_of

if TYPE_CHECKING:
    from weft.runtime.relay_vm import ADT, tuple_object

__all__ = ["ADT", "Array", "Map", "Object", "Shape", "ShapeTuple", "String", "tuple_object"]

__getattr__ = names_of(__name__, dict.fromkeys(("ADT", "tuple_object"), "weft.runtime.relay_vm"))


class Object(ABC):  # noqa: B024 - others are registered as it
    """What ``isinstance`` of TVM's programs asks for: nodes, modules, targets, tensors and values of the FFI count."""


Object.register(tvm_ffi.core.CObject)


class ShapeTuple(Shape):
    """A shape as a value of its own, equal to any sequence of the same numbers."""

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (list, tuple)) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = Shape.__hash__

    def __reduce__(self) -> Any:
        return (ShapeTuple, (tuple(self),))
