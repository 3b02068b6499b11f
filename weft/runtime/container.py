"""Containers of the runtime, under TVM's names: values that cross the language border as one."""

from tvm_ffi import Array, Map, Shape
from tvm_ffi.core import String

from weft.runtime.relay_vm import ADT, tuple_object

ShapeTuple = Shape

__all__ = ["ADT", "Array", "Map", "Shape", "ShapeTuple", "String", "tuple_object"]
