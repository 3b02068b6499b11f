"""Scalar expressions: what shapes, loop bounds, indices and kernel bodies are written in (TVM's ``PrimExpr``).

Node classes, and constants. Python operators on expressions call the checked constructors of ``arithmetic``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from msgspec.structs import force_setattr

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.dtype import DataType, ScalableLanes, dtype_of, name_type, vector_of, with_lanes
from weft.ir.int_range import HALVES, MOST, beyond, check_integer, in_range, wrap
from weft.ir.node import NO_ATTRS, Attrs, Node, NodeMeta, SubclassTable
from weft.ir.op_attrs import Op

__all__ = [
    "EQ",
    "GE",
    "GT",
    "IS_EXPR",
    "IS_VAR",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "BinaryOp",
    "Broadcast",
    "CallIntrin",
    "Cast",
    "CmpOp",
    "Div",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "IntImm",
    "Let",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Op",
    "Or",
    "PrimExpr",
    "Ramp",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "Var",
    "as_expr",
    "as_int",
    "const",
    "int32",
    "int64",
    "is_const_int",
    "is_prim_expr",
    "is_prim_var",
    "lanes_from",
    "make_exprs",
    "vscale",
]


class PrimExpr(Node, abstract=True):
    """A scalar (or, with lanes, vector) expression. Every subclass has a ``dtype``."""

    _holds_no_statement: ClassVar[bool] = True  # which is where a search for some ends
    if TYPE_CHECKING:  # a field in some classes, computed from the operands in others

        def __getattr__(self, name: Literal["dtype"]) -> str: ...

        # the checked constructors of weft/ir/arithmetic.py, which puts them here
        def __add__(self, other: Any) -> PrimExpr: ...
        def __neg__(self) -> PrimExpr: ...
        def __eq__(self, other: Any) -> Any: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __add__
        __xor__ = __rxor__ = __lshift__ = __rshift__ = __lt__ = __le__ = __gt__ = __ge__ = __add__
        __ne__, __invert__ = __eq__, __neg__

        def equal(self, other: Any) -> PrimExpr: ...  # noqa: D102
        def asobject(self) -> PrimExpr: ...  # noqa: D102
        def astype(self, dtype: str) -> PrimExpr: ...  # noqa: D102

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise InvalidArgument(
            "the value of a scalar expression is not known while a program is being built",
            found=str(self),
            help="use tir.all / tir.any / tir.if_then_else instead of and / or / if",
        )


IS_EXPR = SubclassTable(PrimExpr)


_MAKE: Any = type(Node).__call__


def _data_type(of: Callable[[Any], str]) -> property:
    """Return the property ``dtype`` of a class whose operands say it."""
    return property(of, doc="The data type of the value.")


@dataclass_transform(frozen_default=True, eq_default=False)
class _VarMeta(NodeMeta):
    """Lets ``Var(name, ty="int64")`` say the data type by TVM's newer name."""

    def __call__(cls, name: str = "", dtype: Any = "int32", *, ty: Any = None, span: Any = None) -> Any:
        """Make a variable of a name and a data type."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("a variable has a name", expected="a text", found=repr(name))
        named = DataType(dtype if ty is None else ty) if ty is not None or not isinstance(dtype, str) else dtype
        return _MAKE(cls, name, named) if span is None else _MAKE(cls, name, named, span=span)  # keywords cost


class Var(PrimExpr, metaclass=_VarMeta):  # type: ignore[misc]
    """A scalar variable; two variables of the same name are different variables."""

    name: str
    dtype: str = "int32"

    __hash__ = object.__hash__


class SizeVar(Var):
    """A variable that is known to be at least zero, such as a symbolic dimension."""

    __hash__ = object.__hash__


IS_VAR = SubclassTable(Var)


class IntImm(PrimExpr):
    """An integer or bool constant; an InvalidArgument where its type does not hold it."""

    dtype: str
    value: int

    def __post_init__(self) -> None:
        half = HALVES.get(self.dtype, 0)
        if type(self.value) is not int or not -half <= self.value < half:
            check_integer(self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


class FloatImm(PrimExpr):
    """A floating-point constant; an InvalidArgument where its type does not hold it."""

    dtype: str
    value: float

    def __post_init__(self) -> None:
        if self.dtype.startswith(("int", "uint", "bool", "handle")):
            raise DTypeMismatch("a FloatImm is of a floating-point type", found=self.dtype)
        if type(self.value) is not float:
            if isinstance(self.value, str) or not hasattr(self.value, "__float__"):
                raise InvalidArgument("the value of a constant is a number", found=repr(self.value))
            try:
                force_setattr(self, "value", float(self.value))
            except OverflowError:
                raise beyond(self.dtype, self.value) from None
        if MOST.get(self.dtype, math.inf) < abs(self.value) < math.inf:
            raise beyond(self.dtype, self.value)

    def __float__(self) -> float:
        return self.value


class StringImm(PrimExpr):
    """A string constant, as an argument of intrinsics."""

    value: str

    dtype = _data_type(lambda e: "handle")


_NUMBERS: frozenset[Any] = frozenset((int, float, bool))


def _operands(node: Any) -> None:
    """Make an expression of an operand that is a number; the other one says its data type."""
    if type(node.b) in _NUMBERS or type(node.a) in _NUMBERS:
        make_exprs(node, getattr(node.a, "dtype", None) or getattr(node.b, "dtype", None), "a", "b")


class Cast(PrimExpr):
    """Convert `value` to `dtype`; float to integer truncates towards zero."""

    dtype: str
    value: PrimExpr

    def __post_init__(self) -> None:
        make_exprs(self, None, "value")
        name_type(self)


class BinaryOp(PrimExpr, abstract=True):
    """Two operands of the same data type."""

    a: PrimExpr
    b: PrimExpr

    __post_init__ = _operands

    @property
    def dtype(self) -> str:
        """The data type of the value: of a sum that goes deep, that of what stands first."""
        first: Any = self.a
        while isinstance(first, BinaryOp):
            first = first.a
        return first.dtype


class Add(BinaryOp):
    """``a + b``."""


class Sub(BinaryOp):
    """``a - b``."""


class Mul(BinaryOp):
    """``a * b``."""


class Div(BinaryOp):
    """``a / b``; integers round towards zero, as in C."""


class Mod(BinaryOp):
    """The remainder that goes with :class:`Div`."""


class FloorDiv(BinaryOp):
    """``a // b``, rounding down."""


