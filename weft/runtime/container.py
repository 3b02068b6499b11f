"""Containers of the runtime, under TVM's names: values that cross the language border as one."""

from tvm_ffi import Array, Map, Shape
from tvm_ffi.core import String

ShapeTuple = Shape

__all__ = ["Array", "Map", "Shape", "ShapeTuple", "String"]
