"""Patterns: descriptions of expressions, made of each other like the expressions that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import ir, operators
from weft.relay.op import get

__all__ = [
    "AltPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DominatorPattern",
    "ExprPattern",
    "FunctionPattern",
    "IfPattern",
    "LetPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "VarPattern",
    "WildcardPattern",
    "dominates",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "is_constant",
    "is_expr",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "wildcard",
]


def _called(op: str, *args: DFPattern) -> CallPattern:
    return is_op(op)(*args)


class DFPattern:
    """A pattern. It is equal only to itself: where it occurs twice, both must match the same expression."""

    _parts: tuple[str, ...] = ()  # attributes that are patterns, sequences of them, or None for any

    def __call__(self, *args: Any) -> CallPattern:
        """Match a call of what this matches; ``pattern(None)`` with any arguments."""
        return CallPattern(self, None if len(args) == 1 and args[0] is None else args)

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    __add__ = operators.operator(_called, "add")
    __sub__ = operators.operator(_called, "subtract")
    __mul__ = operators.operator(_called, "multiply")
    __truediv__ = operators.operator(_called, "divide")

    def parts(self) -> list[DFPattern]:
        """List the patterns that this one is made of, in the order in which they are matched."""
        found: list[DFPattern] = []
        for name in self._parts:
            value = getattr(self, name)
            found += [value] if isinstance(value, DFPattern) else value or ()
        return found

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """Match what this does, with these attributes."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: ir.Type) -> TypePattern:
        """Match what this does, of this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match what this does, of this data type."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Match what this does, of this shape."""
        return ShapePattern(self, shape)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this, or what a constructor makes of it: ``conv.optional(is_op("nn.relu"))``."""
        return AltPattern(self, option_constructor(self))

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match this where all ways from `parent` to it are of `path`."""
        return DominatorPattern(parent, path or wildcard(), self)


class ExprPattern(DFPattern):
    """One expression, up to the names of what it binds."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr


class VarPattern(DFPattern):
    """A variable, of a name where one is given."""

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint


class ConstantPattern(DFPattern):
    """A constant."""


class WildcardPattern(DFPattern):
    """Anything."""


class CallPattern(DFPattern):
    """A call; `args` of None are any."""

    _parts = ("op", "args")

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = op
        self.args = None if args is None else tuple(args)


class FunctionPattern(DFPattern):
    """A function; `params` of None are any."""

    _parts = ("params", "body")

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params = None if params is None else tuple(params)
        self.body = body


class IfPattern(DFPattern):
    """A choice."""

    _parts = ("cond", "true_branch", "false_branch")

    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond, self.true_branch, self.false_branch = cond, true_branch, false_branch


class LetPattern(DFPattern):
    """A binding and what it is for."""

    _parts = ("var", "value", "body")

    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var, self.value, self.body = var, value, body


class TuplePattern(DFPattern):
    """A tuple; `fields` of None are any."""

    _parts = ("fields",)

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = None if fields is None else tuple(fields)

    def __getitem__(self, index: int) -> DFPattern:
        if self.fields is None or not -len(self.fields) <= index < len(self.fields):
            raise IndexError(f"a pattern of a tuple has no field {index}")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields or ())


class TupleGetItemPattern(DFPattern):
    """An item of a tuple; an `index` of None or -1 is any."""

    _parts = ("tuple",)

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_value
        self.index = -1 if index is None else index


class AltPattern(DFPattern):
    """One pattern or another."""

    _parts = ("left", "right")

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = left, right


class _Restricted(DFPattern):
    """What a pattern matches, and something more."""

    _parts = ("pattern",)

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = pattern


class TypePattern(_Restricted):
    """What a pattern matches, of a type."""

    def __init__(self, pattern: DFPattern, ttype: ir.Type) -> None:
        super().__init__(pattern)
        self.type = ttype


class DataTypePattern(_Restricted):
    """What a pattern matches, of a data type."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = dtype


class ShapePattern(_Restricted):
    """What a pattern matches, of a shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        super().__init__(pattern)
        self.dims = ir.as_shape(shape)
        self.shape = list(shape)


class AttrPattern(_Restricted):
    """What a pattern matches, with attributes."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any] | ir.Attrs) -> None:
        super().__init__(pattern)
        self.attrs: dict[str, Any] = dict(attrs.items) if isinstance(attrs, ir.Attrs) else dict(attrs)


class DominatorPattern(DFPattern):
    """A child that a parent dominates, with what lies on all ways between."""

    _parts = ("parent", "path", "child")

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent, self.path, self.child = parent, path, child


def is_var(name: str = "") -> DFPattern:
    """Match a variable, of a name where one is given."""
    return VarPattern(name)


def is_constant() -> DFPattern:
    """Match a constant."""
    return ConstantPattern()


def is_expr(expr: ir.Expr) -> DFPattern:
    """Match one expression."""
    return ExprPattern(expr)


def is_op(op_name: str) -> DFPattern:
    """Match an operator, which there must be; called, its calls: ``is_op("add")(wildcard(), is_constant())``."""
    return ExprPattern(ir.Op.get(get(op_name).name))


def is_tuple(fields: Sequence[DFPattern] | None) -> DFPattern:
    """Match a tuple; None for any fields."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """Match an item of a tuple; None for any place."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> DFPattern:
    """Match a choice."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> DFPattern:
    """Match a binding."""
    return LetPattern(var, value, body)


def wildcard() -> DFPattern:
    """Match anything."""
    return WildcardPattern()


def has_type(ttype: ir.Type, pattern: DFPattern | None = None) -> DFPattern:
    """Match what is of a type."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DFPattern:
    """Match what is of a data type."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> DFPattern:
    """Match what is of a shape."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> DFPattern:
    """Match what has attributes."""
    return AttrPattern(pattern or wildcard(), attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """Match a child that a parent dominates."""
    return DominatorPattern(parent, path, child)
