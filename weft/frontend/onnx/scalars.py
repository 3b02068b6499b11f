"""Arithmetic on the elements of shape values: Python numbers where they are known, otherwise scalar expressions.

Integers are int64 expressions. A float is an expression only where it comes from a symbolic dimension (the scales of
``Resize``); it is kept as a ratio ``float(i) / d`` of an integer expression and a constant as long as that is exact, so
that rounding it back gives integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from weft import arith, ir

_ANALYZER = arith.Analyzer()
Element = Any  # int | float | bool | PrimExpr


def _type_of(e: Any) -> ir.DataType:
    return ir.DataType(e.dtype)


def is_known(*elements: Element) -> bool:
    """Whether all elements are numbers."""
    return not any(isinstance(e, ir.PrimExpr) for e in elements)


def to_expr(e: Element, dtype: str = "int64") -> ir.PrimExpr:
    """Return an element as an expression: ints as int64, floats as `dtype`, bools as bool."""
    if isinstance(e, ir.PrimExpr):
        return ir.cast("int64", e) if _type_of(e).is_integer else e
    if isinstance(e, (bool, np.bool_)):
        return ir.const(bool(e), "bool")
    if not isinstance(e, float):
        return ir.const(e, "int64")
    return ir.const(e, dtype if ir.DataType(dtype).is_float else "float32")


def simplify(e: Element) -> Element:
    """Simplify an expression, to a number where it is one."""
    if not isinstance(e, ir.PrimExpr):
        return e
    if type(e) not in (ir.IntImm, ir.FloatImm) and not _type_of(e).is_float:
        e = _ANALYZER.simplify(e)
    if isinstance(e, ir.IntImm):
        return bool(e.value) if e.dtype == "bool" else e.value
    return e.value if isinstance(e, ir.FloatImm) else e


def same(a: Element, b: Element) -> bool:
    """Whether two elements are the same number or expressions of equal structure."""
    if is_known(a, b):
        return bool(a == b)
    return a is b or (not is_known(a) and not is_known(b) and ir.structural_equal(a, b))


def provably_equal(a: Element, b: Element) -> bool:
    """Whether two integer elements are equal for every value of their variables."""
    if is_known(a, b):
        return bool(a == b)
    return a is b or _ANALYZER.can_prove_equal(to_expr(a), to_expr(b))


def non_negative(e: Element) -> bool:
    """Whether an integer element is at least zero for every value of its variables."""
    return bool(e >= 0) if is_known(e) else _ANALYZER.can_prove(ir.greater_equal(e, 0))


def _proves(condition: ir.PrimExpr) -> bool:
    return _ANALYZER.can_prove(condition)


# --- floats as exact ratios -------------------------------------------------------------------------------------------


def _is_float(*elements: Element) -> bool:
    return any(isinstance(e, float) or (isinstance(e, ir.PrimExpr) and _type_of(e).is_float) for e in elements)


def _float_type(*elements: Element) -> str:
    return next((_type_of(e) for e in elements if isinstance(e, ir.PrimExpr) and _type_of(e).is_float), "float32")


def _ratio(e: Element) -> tuple[Element, int] | None:
    """Return (i, d) where e is exactly ``i / d`` with an integer element and a small positive constant."""
    if isinstance(e, (int, float)) and math.isfinite(e):
        f = Fraction(e)
        return (f.numerator, f.denominator) if f.denominator <= 4096 else None
    if isinstance(e, ir.Cast) and _type_of(e.value).is_integer:
        return e.value, 1
    if (
        isinstance(e, ir.Div)
        and isinstance(e.a, ir.Cast)
        and isinstance(e.b, ir.FloatImm)
        and _type_of(e.a.value).is_integer
    ):
        if e.b.value >= 1 and e.b.value.is_integer():
            return e.a.value, int(e.b.value)
    return None


def _from_ratio(i: Element, d: int, dtype: str) -> Element:
    if is_known(i):
        return i / d
    if d != 1 and _ANALYZER.can_prove_equal(ir.floormod(i, ir.int64(d)), ir.int64(0)):
        i, d = simplify(ir.floordiv(i, ir.int64(d))), 1
        if is_known(i):
            return float(i)
    top = ir.Cast(ir.DataType(dtype), i)
    return top if d == 1 else ir.Div(top, ir.FloatImm(ir.DataType(dtype), float(d)))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def add(a: Element, b: Element) -> Element:
    """Add."""
    if is_known(a, b):
        return a + b
    if _is_float(a, b):
        x, y, dtype = _ratio(a), _ratio(b), _float_type(a, b)
        if x and y and x[1] * y[1] <= 4096:
            return _from_ratio(add(multiply(x[0], y[1]), multiply(y[0], x[1])), x[1] * y[1], dtype)
        return to_expr(a, dtype) + to_expr(b, dtype)
    return simplify(to_expr(a) + to_expr(b))


def subtract(a: Element, b: Element) -> Element:
    """Subtract."""
    if is_known(a, b):
        return a - b
    if _is_float(a, b):
        return add(a, multiply(b, -1.0))
    return simplify(to_expr(a) - to_expr(b))


def negate(a: Element) -> Element:
    """Change the sign."""
    return -a if is_known(a) else multiply(a, -1.0 if _is_float(a) else -1)


def multiply(a: Element, b: Element) -> Element:
    """Multiply."""
    if is_known(a, b):
        return a * b
    if not _is_float(a, b):
        return simplify(to_expr(a) * to_expr(b))
    dtype = _float_type(a, b)
    x, y = _ratio(a), _ratio(b)
    if x and y and x[1] * y[1] <= 4096 and (is_known(x[0]) or is_known(y[0])):
        return _from_ratio(multiply(x[0], y[0]), x[1] * y[1], dtype)
    for p, q in ((a, b), (b, a)):
        if isinstance(q, ir.Div) and same(p, q.b):
            return simplify(q.a)
    return ir.mul(to_expr(a, dtype), to_expr(b, dtype))


def divide(a: Element, b: Element) -> Element:
    """Divide as ONNX does: integers truncate. None where a known divisor is zero."""
    if is_known(b) and b == 0 and not _is_float(a, b):
        return None
    if is_known(a, b):
        return _divide_numbers(a, b)
    if not _is_float(a, b):
        return _divide_ints(a, b)
    dtype = _float_type(a, b)
    x = _ratio(a)
    if x and is_known(b) and float(b).is_integer() and b > 0 and x[1] * b <= 4096:
        return _from_ratio(x[0], x[1] * int(b), dtype)
    if is_known(b) and b != 0 and Fraction(1 / b).denominator == 1 and Fraction(b) * Fraction(1 / b) == 1:
        return multiply(a, 1 / b)
    if not is_known(a, b) and same(a, b):
        return 1.0
    return ir.div(to_expr(a, dtype), to_expr(b, dtype))


def _divide_numbers(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _divide_ints(a: Element, b: Element) -> Element:
    cancelled = cancel_product([a], [b])
    if cancelled is not None:
        return cancelled
    if non_negative(a) and non_negative(b):
        return simplify(
            ir.floordiv(
                to_expr(a), to_expr(b) if is_known(b) or _proves(ir.greater(b, 0)) else ir.max_(to_expr(b), ir.int64(1))
            )
        )
    return simplify(ir.truncdiv(to_expr(a), to_expr(b)))


def ceildiv(a: Element, b: int) -> Element:
    """Divide an integer by a positive constant, rounding up."""
    return -(-a // b) if is_known(a) else simplify(ir.floordiv(to_expr(a) + (b - 1), ir.int64(b)))


def floor_divide(a: Element, b: int) -> Element:
    """Divide an integer by a positive constant, rounding down."""
    return a // b if is_known(a) else simplify(ir.floordiv(to_expr(a), ir.int64(b)))


def modulo(a: Element, b: Element, truncate: bool) -> Element:
    """Take the remainder, of the divisor's sign or, with `truncate`, the dividend's. None where a divisor is zero."""
    if is_known(b) and b == 0:
        return None
    if is_known(a, b):
        return math.fmod(a, b) if _is_float(a, b) else (a - b * _divide_numbers(a, b)) if truncate else a % b
    if _is_float(a, b):
        return None
    return simplify(ir.truncmod(to_expr(a), to_expr(b)) if truncate else ir.floormod(to_expr(a), to_expr(b)))


def minimum(a: Element, b: Element) -> Element:
    """Take the smaller."""
    return min(a, b) if is_known(a, b) else simplify(ir.min_(*_pair(a, b)))


def maximum(a: Element, b: Element) -> Element:
    """Take the larger."""
    return max(a, b) if is_known(a, b) else simplify(ir.max_(*_pair(a, b)))


def clamp(e: Element, low: Element, high: Element) -> Element:
    """Limit an integer to a range."""
    return minimum(maximum(e, low), high)


def _pair(a: Element, b: Element) -> tuple[ir.PrimExpr, ir.PrimExpr]:
    dtype = _float_type(a, b)
    return to_expr(a, dtype), to_expr(b, dtype)


def compare(op: str, a: Element, b: Element) -> Element:
    """Compare: ``op`` is Equal, Less, LessOrEqual, Greater or GreaterOrEqual."""
    if is_known(a, b):
        return bool(
            {"Equal": a == b, "Less": a < b, "LessOrEqual": a <= b, "Greater": a > b, "GreaterOrEqual": a >= b}[op]
        )
    if op == "Equal" and not _is_float(a, b):
        a, b = to_expr(a), to_expr(b)
        if a.dtype == "bool" or b.dtype == "bool":
            return simplify(ir.equal(ir.cast("int64", a), ir.cast("int64", b)))
        # A size is never a negative number, which is what exporters compare it with.
        if _proves(a > b) or _proves(a < b):
            return False
    build = getattr(ir, op.replace("OrEqual", "_equal").lower())
    return simplify(build(*_pair(a, b)))


def logic(op: str, a: Element, b: Element = True) -> Element:
    """Combine truth values: ``op`` is And, Or, Xor or Not (of `a`)."""
    if is_known(a, b):
        return {"And": bool(a and b), "Or": bool(a or b), "Xor": bool(a) != bool(b), "Not": not a}[op]
    x, y = to_expr(a), to_expr(b)
    if op == "Not":
        return simplify(ir.logical_not(x))
    if op == "Xor":
        return simplify(ir.logical_or(ir.logical_and(x, ir.logical_not(y)), ir.logical_and(ir.logical_not(x), y)))
    return simplify((ir.logical_and if op == "And" else ir.logical_or)(x, y))


def choose(condition: Element, a: Element, b: Element) -> Element:
    """Take `a` where the condition holds, else `b`."""
    if is_known(condition):
        return a if condition else b
    return a if same(a, b) else simplify(ir.select(to_expr(condition), *_pair(a, b)))


# --- rounding and casts -----------------------------------------------------------------------------------------------


def floor(e: Element) -> Element:
    """Round a float down."""
    if is_known(e):
        return float(math.floor(e)) if math.isfinite(e) else e
    r = _ratio(e)
    return _from_ratio(floor_divide(*r), 1, e.dtype) if r else ir.CallIntrin(e.dtype, ir.Op.get("tir.floor"), (e,))


def ceil(e: Element) -> Element:
    """Round a float up."""
    if is_known(e):
        return float(math.ceil(e)) if math.isfinite(e) else e
    r = _ratio(e)
    return _from_ratio(ceildiv(*r), 1, e.dtype) if r else ir.CallIntrin(e.dtype, ir.Op.get("tir.ceil"), (e,))


def round_even(e: Element) -> Element:
    """Round a float to the nearest integer, halves to even."""
    if is_known(e):
        return float(np.rint(e))
    r = _ratio(e)
    return e if r and r[1] == 1 else ir.CallIntrin(e.dtype, ir.Op.get("tir.nearbyint"), (e,))


def square_root(e: Element) -> Element:
    """Take the square root."""
    if is_known(e):
        return math.sqrt(e) if e >= 0 else math.nan
    return ir.CallIntrin(e.dtype, ir.Op.get("tir.sqrt"), (e,))


def cast_element(e: Element, dtype: str) -> Element:
    """Convert to a data type; a number is rounded as the type does. None where that cannot be done here."""
    dt = ir.DataType(dtype)
    if is_known(e):
        return _cast_number(e, dt)
    source = _type_of(e)
    if dt == "bool":
        return e if source == "bool" else logic("Not", compare("Equal", e, 0))
    if dt.is_integer:
        if source == "bool":
            return ir.cast("int64", e)
        if dt.bits < 32 or (dt.code == "uint" and not non_negative(e)):  # it may wrap
            return None
        return _truncate(e) if source.is_float else e
    if dt not in ("float32", "float64") or source == "bool":
        return None
    return ir.cast(dt, e)


def _cast_number(e: Any, dt: ir.DataType) -> Any:
    if dt == "bool":
        return bool(e)
    if dt.is_integer:
        if isinstance(e, float) and not math.isfinite(e):
            return None
        value = int(e)
        if dt.code == "uint":
            return value & ((1 << dt.bits) - 1)
        half = 1 << (dt.bits - 1)
        return (value + half) % (2 * half) - half
    with np.errstate(all="ignore"):
        return float(ir.numpy_dtype(dt).type(e))


def _truncate(e: ir.PrimExpr) -> Element:
    r = _ratio(e)
    if r and (r[1] == 1 or non_negative(r[0])):
        return floor_divide(*r)
    return ir.cast("int64", e)


# --- products ---------------------------------------------------------------------------------------------------------


def product(elements: Iterable[Element]) -> Element:
    """Multiply all elements."""
    result: Element = 1
    for e in elements:
        result = multiply(result, e)
    return result


def cancel_product(numerator: Sequence[Element], denominator: Sequence[Element]) -> Element | None:
    """Return the quotient of two products where it is exact by cancelling equal factors, else None."""
    top, top_factors = _factors(numerator)
    bottom, bottom_factors = _factors(denominator)
    for f in bottom_factors:
        hit = next((i for i, t in enumerate(top_factors) if same(t, f)), None)
        if hit is None:
            return None
        del top_factors[hit]
    if bottom == 0 or top % bottom:
        return None
    return product([top // bottom, *top_factors])


def _factors(elements: Any) -> tuple[int, list[Element]]:
    number, factors, stack = 1, [], list(elements)
    while stack:
        e = stack.pop()
        if isinstance(e, ir.Mul):
            stack += [e.a, e.b]
        elif isinstance(e, ir.IntImm) or is_known(e):
            number *= int(e)
        else:
            factors.append(e)
    return number, factors