class FloorMod(BinaryOp):
    """``a % b`` with the sign of `b`."""


class Min(BinaryOp):
    """The smaller of two; a NaN operand gives NaN."""


class Max(BinaryOp):
    """The larger of two; a NaN operand gives NaN."""


class CmpOp(PrimExpr, abstract=True):
    """A comparison of two operands of the same data type; lanes carry over to the bool."""

    a: PrimExpr
    b: PrimExpr

    __post_init__ = _operands

    dtype = _data_type(lambda e: with_lanes("bool", DataType(e.a.dtype).lanes))


class EQ(CmpOp):
    """``a == b``. Its truth value, asked by Python containers, is whether both sides are the same node."""

    def __bool__(self) -> bool:
        return self.a is self.b


class NE(CmpOp):
    """``a != b``."""

    def __bool__(self) -> bool:
        return self.a is not self.b


class LT(CmpOp):
    """``a < b``."""


class LE(CmpOp):
    """``a <= b``."""


class GT(CmpOp):
    """``a > b``."""


class GE(CmpOp):
    """``a >= b``."""


class And(CmpOp):
    """``a and b`` on bools."""


class Or(CmpOp):
    """``a or b`` on bools."""


class Not(PrimExpr):
    """``not a`` on a bool."""

    a: PrimExpr

    def __post_init__(self) -> None:
        make_exprs(self, "bool", "a")

    dtype = _data_type(lambda e: e.a.dtype)


def make_exprs(node: Node, dtype: str | None, *fields: str) -> None:
    """Make expressions of numbers in fields of a new node; those of a tuple, where the field holds one."""
    for f in fields:
        value = getattr(node, f)
        if IS_EXPR[type(value)]:
            continue
        made = tuple(as_expr(v, dtype) for v in value) if isinstance(value, (tuple, list)) else as_expr(value, dtype)
        force_setattr(node, f, made)


def _make_alike(node: Node, first: str, second: str) -> None:
    """Make expressions of numbers in two fields of a new node; the other one says the data type."""
    a, b = getattr(node, first), getattr(node, second)
    if not (IS_EXPR[type(a)] and IS_EXPR[type(b)]):
        make_exprs(node, getattr(a, "dtype", None) or getattr(b, "dtype", None), first, second)


def make_bound(node: Node) -> None:
    """Make an expression of the value of a binding, which has its variable's data type."""
    var: Var = getattr(node, "var")  # noqa: B009 - of Let and of LetStmt
    make_exprs(node, var.dtype, "value")
    if (found := getattr(node, "value").dtype) != var.dtype:  # noqa: B009
        raise DTypeMismatch(f"'{var.name}' is bound to a value of another type", expected=var.dtype, found=found)


class Select(PrimExpr):
    """One of two values, both of which are evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        _make_alike(self, "true_value", "false_value")
        make_exprs(self, "bool", "condition")

    dtype = _data_type(lambda e: e.true_value.dtype)


class Let(PrimExpr):
    """``body`` with ``var`` bound to ``value``."""

    var: Var
    value: PrimExpr
    body: PrimExpr

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        make_bound(self)
        make_exprs(self, None, "body")

    dtype = _data_type(lambda e: e.body.dtype)


def vscale() -> PrimExpr:
    """Return how often 128 bits the machine's vectors are long, which is known when the program runs."""
    return CallIntrin("int32", Op.get("tir.vscale"), ())


