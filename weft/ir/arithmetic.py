"""The checked constructors of scalar expressions (``add``, ``floordiv``, ...), and Python's operators on them.

They convert Python numbers, unify data types and fold constants. Integer division is ``floordiv``/``floormod`` unless a
name says ``trunc``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol

import numpy as np

from weft.error import DTypeMismatch, InvalidArgument
from weft.ir import scalar
from weft.ir.dtype import DataType, numpy_dtype
from weft.ir.int_range import wrap
from weft.ir.iteration import IterVar

__all__ = [
    "ExprLike",
    "abs_",
    "add",
    "all_of",
    "any_of",
    "cast",
    "ceildiv",
    "div",
    "equal",
    "exact_const",
    "floordiv",
    "floormod",
    "greater",
    "greater_equal",
    "if_then_else",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "max_",
    "min_",
    "mul",
    "not_equal",
    "select",
    "shift_left",
    "shift_right",
    "sub",
    "truncdiv",
    "truncmod",
    "type_beside",
    "unify_dtypes",
]


class _HasExpr(Protocol):
    def asobject(self) -> scalar.PrimExpr: ...


ExprLike = scalar.PrimExpr | IterVar | bool | int | float | str | np.generic | _HasExpr
"""What becomes a scalar expression: one, a number, a text, or what stands for one, as a slice of a tensor does."""


def unify_dtypes(a: ExprLike, b: ExprLike) -> tuple[scalar.PrimExpr, scalar.PrimExpr]:
    """Convert both operands to expressions of one data type."""
    if not scalar.IS_EXPR[type(a)]:
        a = scalar.as_expr(a, _like(b, a))
    if not scalar.IS_EXPR[type(b)]:
        b = scalar.as_expr(b, _like(a, b))
    if a.dtype == b.dtype:  # type: ignore[union-attr] - both are expressions now, which the table says faster
        return a, b  # type: ignore[return-value]
    return _unify(a, b)  # type: ignore[arg-type]


def _like(other: Any, number: Any) -> str | None:
    return type_beside(number, other.dtype) if isinstance(other, scalar.PrimExpr) else None


def type_beside(number: object, dtype: str) -> str | None:
    """Return the type that a Python number takes beside a value of `dtype`; None for its own, where that lacks it."""
    dt = DataType(dtype)
    if not isinstance(number, (bool, int, float)) or (isinstance(number, float) and not dt.is_real):
        return None
    if dt.is_integer and wrap(int(number), dt) != number:  # compares, and counts, as itself
        return None
    return dt if dt.code != "handle" else None


def _unify(a: scalar.PrimExpr, b: scalar.PrimExpr) -> tuple[scalar.PrimExpr, scalar.PrimExpr]:
    da, db = DataType(a.dtype), DataType(b.dtype)
    if da.lanes != db.lanes:
        if da.lanes == 1:
            return unify_dtypes(scalar.Broadcast(a, db.lanes), b)
        if db.lanes == 1:
            return unify_dtypes(a, scalar.Broadcast(b, da.lanes))
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


def _fold(fn: Callable[[Any, Any], Any], a: scalar.PrimExpr, b: scalar.PrimExpr) -> scalar.PrimExpr | None:
    """Compute with two constants of one kind as a machine does; None where they are none."""
    if type(a) is scalar.IntImm and type(b) is scalar.IntImm:
        return scalar.const(fn(a.value, b.value), a.dtype)
    if type(a) is scalar.FloatImm and type(b) is scalar.FloatImm and not DataType(a.dtype).is_custom:
        np_type = numpy_dtype(a.dtype).type
        with np.errstate(all="ignore"):
            return scalar.FloatImm(a.dtype, float(fn(np_type(a.value), np_type(b.value))))
    return None


def _folded(
    make: Callable[[Any, Any], scalar.PrimExpr], fn: Callable[[int, int], int], a: Any, b: Any
) -> scalar.PrimExpr:
    """Compute with two integer constants, else make the node."""
    both = type(a) is scalar.IntImm and type(b) is scalar.IntImm
    return scalar.const(fn(a.value, b.value), a.dtype) if both else make(a, b)


def _call(name: str) -> Callable[[Any, Any], scalar.PrimExpr]:
    return lambda a, b: scalar.CallIntrin(a.dtype, scalar.Op.get(f"tir.{name}"), (a, b))


def add(lhs: ExprLike, rhs: ExprLike) -> scalar.PrimExpr:
    """Build ``lhs + rhs``."""
    lhs, rhs = unify_dtypes(lhs, rhs)  # `is_const_int` is written out here and below: a kernel asks thousands of times
    if type(rhs) is scalar.IntImm and rhs.value == 0:
        return lhs
    if type(lhs) is scalar.IntImm and lhs.value == 0:
        return rhs
    folded = _fold(operator.add, lhs, rhs)
    return folded if folded is not None else scalar.Add(lhs, rhs)


def sub(lhs: ExprLike, rhs: ExprLike) -> scalar.PrimExpr:
    """Build ``lhs - rhs``."""
    lhs, rhs = unify_dtypes(lhs, rhs)
    if type(rhs) is scalar.IntImm and rhs.value == 0:
        return lhs
    folded = _fold(operator.sub, lhs, rhs)
    return folded if folded is not None else scalar.Sub(lhs, rhs)


def mul(lhs: ExprLike, rhs: ExprLike) -> scalar.PrimExpr:
    """Build ``lhs * rhs``."""
    lhs, rhs = unify_dtypes(lhs, rhs)
    if (type(lhs) is scalar.IntImm and lhs.value == 1) or (type(rhs) is scalar.IntImm and rhs.value == 0):
        return rhs
    if (type(rhs) is scalar.IntImm and rhs.value == 1) or (type(lhs) is scalar.IntImm and lhs.value == 0):
        return lhs
    folded = _fold(operator.mul, lhs, rhs)
    return folded if folded is not None else scalar.Mul(lhs, rhs)


def div(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a / b``: true division on floats, C division on integers."""
    a, b = unify_dtypes(a, b)
    if not DataType(a.dtype).is_float:
        return truncdiv(a, b)
    folded = _fold(operator.truediv, a, b)
    return folded if folded is not None else scalar.Div(a, b)


