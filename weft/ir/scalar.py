"""Scalar expressions: what shapes, loop bounds, indices and kernel bodies are written in (TVM's ``PrimExpr``).

Node classes first, then the checked constructors (``add``, ``floordiv``, ...), which convert Python numbers, unify data
types and fold constants. Python operators on expressions call the checked constructors; passes that know their operands
may build the classes directly. Integer division is ``floordiv``/``floormod`` unless a name says ``trunc``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import force_setattr

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.dtype import DataType, dtype_of, numpy_dtype
from weft.ir.node import NO_ATTRS, Attrs, Node, NodeMeta, SubclassTable

__all__ = [
    "EQ", "GE", "GT", "IS_EXPR", "IS_VAR", "LE", "LT", "NE", "Add", "And", "BinaryOp", "Broadcast", "CallIntrin",
    "Cast", "CmpOp", "Div", "FloatImm", "FloorDiv", "FloorMod", "IntImm", "IterVar", "Let", "Max", "Min", "Mod",
    "Mul", "Not", "Op", "Or", "PrimExpr", "Ramp", "Range", "Select", "Shuffle", "SizeVar", "StringImm", "Sub",
    "Var", "abs_", "add", "all_of", "any_of", "as_expr", "as_int", "cast", "ceildiv", "const", "div", "equal",
    "floordiv", "floormod", "greater", "greater_equal", "if_then_else", "int32", "int64", "is_const_int",
    "is_prim_expr", "is_prim_var", "less", "less_equal", "logical_and", "logical_not", "logical_or", "make_exprs",
    "max_", "min_", "mul", "not_equal", "select", "shift_left", "shift_right", "sub", "truncdiv", "truncmod",
]  # fmt: skip


class Op(Node):
    """A named operator or intrinsic. There is one object per name; get it with :meth:`Op.get`."""

    name: str

    @staticmethod
    def get(name: str) -> Op:
        """Return the operator called `name`, making the reference if it is the first use."""
        op = _OPS.get(name)
        if op is None:
            op = _OPS[name] = Op(name)
        return op


_OPS: dict[str, Op] = {}


class PrimExpr(Node, abstract=True):
    """A scalar (or, with lanes, vector) expression. Every subclass has a ``dtype``."""

    if TYPE_CHECKING:  # a field in some classes, computed from the operands in others

        def __getattr__(self, name: Literal["dtype"]) -> str: ...

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> PrimExpr:
        return add(self, other)

    def __radd__(self, other: Any) -> PrimExpr:
        return add(other, self)

    def __sub__(self, other: Any) -> PrimExpr:
        return sub(self, other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return sub(other, self)

    def __mul__(self, other: Any) -> PrimExpr:
        return mul(self, other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return mul(other, self)

    def __truediv__(self, other: Any) -> PrimExpr:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return div(other, self)

    def __floordiv__(self, other: Any) -> PrimExpr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> PrimExpr:
        return floormod(self, other)

    def __rmod__(self, other: Any) -> PrimExpr:
        return floormod(other, self)

    def __neg__(self) -> PrimExpr:
        return mul(self, const(-1, self.dtype))

    def __lshift__(self, other: Any) -> PrimExpr:
        return shift_left(self, other)

    def __rshift__(self, other: Any) -> PrimExpr:
        return shift_right(self, other)

    def __and__(self, other: Any) -> PrimExpr:
        return _bitwise("bitwise_and", self, other)

    def __rand__(self, other: Any) -> PrimExpr:
        return _bitwise("bitwise_and", other, self)

    def __or__(self, other: Any) -> PrimExpr:
        return _bitwise("bitwise_or", self, other)

    def __ror__(self, other: Any) -> PrimExpr:
        return _bitwise("bitwise_or", other, self)

    def __xor__(self, other: Any) -> PrimExpr:
        return _bitwise("bitwise_xor", self, other)

    def __invert__(self) -> PrimExpr:
        return logical_not(self) if self.dtype == "bool" else CallIntrin(self.dtype, Op.get("tir.bitwise_not"), (self,))

    def __lt__(self, other: Any) -> PrimExpr:
        return less(self, other)

    def __le__(self, other: Any) -> PrimExpr:
        return less_equal(self, other)

    def __gt__(self, other: Any) -> PrimExpr:
        return greater(self, other)

    def __ge__(self, other: Any) -> PrimExpr:
        return greater_equal(self, other)

    def __eq__(self, other: Any) -> Any:
        return equal(self, other) if isinstance(other, (PrimExpr, int, float)) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return not_equal(self, other) if isinstance(other, (PrimExpr, int, float)) else NotImplemented

    def __bool__(self) -> bool:
        raise InvalidArgument(
            "the value of a scalar expression is not known while a program is being built",
            found=str(self),
            help="use tir.all / tir.any / tir.if_then_else instead of and / or / if",
        )

    def astype(self, dtype: str) -> PrimExpr:
        """Convert to another data type."""
        return cast(dtype, self)

    def equal(self, other: Any) -> PrimExpr:
        """Build an equality test."""
        return equal(self, other)


IS_EXPR = SubclassTable(PrimExpr)


class Var(PrimExpr):
    """A scalar variable; two variables of the same name are different variables."""

    name: str
    dtype: str = "int32"

    __hash__ = object.__hash__


class SizeVar(Var):
    """A variable that is known to be at least zero, such as a symbolic dimension."""

    __hash__ = object.__hash__


IS_VAR = SubclassTable(Var)


class IntImm(PrimExpr):
    """An integer or bool constant."""

    dtype: str
    value: int

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
    """A floating-point constant."""

    dtype: str
    value: float

    def __float__(self) -> float:
        return self.value


class StringImm(PrimExpr):
    """A string constant, as an argument of intrinsics."""

    value: str

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return "handle"


class Cast(PrimExpr):
    """Convert `value` to `dtype`; float to integer truncates towards zero."""

    dtype: str
    value: PrimExpr


class BinaryOp(PrimExpr, abstract=True):
    """Two operands of the same data type."""

    a: PrimExpr
    b: PrimExpr

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.a.dtype


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

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        lanes = DataType(self.a.dtype).lanes
        return "bool" if lanes == 1 else f"boolx{lanes}"


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

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.a.dtype


def make_exprs(node: Any, dtype: str | None, *fields: str) -> None:
    """Make expressions of numbers in fields of a new node; those of a tuple, where the field holds one."""
    for f in fields:
        value = getattr(node, f)
        if isinstance(value, (tuple, list)):
            force_setattr(node, f, tuple(as_expr(v, dtype) for v in value))
        elif not isinstance(value, PrimExpr):
            force_setattr(node, f, as_expr(value, dtype))


class Select(PrimExpr):
    """One of two values, both of which are evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        given: Any = self
        if not isinstance(given.true_value, PrimExpr) or not isinstance(given.false_value, PrimExpr):
            like = getattr(given.true_value, "dtype", None) or getattr(given.false_value, "dtype", None)
            make_exprs(self, like, "true_value", "false_value")
        if not isinstance(given.condition, PrimExpr):
            make_exprs(self, "bool", "condition")

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.true_value.dtype