def lanes_from(value: object) -> Any:
    """Return a number of lanes: a constant, or a multiple of :func:`vscale`; None where it is neither."""
    if isinstance(value, int):
        return value
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, Mul):
        a, b = (value.b, value.a) if isinstance(value.a, IntImm) else (value.a, value.b)
        return ScalableLanes(b.value) if isinstance(b, IntImm) and lanes_from(a) == ScalableLanes(1) else None
    return ScalableLanes(1) if isinstance(value, CallIntrin) and value.op is Op.get("tir.vscale") else None


def _set_lanes(node: Any) -> None:
    """Make a number of the lanes of a new vector."""
    if type(node.lanes) is not int:
        found = lanes_from(node.lanes)
        if found is None:
            raise InvalidArgument("a vector's lanes are a number, or one times vscale", found=str(node.lanes))
        force_setattr(node, "lanes", found)


class Ramp(PrimExpr):
    """The vector ``base, base + stride, ...`` of `lanes` values."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        _make_alike(self, "base", "stride")
        _set_lanes(self)

    dtype = _data_type(lambda e: vector_of(e.base.dtype, e.lanes))


class Broadcast(PrimExpr):
    """A scalar repeated over `lanes`."""

    value: PrimExpr
    lanes: int

    def __post_init__(self) -> None:
        """Make an expression of a number."""
        make_exprs(self, None, "value")
        _set_lanes(self)

    dtype = _data_type(lambda e: vector_of(e.value.dtype, e.lanes))


class Shuffle(PrimExpr):
    """Lanes picked by `indices` from the concatenation of `vectors`."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        make_exprs(self, None, "vectors", "indices")

    dtype = _data_type(lambda e: with_lanes(e.vectors[0].dtype, len(e.indices)))


class CallIntrin(PrimExpr):
    """A call of an intrinsic, an external or a packed function (TVM's ``tir.Call``)."""

    dtype: str
    op: Any
    args: tuple[Any, ...]
    attrs: Attrs = NO_ATTRS

    def __post_init__(self) -> None:
        if type(self.op) is str:
            force_setattr(self, "op", Op.get(self.op))
        name_type(self)
        given: Any = self.args
        if type(given) is list:  # as TVM's programs give them, with Python's numbers
            force_setattr(self, "args", tuple(as_expr(a) if isinstance(a, (int, float, str)) else a for a in given))


# --- constants --------------------------------------------------------------------------------------------------------


def const(value: Any, dtype: str | None = None) -> PrimExpr:
    """Make a constant.

    Parameters
    ----------
    value : bool, int, float or NumPy scalar
        The value; with a vector `dtype` it is broadcast.
    dtype : str, optional
        By default bool, int32 (int64 where 32 bits are too few) or float32.
    """
    dt = DataType(dtype_of(value) if dtype is None else dtype)
    if dtype is None and type(value) is int:
        return IntImm(dt, in_range(value))
    if type(value) is int and -HALVES.get(dt, 0) <= value < HALVES.get(dt, 0):
        return IntImm(dt, value)
    if dt.lanes > 1:
        return Broadcast(const(value, dt.element), dt.lanes)
    if dt.is_float or dt.is_custom:
        return FloatImm(dt, value)  # type: ignore[arg-type]
    if dt.code == "handle":
        return CallIntrin(dt, Op.get("tir.reinterpret"), (IntImm(DataType("uint64"), int(value)),))
    return IntImm(dt, int(bool(value)) if dt == "bool" else wrap(int(value), dt))


def int32(value: int) -> IntImm:
    """Make an int32 constant."""
    return IntImm(_INT32, value)


def int64(value: int) -> IntImm:
    """Make an int64 constant, which must be in range."""
    return IntImm(_INT64, in_range(value))


_INT32, _INT64, _BOOL = DataType("int32"), DataType("int64"), DataType("bool")
TRUE, FALSE = IntImm(_BOOL, 1), IntImm(_BOOL, 0)


def as_expr(value: object, dtype: str | None = None) -> PrimExpr:
    """Convert a Python number, string, iteration variable or 0-argument tensor to an expression."""
    if IS_EXPR[type(value)]:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return StringImm(value)
    as_object = getattr(value, "asobject", None)
    if as_object is not None:
        return as_object()
    if isinstance(value, (bool, int, float)) or (hasattr(value, "dtype") and not isinstance(value, Node)):
        return const(value, dtype)
    raise InvalidArgument("cannot make a scalar expression", expected="a number or an expression", found=repr(value))


def as_int(value: object) -> int | None:
    """Return the value of an integer constant, or None."""
    if type(value) is IntImm:
        return value.value
    return int(value) if isinstance(value, int) else None


def is_const_int(value: object, expected: int) -> bool:
    """Whether `value` is the integer constant `expected`."""
    return type(value) is IntImm and value.value == expected


def is_prim_expr(value: object) -> bool:
    """Whether `value` is a scalar expression, or a graph-level one whose value is a scalar."""
    return isinstance(value, PrimExpr) or type(getattr(value, "ty", None)).__name__ == "PrimType"


def is_prim_var(value: object) -> bool:
    """Whether `value` is a variable for a scalar."""
    return isinstance(value, Var) or (is_prim_expr(value) and hasattr(value, "name_hint"))