def _checked_divisor(a: Any, b: Any) -> tuple[scalar.PrimExpr, scalar.PrimExpr]:
    a, b = unify_dtypes(a, b)
    if scalar.is_const_int(b, 0):
        raise InvalidArgument("division by zero", found=f"{a} divided by 0")
    return a, b


def truncdiv(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build an integer division that rounds towards zero."""
    a, b = _checked_divisor(a, b)
    if scalar.is_const_int(b, 1):
        return a
    return _folded(scalar.Div, lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), a, b)


def truncmod(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build the remainder of :func:`truncdiv`; on floats, C's ``fmod``."""
    a, b = _checked_divisor(a, b)
    if scalar.is_const_int(b, 1):
        return scalar.const(0, a.dtype)
    return _folded(scalar.Mod, lambda x, y: x - y * (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)), a, b)


def floordiv(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a // b``."""
    a, b = _checked_divisor(a, b)
    if DataType(a.dtype).is_float:
        return scalar.CallIntrin(a.dtype, scalar.Op.get("tir.floor"), (scalar.Div(a, b),))
    if scalar.is_const_int(b, 1) or scalar.is_const_int(a, 0):
        return a
    return _folded(scalar.FloorDiv, operator.floordiv, a, b)


def floormod(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a % b``."""
    a, b = _checked_divisor(a, b)
    return scalar.const(0, a.dtype) if scalar.is_const_int(b, 1) else _folded(scalar.FloorMod, operator.mod, a, b)


def ceildiv(lhs: ExprLike, rhs: ExprLike) -> scalar.PrimExpr:
    """Build ``lhs / rhs`` rounded up, for a positive `rhs`."""
    lhs, rhs = _checked_divisor(lhs, rhs)
    return floordiv(add(lhs, sub(rhs, 1)), rhs)


def min_(a: ExprLike, b: ExprLike, *more: Any) -> scalar.PrimExpr:
    """Build the smallest of two or more."""
    a, b = unify_dtypes(a, b)
    found = a if a is b else _folded(scalar.Min, min, a, b)
    return min_(found, *more) if more else found


def max_(a: ExprLike, b: ExprLike, *more: Any) -> scalar.PrimExpr:
    """Build the largest of two or more."""
    a, b = unify_dtypes(a, b)
    found = a if a is b else _folded(scalar.Max, max, a, b)
    return max_(found, *more) if more else found


def _compare(cls: type[scalar.CmpOp], fn: Callable[[Any, Any], bool], a: Any, b: Any) -> scalar.PrimExpr:
    a, b = unify_dtypes(a, b)
    if (
        isinstance(a, (scalar.IntImm, scalar.FloatImm))
        and isinstance(b, (scalar.IntImm, scalar.FloatImm))
        and not DataType(a.dtype).is_custom
    ):
        return scalar.TRUE if fn(a.value, b.value) else scalar.FALSE
    return cls(a, b)


def equal(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a == b``."""
    return _compare(scalar.EQ, lambda x, y: x == y, a, b)


def not_equal(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a != b``."""
    return _compare(scalar.NE, lambda x, y: x != y, a, b)


def less(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a < b``."""
    return _compare(scalar.LT, lambda x, y: x < y, a, b)


def less_equal(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a <= b``."""
    return _compare(scalar.LE, lambda x, y: x <= y, a, b)


def greater(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a > b``."""
    return _compare(scalar.GT, lambda x, y: x > y, a, b)


def greater_equal(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a >= b``."""
    return _compare(scalar.GE, lambda x, y: x >= y, a, b)


def _truth(value: Any) -> scalar.PrimExpr:
    """Return an expression that is true or false, in each lane."""
    value = scalar.as_expr(value)
    if not isinstance(value, scalar.IntImm) and DataType(value.dtype).element != "bool":
        raise DTypeMismatch("a condition is a bool", found=value.dtype, help="compare the value with 0")
    return value


def logical_and(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a and b``; a constant operand folds."""
    a, b = _truth(a), _truth(b)
    if isinstance(a, scalar.IntImm):
        return b if a.value else a
    if isinstance(b, scalar.IntImm):
        return a if b.value else b
    return scalar.And(a, b)


def logical_or(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a or b``; a constant operand folds."""
    a, b = _truth(a), _truth(b)
    if isinstance(a, scalar.IntImm):
        return a if a.value else b
    if isinstance(b, scalar.IntImm):
        return b if b.value else a
    return scalar.Or(a, b)


def logical_not(a: ExprLike) -> scalar.PrimExpr:
    """Build ``not a``."""
    a = scalar.as_expr(a)
    return (scalar.FALSE if a.value else scalar.TRUE) if isinstance(a, scalar.IntImm) else scalar.Not(a)


def all_of(*conditions: Any) -> scalar.PrimExpr:
    """Build the conjunction of all arguments; true when there is none (TVM's ``tir.all``)."""
    return reduce(logical_and, conditions, scalar.TRUE)


def any_of(*conditions: Any) -> scalar.PrimExpr:
    """Build the disjunction of all arguments; false when there is none (TVM's ``tir.any``)."""
    return reduce(logical_or, conditions, scalar.FALSE)


def cast(dtype: str, value: ExprLike) -> scalar.PrimExpr:
    """Convert to `dtype`, folding constants; a conversion to the type a value has is the value."""
    value = scalar.as_expr(value)
    dt = DataType(dtype)
    if value.dtype == dt:
        return value
    source = DataType(value.dtype)
    if dt.lanes != source.lanes:
        if source.lanes == 1:
            return scalar.Broadcast(cast(dt.element, value), dt.lanes)
        raise DTypeMismatch("a cast cannot change the number of lanes", expected=str(dt), found=str(source))
    if isinstance(value, scalar.IntImm) and (dt.is_custom or dt.code in ("int", "uint", "float", "bool")):
        return scalar.const(_rounded(value.value, dt), dt)
    if (
        isinstance(value, scalar.FloatImm)
        and not source.is_custom
        and (dt.is_float or (dt.is_integer and math.isfinite(value.value)))
    ):
        return scalar.const(_rounded(value.value, dt) if dt.is_float else int(value.value), dt)
    if isinstance(value, scalar.Broadcast) and isinstance(value.value, (scalar.IntImm, scalar.FloatImm)):
        return scalar.Broadcast(cast(dt.element, value.value), value.lanes)
    return scalar.Cast(dt, value)


def _rounded(value: float, dt: DataType) -> float:
    """Return a number as a type of floats has it, which may be infinite; for any other type the number itself."""
    with np.errstate(over="ignore"):
        return float(numpy_dtype(dt).type(value)) if dt.is_float else value


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> scalar.PrimExpr:
    """Build a choice that evaluates both sides."""
    condition = scalar.as_expr(condition)
    true_value, false_value = unify_dtypes(true_value, false_value)
    if isinstance(condition, scalar.IntImm):
        return true_value if condition.value else false_value
    return scalar.Select(condition, true_value, false_value)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> scalar.PrimExpr:
    """Build a choice that evaluates only the side it takes, so that it may guard a load."""
    cond = _truth(cond)
    t, f = unify_dtypes(t, f)
    if isinstance(cond, scalar.IntImm):
        return t if cond.value else f
    return scalar.CallIntrin(t.dtype, scalar.Op.get("tir.if_then_else"), (cond, t, f))


def exact_const(value: float | np.generic, dtype: str | None = None) -> scalar.PrimExpr:
    """Make a constant of a number that a program gives, as :func:`const` does.

    Raises
    ------
    InvalidArgument
        When a type of integers, float16 or float32 cannot hold it.
    """
    if isinstance(value, float) and not math.isfinite(value) and dtype is not None and not DataType(dtype).is_real:
        raise InvalidArgument(f"{dtype} does not hold {value}", help="give a type that does")
    made = scalar.const(value, dtype)
    number = made.value if isinstance(made, scalar.Broadcast) else made
    if isinstance(number, scalar.IntImm) and number.dtype != "bool" and number.value != int(value):
        raise InvalidArgument(f"{number.dtype} does not hold {value}", help="give a type that does, or cast")
    return made


def abs_(x: ExprLike) -> scalar.PrimExpr:
    """Build the absolute value."""
    x = scalar.as_expr(x)
    if isinstance(x, (scalar.IntImm, scalar.FloatImm)):
        return scalar.const(abs(x.value), x.dtype)
    return scalar.CallIntrin(x.dtype, scalar.Op.get("tir.fabs" if DataType(x.dtype).is_float else "tir.abs"), (x,))


def _bits(what: str, *operands: scalar.PrimExpr) -> None:
    """Refuse floating-point operands of what works on bits."""
    found = [str(x.dtype) for x in operands if DataType(x.dtype).is_float]
    if found:
        raise InvalidArgument(
            f"{what} works on the bits of integers",
            found=", ".join(found),
            help="reinterpret gives the bits of a float",
        )


def _bitwise(name: str, fold: Callable[[int, int], int]) -> Callable[[Any, Any], scalar.PrimExpr]:
    on_bool = {"and": logical_and, "or": logical_or, "xor": not_equal}[name]

    def build(a: Any, b: Any) -> scalar.PrimExpr:
        a, b = unify_dtypes(a, b)
        _bits(f"bitwise_{name}", a, b)
        if a.dtype == "bool":
            return on_bool(a, b)
        return _folded(_call(f"bitwise_{name}"), fold, a, b)

    return build


def _shifted(a: Any, b: Any) -> tuple[scalar.PrimExpr, scalar.PrimExpr]:
    a, b = unify_dtypes(a, b)
    _bits("a shift", a, b)
    if type(b) is scalar.IntImm and not 0 <= b.value < DataType(a.dtype).bits:
        raise InvalidArgument("no shift by so many bits", expected=f"fewer than those of {a.dtype}", found=str(b.value))
    return a, b


def shift_left(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a << b``."""
    return _folded(_call("shift_left"), operator.lshift, *_shifted(a, b))


def shift_right(a: ExprLike, b: ExprLike) -> scalar.PrimExpr:
    """Build ``a >> b``, arithmetic on signed types."""
    return _folded(_call("shift_right"), operator.rshift, *_shifted(a, b))


# --- Python's operators -----------------------------------------------------------------------------------------------


def _neg(a: Any) -> scalar.PrimExpr:
    return mul(a, scalar.const(-1, a.dtype))


def _invert(a: Any) -> scalar.PrimExpr:
    _bits("bitwise_not", a)
    return logical_not(a) if a.dtype == "bool" else scalar.CallIntrin(a.dtype, scalar.Op.get("tir.bitwise_not"), (a,))


def _reflected(build: Callable[[Any, Any], scalar.PrimExpr]) -> Callable[[Any, Any], scalar.PrimExpr]:
    return lambda a, b: build(b, a)


def _comparison(build: Callable[[Any, Any], scalar.PrimExpr]) -> Callable[[Any, Any], Any]:
    return lambda a, b: build(a, b) if isinstance(b, (scalar.PrimExpr, int, float)) else NotImplemented


def _of_variable(build: Callable[..., scalar.PrimExpr]) -> Callable[..., scalar.PrimExpr]:
    return lambda a, *operands: build(a.var, *operands)


_BOTH_WAYS = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "truediv": div,
    "floordiv": floordiv,
    "mod": floormod,
    "lshift": shift_left,
    "rshift": shift_right,
    "and": _bitwise("and", int.__and__),
    "or": _bitwise("or", int.__or__),
    "xor": _bitwise("xor", int.__xor__),
}
_ONE_WAY: dict[str, Callable[..., scalar.PrimExpr]] = {
    "lt": less,
    "le": less_equal,
    "gt": greater,
    "ge": greater_equal,
    "neg": _neg,
    "invert": _invert,
}
for _name, _build in _BOTH_WAYS.items():
    _ONE_WAY[_name], _ONE_WAY["r" + _name] = _build, _reflected(_build)
for _name, _build in _ONE_WAY.items():
    setattr(scalar.PrimExpr, f"__{_name}__", _build)
    setattr(IterVar, f"__{_name}__", _of_variable(_build))
scalar.PrimExpr.__eq__, scalar.PrimExpr.__ne__ = _comparison(equal), _comparison(not_equal)  # type: ignore[method-assign]
scalar.PrimExpr.equal = equal  # type: ignore[method-assign]
scalar.PrimExpr.asobject = lambda self: self  # type: ignore[method-assign] - comparisons of TVM are not yet nodes
scalar.PrimExpr.astype = lambda self, dtype: cast(dtype, self)  # type: ignore[method-assign]
