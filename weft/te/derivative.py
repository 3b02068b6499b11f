"""The derivative of a scalar expression with respect to one of the elements that it reads."""

import math
from typing import Any

from weft import error, ir, tir


def derivative(expr: ir.PrimExpr, element: ir.PrimExpr) -> Any:
    """Differentiate a floating-point expression.

    Parameters
    ----------
    expr : PrimExpr
        Of a floating-point type; ``max`` and ``min`` of equal values have the derivative of the left one.
    element : ProducerLoad or Var
        What is varied; every structurally equal read counts as it.

    Returns
    -------
    PrimExpr or None
        None where the expression does not depend on it.

    Raises
    ------
    UnsupportedForm
        Where a function in it has no derivative here.
    """
    if isinstance(expr, type(element)) and ir.structural_equal(expr, element):
        return ir.const(1, expr.dtype)
    if not ir.DataType(expr.dtype).is_float or isinstance(expr, tir.ProducerLoad):
        return None
    return _DERIVATIVE(expr, element)


def _refuse(expr: Any) -> Any:
    name = expr.op.name.removeprefix("tir.") if isinstance(expr, ir.CallIntrin) else type(expr).__name__
    raise error.UnsupportedForm(
        f"te.gradient: '{name}' has no derivative here", found=str(expr), help="write it with functions that have one"
    )


_DERIVATIVE = ir.Dispatch("derivative of an expression", (ir.PrimExpr,), default=lambda expr, element: _refuse(expr))


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _times(a: Any, b: Any) -> Any:
    """Multiply a derivative, None where there is none, by a factor."""
    if a is None:
        return None
    return b if isinstance(a, ir.FloatImm) and a.value == 1 else a * b


@_DERIVATIVE.on(ir.FloatImm, ir.Var)
def _constant(expr: Any, element: Any) -> Any:
    return None


@_DERIVATIVE.on(ir.Add)
def _add(expr: ir.Add, element: Any) -> Any:
    return _sum(derivative(expr.a, element), derivative(expr.b, element))


@_DERIVATIVE.on(ir.Sub)
def _sub(expr: ir.Sub, element: Any) -> Any:
    return _sum(derivative(expr.a, element), _times(derivative(expr.b, element), ir.const(-1, expr.dtype)))


@_DERIVATIVE.on(ir.Mul)
def _mul(expr: ir.Mul, element: Any) -> Any:
    return _sum(_times(derivative(expr.a, element), expr.b), _times(derivative(expr.b, element), expr.a))


@_DERIVATIVE.on(ir.Div)
def _div(expr: ir.Div, element: Any) -> Any:
    below = _times(derivative(expr.b, element), -expr.a / (expr.b * expr.b))
    above = derivative(expr.a, element)
    return _sum(None if above is None else above / expr.b, below)


def _choice(condition: Any, a: Any, b: Any, build: Any, dtype: str) -> Any:
    if a is None and b is None:
        return None
    zero = ir.const(0, dtype)
    return build(condition, zero if a is None else a, zero if b is None else b)


@_DERIVATIVE.on(ir.Max, ir.Min)
def _extremum(expr: Any, element: Any) -> Any:
    left = expr.a >= expr.b if isinstance(expr, ir.Max) else expr.a <= expr.b
    return _choice(left, derivative(expr.a, element), derivative(expr.b, element), ir.select, expr.dtype)


@_DERIVATIVE.on(ir.Select)
def _select(expr: ir.Select, element: Any) -> Any:
    parts = derivative(expr.true_value, element), derivative(expr.false_value, element)
    return _choice(expr.condition, *parts, ir.select, expr.dtype)


@_DERIVATIVE.on(ir.Cast)
def _cast(expr: ir.Cast, element: Any) -> Any:
    inner = derivative(expr.value, element)
    return None if inner is None else ir.cast(expr.dtype, inner)


@_DERIVATIVE.on(ir.CallIntrin)
def _call(expr: ir.CallIntrin, element: Any) -> Any:
    name, args = expr.op.name.removeprefix("tir."), expr.args
    if name == "if_then_else":
        parts = derivative(args[1], element), derivative(args[2], element)
        return _choice(args[0], *parts, ir.if_then_else, expr.dtype)
    inner = [derivative(a, element) for a in args]
    if all(d is None for d in inner) or name in _STEPS:
        return None
    rule = _RULES.get(name)
    if rule is None:
        return _refuse(expr)
    total = None
    for d, slope in zip(inner, rule(expr, *args), strict=True):
        total = _sum(total, None if d is None else _times(d, slope))
    return total


_STEPS = frozenset(("floor", "ceil", "round", "trunc", "nearbyint"))


def _c(value: float, like: Any) -> Any:
    return ir.const(value, like.dtype)


def _power(y: Any, a: Any, n: Any) -> tuple[Any, ...]:
    return n * tir.power(a, n - _c(1, n)), y * tir.log(a)


_RULES: dict[str, Any] = {
    "exp": lambda y, x: (y,),
    "exp2": lambda y, x: (y * _c(math.log(2), x),),
    "exp10": lambda y, x: (y * _c(math.log(10), x),),
    "log": lambda y, x: (_c(1, x) / x,),
    "log2": lambda y, x: (_c(1 / math.log(2), x) / x,),
    "log10": lambda y, x: (_c(1 / math.log(10), x) / x,),
    "log1p": lambda y, x: (_c(1, x) / (_c(1, x) + x),),
    "sigmoid": lambda y, x: (y * (_c(1, x) - y),),
    "tanh": lambda y, x: (_c(1, x) - y * y,),
    "sqrt": lambda y, x: (_c(0.5, x) / y,),
    "rsqrt": lambda y, x: (_c(-0.5, x) * y / x,),
    "fabs": lambda y, x: (ir.select(x >= _c(0, x), _c(1, x), _c(-1, x)),),
    "sin": lambda y, x: (tir.cos(x),),
    "cos": lambda y, x: (-tir.sin(x),),
    "tan": lambda y, x: (_c(1, x) + y * y,),
    "sinh": lambda y, x: (tir.cosh(x),),
    "cosh": lambda y, x: (tir.sinh(x),),
    "asin": lambda y, x: (tir.rsqrt(_c(1, x) - x * x),),
    "acos": lambda y, x: (-tir.rsqrt(_c(1, x) - x * x),),
    "atan": lambda y, x: (_c(1, x) / (_c(1, x) + x * x),),
    "asinh": lambda y, x: (tir.rsqrt(x * x + _c(1, x)),),
    "acosh": lambda y, x: (tir.rsqrt(x * x - _c(1, x)),),
    "atanh": lambda y, x: (_c(1, x) / (_c(1, x) - x * x),),
    "erf": lambda y, x: (_c(2 / math.sqrt(math.pi), x) * tir.exp(-x * x),),
    "pow": _power,
    "power": _power,
    "atan2": lambda y, a, b: (b / (a * a + b * b), -a / (a * a + b * b)),
    "fma": lambda y, a, b, c: (b, a, _c(1, c)),
}
"""The slopes of each function with respect to its arguments, of its value and them."""