class Let(PrimExpr):
    """``body`` with ``var`` bound to ``value``."""

    var: Var
    value: PrimExpr
    body: PrimExpr

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.body.dtype


class Ramp(PrimExpr):
    """The vector ``base, base + stride, ...`` of `lanes` values."""

    base: PrimExpr
    stride: PrimExpr
    lanes: int

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        given: Any = self
        if not isinstance(given.base, PrimExpr) or not isinstance(given.stride, PrimExpr):
            like = getattr(given.base, "dtype", None) or getattr(given.stride, "dtype", None)
            make_exprs(self, like, "base", "stride")

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return f"{DataType(self.base.dtype).element}x{self.lanes}"


class Broadcast(PrimExpr):
    """A scalar repeated over `lanes`."""

    value: PrimExpr
    lanes: int

    def __post_init__(self) -> None:
        """Make an expression of a number."""
        if not isinstance(self.value, PrimExpr):  # pyright: ignore[reportUnnecessaryIsInstance]
            make_exprs(self, None, "value")

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return f"{DataType(self.value.dtype).element}x{self.lanes}"


class Shuffle(PrimExpr):
    """Lanes picked by `indices` from the concatenation of `vectors`."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        element = DataType(self.vectors[0].dtype).element
        return element if len(self.indices) == 1 else f"{element}x{len(self.indices)}"


class CallIntrin(PrimExpr):
    """A call of an intrinsic, an external or a packed function (TVM's ``tir.Call``)."""

    dtype: str
    op: Any
    args: tuple[Any, ...]
    attrs: Attrs = NO_ATTRS


def _difference(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return ``a - b``, for ``b + c`` and numbers without writing it out."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return IntImm(a.dtype, a.value - b.value)
    return a.b if isinstance(a, Add) and a.a is b else a - b


class _RangeMeta(NodeMeta):
    """Lets ``Range(begin, end)`` take both ends, as TVM's does, and fields by name."""

    def __call__(
        cls, begin: Any = None, end: Any = None, *, min: Any = None, extent: Any = None, span: Any = None
    ) -> Any:
        """Make a range of two ends, of an end alone, or of a start and a length given by name."""
        if min is None or extent is None:
            if begin is None:
                raise InvalidArgument("a range needs its ends", expected="Range(begin, end) or Range(end)")
            begin, end = (0, begin) if end is None else (begin, end)
            min = as_expr(begin, getattr(end, "dtype", None))
            last = as_expr(end, min.dtype)
            extent = last if is_const_int(min, 0) else _difference(last, min)
        return super().__call__(min, extent, span=span)


class Range(Node, metaclass=_RangeMeta):  # type: ignore[misc]
    """The integers from `min` up to, not including, ``min + extent``.

    ``Range(begin, end)`` takes both ends and ``Range(end)`` starts at zero; :meth:`from_min_extent` takes the length.
    """

    min: PrimExpr
    extent: PrimExpr

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> Range:
        """Make a range from its start and length."""
        if not (isinstance(min_value, PrimExpr) and isinstance(extent, PrimExpr)):
            min_value = as_expr(min_value, getattr(extent, "dtype", None))
            extent = as_expr(extent, min_value.dtype)
        return NodeMeta.__call__(Range, min_value, extent, span=span)


class IterVar(Node):
    """An iteration variable with its domain.

    ``iter_type`` is one of ``data_par`` (spatial), ``reduce``, ``ordered``, ``opaque``, ``thread``, and, in te
    schedules, ``vectorized``, ``unrolled``, ``parallelized``, ``tensorized``.
    """

    dom: Range | None
    var: Var
    iter_type: str = "data_par"
    thread_tag: str = ""

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2
    Ordered: ClassVar[int] = 3
    Opaque: ClassVar[int] = 4
    Unrolled: ClassVar[int] = 5
    Vectorized: ClassVar[int] = 6
    Parallelized: ClassVar[int] = 7
    Tensorized: ClassVar[int] = 8

    @property
    def dtype(self) -> str:
        """The data type of the variable."""
        return self.var.dtype

    def astype(self, dtype: str, span: Any = None) -> PrimExpr:
        """Convert the variable's value."""
        return self.var.astype(dtype)


def _forward(name: str) -> Any:
    """Make an operator of IterVar from that of expressions."""
    operator = getattr(PrimExpr, name)

    def apply(self: IterVar, *operands: Any) -> Any:
        return operator(self.var, *operands)

    apply.__name__, apply.__doc__ = name, operator.__doc__
    return apply


for _operator in (
    *(f"__{n}__" for n in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or")),
    *(f"__r{n}__" for n in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or")),
    "__neg__", "__lshift__", "__rshift__", "__xor__", "__lt__", "__le__", "__gt__", "__ge__",
):  # fmt: skip
    setattr(IterVar, _operator, _forward(_operator))


# --- checked constructors ---------------------------------------------------------------------------------------------


def const(value: Any, dtype: str | None = None) -> PrimExpr:
    """Make a constant.

    Parameters
    ----------
    value : bool, int, float or NumPy scalar
        The value; with a vector `dtype` it is broadcast.
    dtype : str, optional
        By default bool, int32 (int64 where 32 bits are too few) or float32.
    """
    if dtype is None:
        dtype = dtype_of(value)
    dt = DataType(dtype)
    if dt.lanes > 1:
        return Broadcast(const(value, dt.element), dt.lanes)
    if dt.is_float or dt.is_custom:
        return FloatImm(dt, float(value))
    if dt == "bool":
        return IntImm(dt, int(bool(value)))
    if dt.code == "handle":
        return CallIntrin(dt, Op.get("tir.reinterpret"), (IntImm(DataType("uint64"), int(value)),))
    return IntImm(dt, _wrap(int(value), dt))


def _wrap(value: int, dt: DataType) -> int:
    """Reduce to the range of the type, as two's complement arithmetic does."""
    if dt.code == "uint":
        return value & ((1 << dt.bits) - 1)
    half = 1 << (dt.bits - 1)
    return value if -half <= value < half else (value + half) % (2 * half) - half


def int32(value: int) -> IntImm:
    """Make an int32 constant."""
    return IntImm(_INT32, value)


def int64(value: int) -> IntImm:
    """Make an int64 constant."""
    return IntImm(_INT64, value)


_INT32, _INT64, _BOOL = DataType("int32"), DataType("int64"), DataType("bool")
TRUE, FALSE = IntImm(_BOOL, 1), IntImm(_BOOL, 0)


def as_expr(value: Any, dtype: str | None = None) -> PrimExpr:
    """Convert a Python number, string, iteration variable or 0-argument tensor to an expression."""
    if IS_EXPR[type(value)]:
        return value
    if isinstance(value, IterVar):
        return value.var
    if isinstance(value, str):
        return StringImm(value)
    asobject = getattr(value, "asobject", None)
    if asobject is not None:
        return asobject()
    if isinstance(value, (bool, int, float)) or hasattr(value, "dtype"):
        return const(value, dtype)
    raise InvalidArgument("cannot make a scalar expression", expected="a number or an expression", found=repr(value))


def as_int(value: Any) -> int | None:
    """Return the value of an integer constant, or None."""
    if type(value) is IntImm:
        return value.value
    return int(value) if isinstance(value, int) else None


def is_const_int(value: Any, expected: int) -> bool:
    """Whether `value` is the integer constant `expected`."""
    return type(value) is IntImm and value.value == expected


def is_prim_expr(value: Any) -> bool:
    """Whether `value` is a scalar expression."""
    return isinstance(value, PrimExpr)


def is_prim_var(value: Any) -> bool:
    """Whether `value` is a scalar variable."""
    return isinstance(value, Var)


def _operands(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
    """Convert both operands to expressions of one data type."""
    if not IS_EXPR[type(a)]:
        a = as_expr(a, _like(b, a))
    if not IS_EXPR[type(b)]:
        b = as_expr(b, _like(a, b))
    if a.dtype == b.dtype:
        return a, b
    return _unify(a, b)


def _like(other: Any, number: Any) -> str | None:
    """Return the type that a Python number takes beside `other`."""
    if not isinstance(other, PrimExpr) or not isinstance(number, (bool, int, float)):
        return None
    dt = DataType(other.dtype)
    if isinstance(number, float) and not dt.is_float:
        return None
    return dt if dt.code != "handle" else None


def _unify(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    da, db = DataType(a.dtype), DataType(b.dtype)
    if da.lanes != db.lanes:
        if da.lanes == 1:
            return _operands(Broadcast(a, db.lanes), b)
        if db.lanes == 1:
            return _operands(a, Broadcast(b, da.lanes))
        raise DTypeMismatch("vectors of different lengths", found=f"{da} and {db}")
    if da.is_float and not db.is_float:
        return a, cast(da, b)
    if db.is_float and not da.is_float:
        return cast(db, a), b
    if da == "bool" or db == "bool":
        return (cast(db, a), b) if da == "bool" else (a, cast(da, b))
    if da.code == db.code or {da.code, db.code} == {"int", "uint"}:
        wide = da if (da.bits, da.code == "uint") >= (db.bits, db.code == "uint") else db
        return cast(wide, a), cast(wide, b)
    raise DTypeMismatch("operands have data types that do not mix", found=f"{da} and {db}", help="cast one of them")


def _fold_int(fn: Callable[[int, int], int], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    if type(a) is IntImm and type(b) is IntImm:
        dt = DataType(a.dtype)
        return IntImm(dt, _wrap(fn(a.value, b.value), dt) if dt != "bool" else int(bool(fn(a.value, b.value))))
    return None


def _fold_float(fn: Callable[[Any, Any], Any], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    if type(a) is FloatImm and type(b) is FloatImm and not DataType(a.dtype).is_custom:
        np_type = numpy_dtype(a.dtype).type
        value = float(fn(np_type(a.value), np_type(b.value)))
        return FloatImm(a.dtype, value) if math.isfinite(value) else None
    return None


def add(a: Any, b: Any) -> PrimExpr:
    """Build ``a + b``."""
    a, b = _operands(a, b)
    folded = _fold_int(int.__add__, a, b) or _fold_float(lambda x, y: x + y, a, b)
    if folded is not None:
        return folded
    if is_const_int(a, 0):
        return b
    return a if is_const_int(b, 0) else Add(a, b)


def sub(a: Any, b: Any) -> PrimExpr:
    """Build ``a - b``."""
    a, b = _operands(a, b)
    folded = _fold_int(int.__sub__, a, b) or _fold_float(lambda x, y: x - y, a, b)
    if folded is not None:
        return folded
    return a if is_const_int(b, 0) else Sub(a, b)


def mul(a: Any, b: Any) -> PrimExpr:
    """Build ``a * b``."""
    a, b = _operands(a, b)
    folded = _fold_int(int.__mul__, a, b) or _fold_float(lambda x, y: x * y, a, b)
    if folded is not None:
        return folded
    if is_const_int(a, 1) or is_const_int(b, 0):
        return b
    return a if is_const_int(b, 1) or is_const_int(a, 0) else Mul(a, b)


def div(a: Any, b: Any) -> PrimExpr:
    """Build ``a / b``: true division on floats, C division on integers."""
    a, b = _operands(a, b)
    if not DataType(a.dtype).is_float:
        return truncdiv(a, b)
    folded = _fold_float(lambda x, y: x / y, a, b) if not (isinstance(b, FloatImm) and b.value == 0) else None
    return folded if folded is not None else Div(a, b)


def _checked_divisor(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
    a, b = _operands(a, b)
    if is_const_int(b, 0):
        raise InvalidArgument("division by zero", found=f"{a} divided by 0")
    return a, b


def truncdiv(a: Any, b: Any) -> PrimExpr:
    """Build an integer division that rounds towards zero."""
    a, b = _checked_divisor(a, b)
    folded = _fold_int(lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a, b)
    return folded or (a if is_const_int(b, 1) else Div(a, b))


def truncmod(a: Any, b: Any) -> PrimExpr:
    """Build the remainder of :func:`truncdiv`; on floats, C's ``fmod``."""
    a, b = _checked_divisor(a, b)
    folded = _fold_int(lambda x, y: x - y * (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)), a, b)
    return folded or Mod(a, b)


def floordiv(a: Any, b: Any) -> PrimExpr:
    """Build ``a // b``."""
    a, b = _checked_divisor(a, b)
    if DataType(a.dtype).is_float:
        return CallIntrin(a.dtype, Op.get("tir.floor"), (Div(a, b),))
    folded = _fold_int(int.__floordiv__, a, b)
    return folded or (a if is_const_int(b, 1) or is_const_int(a, 0) else FloorDiv(a, b))


def floormod(a: Any, b: Any) -> PrimExpr:
    """Build ``a % b``."""
    a, b = _checked_divisor(a, b)
    folded = _fold_int(int.__mod__, a, b)
    if folded is not None:
        return folded
    return const(0, a.dtype) if is_const_int(b, 1) else FloorMod(a, b)


def ceildiv(a: Any, b: Any) -> PrimExpr:
    """Build ``a / b`` rounded up, for a positive `b`."""
    a, b = _checked_divisor(a, b)
    return floordiv(add(a, sub(b, 1)), b)


def min_(a: Any, b: Any) -> PrimExpr:
    """Build the smaller of two."""
    a, b = _operands(a, b)
    return a if a is b else _fold_int(min, a, b) or Min(a, b)


def max_(a: Any, b: Any) -> PrimExpr:
    """Build the larger of two."""
    a, b = _operands(a, b)
    return a if a is b else _fold_int(max, a, b) or Max(a, b)


def _compare(cls: type[CmpOp], fn: Callable[[Any, Any], bool], a: Any, b: Any) -> PrimExpr:
    a, b = _operands(a, b)
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)) and not DataType(a.dtype).is_custom:
        return TRUE if fn(a.value, b.value) else FALSE
    return cls(a, b)


def equal(a: Any, b: Any) -> PrimExpr:
    """Build ``a == b``."""
    return _compare(EQ, lambda x, y: x == y, a, b)


def not_equal(a: Any, b: Any) -> PrimExpr:
    """Build ``a != b``."""
    return _compare(NE, lambda x, y: x != y, a, b)


def less(a: Any, b: Any) -> PrimExpr:
    """Build ``a < b``."""
    return _compare(LT, lambda x, y: x < y, a, b)


def less_equal(a: Any, b: Any) -> PrimExpr:
    """Build ``a <= b``."""
    return _compare(LE, lambda x, y: x <= y, a, b)


def greater(a: Any, b: Any) -> PrimExpr:
    """Build ``a > b``."""
    return _compare(GT, lambda x, y: x > y, a, b)


def greater_equal(a: Any, b: Any) -> PrimExpr:
    """Build ``a >= b``."""
    return _compare(GE, lambda x, y: x >= y, a, b)


def logical_and(a: Any, b: Any) -> PrimExpr:
    """Build ``a and b``; a constant operand folds."""
    a, b = as_expr(a), as_expr(b)
    if isinstance(a, IntImm):
        return b if a.value else a
    if isinstance(b, IntImm):
        return a if b.value else b
    return And(a, b)


def logical_or(a: Any, b: Any) -> PrimExpr:
    """Build ``a or b``; a constant operand folds."""
    a, b = as_expr(a), as_expr(b)
    if isinstance(a, IntImm):
        return a if a.value else b
    if isinstance(b, IntImm):
        return b if b.value else a
    return Or(a, b)


def logical_not(a: Any) -> PrimExpr:
    """Build ``not a``."""
    a = as_expr(a)
    return (FALSE if a.value else TRUE) if isinstance(a, IntImm) else Not(a)


def all_of(*conditions: Any) -> PrimExpr:
    """Build the conjunction of all arguments; true when there is none (TVM's ``tir.all``)."""
    result: PrimExpr = TRUE
    for c in conditions:
        result = logical_and(result, c)
    return result


def any_of(*conditions: Any) -> PrimExpr:
    """Build the disjunction of all arguments; false when there is none (TVM's ``tir.any``)."""
    result: PrimExpr = FALSE
    for c in conditions:
        result = logical_or(result, c)
    return result


def cast(dtype: str, value: Any) -> PrimExpr:
    """Convert to `dtype`, folding constants; a conversion to the type a value has is the value."""
    value = as_expr(value)
    dt = DataType(dtype)
    if value.dtype == dt:
        return value
    source = DataType(value.dtype)
    if dt.lanes != source.lanes:
        if source.lanes == 1:
            return Broadcast(cast(dt.element, value), dt.lanes)
        raise DTypeMismatch("a cast cannot change the number of lanes", expected=str(dt), found=str(source))
    if isinstance(value, IntImm) and dt.code in ("int", "uint", "float", "bool"):
        return const(value.value, dt)
    if (
        isinstance(value, FloatImm)
        and not source.is_custom
        and (dt.is_float or (dt.is_integer and math.isfinite(value.value)))
    ):
        return const(float(numpy_dtype(dt).type(value.value)) if dt.is_float else int(value.value), dt)
    return Cast(dt, value)


def select(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """Build a choice that evaluates both sides."""
    condition = as_expr(condition)
    true_value, false_value = _operands(true_value, false_value)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return Select(condition, true_value, false_value)


def if_then_else(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """Build a choice that evaluates only the side it takes, so that it may guard a load."""
    condition = as_expr(condition)
    true_value, false_value = _operands(true_value, false_value)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return CallIntrin(true_value.dtype, Op.get("tir.if_then_else"), (condition, true_value, false_value))


def abs_(value: Any) -> PrimExpr:
    """Build the absolute value."""
    value = as_expr(value)
    if isinstance(value, (IntImm, FloatImm)):
        return const(abs(value.value), value.dtype)
    return CallIntrin(value.dtype, Op.get("tir.fabs" if DataType(value.dtype).is_float else "tir.abs"), (value,))


def _bitwise(name: str, a: Any, b: Any) -> PrimExpr:
    a, b = _operands(a, b)
    if a.dtype == "bool":
        if name == "bitwise_and":
            return logical_and(a, b)
        if name == "bitwise_or":
            return logical_or(a, b)
        return not_equal(a, b)
    fold = {"bitwise_and": int.__and__, "bitwise_or": int.__or__, "bitwise_xor": int.__xor__}[name]
    return _fold_int(fold, a, b) or CallIntrin(a.dtype, Op.get("tir." + name), (a, b))


def shift_left(a: Any, b: Any) -> PrimExpr:
    """Build ``a << b``."""
    a, b = _operands(a, b)
    return _fold_int(int.__lshift__, a, b) or CallIntrin(a.dtype, Op.get("tir.shift_left"), (a, b))


def shift_right(a: Any, b: Any) -> PrimExpr:
    """Build ``a >> b``, arithmetic on signed types."""
    a, b = _operands(a, b)
    return _fold_int(int.__rshift__, a, b) or CallIntrin(a.dtype, Op.get("tir.shift_right"), (a, b))
