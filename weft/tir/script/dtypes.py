"""Data types of scripts: ``T.float32`` annotates, makes constants and variables, and converts."""

from typing import Any

from weft import ir


class DTypeMaker:
    """A data type: an annotation, a constant (``T.float32(1)``), a conversion, or a new variable (``T.int32()``)."""

    def __init__(self, dtype: str) -> None:
        self.dtype = ir.DataType(dtype)

    def __call__(self, value: Any = None, is_size_var: bool = False) -> ir.PrimExpr:
        """Return a variable of this type, or `value` as a constant of it or cast to it."""
        if value is None:
            return (ir.SizeVar if is_size_var else ir.Var)("", self.dtype)
        if isinstance(value, str):
            return ir.const(float(value), self.dtype)
        return ir.cast(self.dtype, value) if isinstance(value, ir.PrimExpr) else ir.exact_const(value, self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


class HandleMaker(DTypeMaker):
    """The type of pointers: an annotation, or a new variable (``T.handle("float32")``)."""

    def __call__(self, value: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> ir.PrimExpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a pointer; `value` is the data type that it points to."""
        if value is None:
            return ir.Var("", self.dtype)
        element = ir.PrimType(ir.DataType(getattr(value, "dtype", value)))
        return ir.Var("", ir.HandleType(ir.PointerType(element, storage_scope)))


DTypeLike = str | ir.PrimType | DTypeMaker
"""A data type: its name, or ``T.float32``."""
