"""Patterns of dataflow: trees of constraints that expressions are matched against."""

from __future__ import annotations

from typing import Any

from weft.ir import Attrs, Node, as_shape

__all__ = [
    "AndPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DtypePattern", "ExternFuncPattern",
    "GlobalVarPattern", "NotPattern", "OpPattern", "OrPattern", "ShapePattern", "TuplePattern", "TupleItemPattern",
    "VarPattern", "WildcardPattern", "is_call_dps_packed", "is_call_packed", "is_call_tir", "is_const", "is_gv",
    "is_op", "is_tuple", "is_tuple_get_item", "is_var", "wildcard",
]  # fmt: skip


class DFPattern(Node, abstract=True):
    """A pattern. One that occurs twice in a pattern matches the same expression in both places."""

    def __call__(self, *args: Any, varg_default_wildcard: bool = False) -> CallPattern:
        """Match a call of what this matches; further arguments are free with `varg_default_wildcard`."""
        return CallPattern(self, tuple(args), varg_default_wildcard)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("relax.divide")(self, other)

    def __getitem__(self, index: int) -> TupleItemPattern:
        return TupleItemPattern(self, index)

    def has_attr(self, attrs: dict[str, Any]) -> AttrPattern:
        """Match what this matches, if it is a call or function with these attributes."""
        return AttrPattern(self, Attrs.of(attrs))

    def has_dtype(self, dtype: str) -> DtypePattern:
        """Match what this matches, if it is a tensor of this data type."""
        return DtypePattern(self, dtype)

    def has_shape(self, shape: Any) -> ShapePattern:
        """Match what this matches, if it is a tensor of provably this shape."""
        return ShapePattern(self, as_shape(tuple(shape)))

    def optional(self, option: Any) -> OrPattern:
        """Match this, or ``option(this)``."""
        return OrPattern(option(self), self)

    def dup(self) -> DFPattern:
        """Return a copy that matches alike, and may match another expression."""
        return type(self)(**{f: getattr(self, f) for f in self.__struct_fields__})


class WildcardPattern(DFPattern):
    """Anything."""


class OpPattern(DFPattern):
    """An operator, by its name."""

    name: str


class CallPattern(DFPattern):
    """A call."""

    op: DFPattern
    args: tuple[DFPattern, ...]
    more: bool = False


class VarPattern(DFPattern):
    """A variable, of this name unless that is empty."""

    name: str = ""


class GlobalVarPattern(DFPattern):
    """A function of the module, of this name unless that is empty."""

    name: str = ""


class ExternFuncPattern(DFPattern):
    """A packed function, by its global name."""

    name: str


class ConstantPattern(DFPattern):
    """A tensor constant."""


class TuplePattern(DFPattern):
    """A tuple whose elements match."""

    fields: tuple[DFPattern, ...]


class TupleItemPattern(DFPattern):
    """An element of a tuple; -1 stands for any."""

    tuple_value: DFPattern
    index: int = -1


class OrPattern(DFPattern):
    """What one of two patterns matches, the first being asked first."""

    left: DFPattern
    right: DFPattern


class AndPattern(DFPattern):
    """What both patterns match."""

    left: DFPattern
    right: DFPattern


class NotPattern(DFPattern):
    """What the pattern does not match."""

    reject: DFPattern


class AttrPattern(DFPattern):
    """What the pattern matches and has these attributes."""

    pattern: DFPattern
    attrs: Attrs


class DtypePattern(DFPattern):
    """What the pattern matches and is of this data type."""

    pattern: DFPattern
    dtype: str


class ShapePattern(DFPattern):
    """What the pattern matches and is of this shape."""

    pattern: DFPattern
    shape: tuple[Any, ...]


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


def is_op(op_name: str) -> OpPattern:
    """Match an operator by its name, ``relax.add``."""
    return OpPattern(op_name if op_name.startswith("relax.") else "relax." + op_name)


def is_var(name: str = "") -> VarPattern:
    """Match a variable."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """Match a function of the module."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """Match a tensor constant."""
    return ConstantPattern()


def is_tuple(fields: Any) -> TuplePattern:
    """Match a tuple."""
    return TuplePattern(tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleItemPattern:
    """Match an element of a tuple, at any index if none is given."""
    return TupleItemPattern(tuple_value, -1 if index is None else index)


def _in_tuple(args: Any) -> DFPattern:
    return wildcard() if args is None else TuplePattern(tuple(args)) if isinstance(args, (list, tuple)) else args


def is_call_tir(func_name: str, args: Any = None) -> CallPattern:
    """Match ``call_tir`` of a function of the module."""
    return CallPattern(is_op("relax.call_tir"), (GlobalVarPattern(func_name), _in_tuple(args)), True)


def is_call_dps_packed(func_name: str, args: Any = None) -> CallPattern:
    """Match ``call_dps_packed`` of a packed function."""
    return CallPattern(is_op("relax.call_dps_packed"), (ExternFuncPattern(func_name), _in_tuple(args)), True)


def is_call_packed(func_name: str, args: Any = None) -> CallPattern:
    """Match a call of a packed function."""
    return CallPattern(ExternFuncPattern(func_name), tuple(args or ()), args is None)
