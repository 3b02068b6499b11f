"""The checked constructors of scalar expressions (``add``, ``floordiv``, ...), and Python's operators on them.

They convert Python numbers, unify data types and fold constants. Integer division is ``floordiv``/``floormod`` unless a
name says ``trunc``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir.dtype import DataType, numpy_dtype
from weft.ir.scalar import (
    EQ,
    FALSE,
    GE,
    GT,
    IS_EXPR,
    LE,
    LT,
    NE,
    TRUE,
    Add,
    And,
    Broadcast,
    CallIntrin,
    Cast,
    CmpOp,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Op,
    Or,
    PrimExpr,
    Select,
    Sub,
    as_expr,
    const,
    is_const_int,
)

__all__ = [
    "abs_", "add", "all_of", "any_of", "cast", "ceildiv", "div", "equal", "floordiv", "floormod", "greater",
    "greater_equal", "if_then_else", "less", "less_equal", "logical_and", "logical_not", "logical_or", "max_", "min_",
    "mul", "not_equal", "select", "shift_left", "shift_right", "sub", "truncdiv", "truncmod", "unify_dtypes",
]  # fmt: skip


def unify_dtypes(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
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
            return unify_dtypes(Broadcast(a, db.lanes), b)
        if db.lanes == 1:
            return unify_dtypes(a, Broadcast(b, da.lanes))
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
    return const(fn(a.value, b.value), a.dtype) if type(a) is IntImm and type(b) is IntImm else None


def _fold_float(fn: Callable[[Any, Any], Any], a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    if type(a) is FloatImm and type(b) is FloatImm and not DataType(a.dtype).is_custom:
        np_type = numpy_dtype(a.dtype).type
        value = float(fn(np_type(a.value), np_type(b.value)))
        return FloatImm(a.dtype, value) if math.isfinite(value) else None
    return None


def add(a: Any, b: Any) -> PrimExpr:
    """Build ``a + b``."""
    a, b = unify_dtypes(a, b)
    folded = _fold_int(int.__add__, a, b) or _fold_float(lambda x, y: x + y, a, b)
    if folded is not None:
        return folded
    if is_const_int(a, 0):
        return b
    return a if is_const_int(b, 0) else Add(a, b)


def sub(a: Any, b: Any) -> PrimExpr:
    """Build ``a - b``."""
    a, b = unify_dtypes(a, b)
    folded = _fold_int(int.__sub__, a, b) or _fold_float(lambda x, y: x - y, a, b)
    if folded is not None:
        return folded
    return a if is_const_int(b, 0) else Sub(a, b)


def mul(a: Any, b: Any) -> PrimExpr:
    """Build ``a * b``."""
    a, b = unify_dtypes(a, b)
    folded = _fold_int(int.__mul__, a, b) or _fold_float(lambda x, y: x * y, a, b)
    if folded is not None:
        return folded
    if is_const_int(a, 1) or is_const_int(b, 0):
        return b
    return a if is_const_int(b, 1) or is_const_int(a, 0) else Mul(a, b)


def div(a: Any, b: Any) -> PrimExpr:
    """Build ``a / b``: true division on floats, C division on integers."""
    a, b = unify_dtypes(a, b)
    if not DataType(a.dtype).is_float:
        return truncdiv(a, b)
    folded = _fold_float(lambda x, y: x / y, a, b) if not (isinstance(b, FloatImm) and b.value == 0) else None
    return folded if folded is not None else Div(a, b)


def _checked_divisor(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
    a, b = unify_dtypes(a, b)
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
    a, b = unify_dtypes(a, b)
    return a if a is b else _fold_int(min, a, b) or Min(a, b)


def max_(a: Any, b: Any) -> PrimExpr:
    """Build the larger of two."""
    a, b = unify_dtypes(a, b)
    return a if a is b else _fold_int(max, a, b) or Max(a, b)


def _compare(cls: type[CmpOp], fn: Callable[[Any, Any], bool], a: Any, b: Any) -> PrimExpr:
    a, b = unify_dtypes(a, b)
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
    if isinstance(value, Broadcast) and isinstance(value.value, (IntImm, FloatImm)):
        return Broadcast(cast(dt.element, value.value), value.lanes)
    return Cast(dt, value)


def select(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """Build a choice that evaluates both sides."""
    condition = as_expr(condition)
    true_value, false_value = unify_dtypes(true_value, false_value)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return Select(condition, true_value, false_value)


def if_then_else(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    """Build a choice that evaluates only the side it takes, so that it may guard a load."""
    condition = as_expr(condition)
    true_value, false_value = unify_dtypes(true_value, false_value)
    if isinstance(condition, IntImm):
        return true_value if condition.value else false_value
    return CallIntrin(true_value.dtype, Op.get("tir.if_then_else"), (condition, true_value, false_value))


def abs_(value: Any) -> PrimExpr:
    """Build the absolute value."""
    value = as_expr(value)
    if isinstance(value, (IntImm, FloatImm)):
        return const(abs(value.value), value.dtype)
    return CallIntrin(value.dtype, Op.get("tir.fabs" if DataType(value.dtype).is_float else "tir.abs"), (value,))


def _bitwise(name: str, fold: Callable[[int, int], int]) -> Callable[[Any, Any], PrimExpr]:
    on_bool = {"and": logical_and, "or": logical_or, "xor": not_equal}[name]

    def build(a: Any, b: Any) -> PrimExpr:
        a, b = unify_dtypes(a, b)
        if a.dtype == "bool":
            return on_bool(a, b)
        return _fold_int(fold, a, b) or CallIntrin(a.dtype, Op.get(f"tir.bitwise_{name}"), (a, b))

    return build


def shift_left(a: Any, b: Any) -> PrimExpr:
    """Build ``a << b``."""
    a, b = unify_dtypes(a, b)
    return _fold_int(int.__lshift__, a, b) or CallIntrin(a.dtype, Op.get("tir.shift_left"), (a, b))


def shift_right(a: Any, b: Any) -> PrimExpr:
    """Build ``a >> b``, arithmetic on signed types."""
    a, b = unify_dtypes(a, b)
    return _fold_int(int.__rshift__, a, b) or CallIntrin(a.dtype, Op.get("tir.shift_right"), (a, b))


# --- Python's operators -----------------------------------------------------------------------------------------------


def _neg(a: Any) -> PrimExpr:
    return mul(a, const(-1, a.dtype))


def _invert(a: Any) -> PrimExpr:
    return logical_not(a) if a.dtype == "bool" else CallIntrin(a.dtype, Op.get("tir.bitwise_not"), (a,))


def _reflected(build: Callable[[Any, Any], PrimExpr]) -> Callable[[Any, Any], PrimExpr]:
    return lambda a, b: build(b, a)


def _comparison(build: Callable[[Any, Any], PrimExpr]) -> Callable[[Any, Any], Any]:
    return lambda a, b: build(a, b) if isinstance(b, (PrimExpr, int, float)) else NotImplemented


def _of_variable(build: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    return lambda a, *operands: build(a.var, *operands)


_BOTH_WAYS = {
    "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floordiv, "mod": floormod,
    "and": _bitwise("and", int.__and__), "or": _bitwise("or", int.__or__), "xor": _bitwise("xor", int.__xor__),
}  # fmt: skip
_ONE_WAY: dict[str, Callable[..., PrimExpr]] = {
    "lshift": shift_left, "rshift": shift_right, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal,
    "neg": _neg, "invert": _invert,
}  # fmt: skip
for _name, _build in _BOTH_WAYS.items():
    _ONE_WAY[_name], _ONE_WAY["r" + _name] = _build, _reflected(_build)
for _name, _build in _ONE_WAY.items():
    setattr(PrimExpr, f"__{_name}__", _build)
    setattr(IterVar, f"__{_name}__", _of_variable(_build))
PrimExpr.__eq__, PrimExpr.__ne__ = _comparison(equal), _comparison(not_equal)  # type: ignore[method-assign]
PrimExpr.equal = equal  # type: ignore[method-assign]
PrimExpr.astype = lambda self, dtype: cast(dtype, self)  # type: ignore[method-assign]
