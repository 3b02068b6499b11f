"""Arithmetic, comparisons and functions of each element."""

from collections.abc import Callable
from typing import Any

from weft.frontend.nn.tensor import Tensor, apply
from weft.spelling import also_called, named

__all__ = [
    "add",
    "astype",
    "cos",
    "divide",
    "equal",
    "erf",
    "exp",
    "floor",
    "gelu",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "prelu",
    "relu",
    "relu6",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "tanh",
    "where",
]


def _unary(op: str, doc: str, name: str = "") -> Callable[..., Tensor]:
    short = op.rsplit(".", 1)[-1]

    def operation(x: Tensor, name: str = name or short) -> Tensor:
        return apply(op, x, name=name)

    return named(operation, short, doc)


def _binary(op: str, doc: str, name: str = "") -> Callable[..., Tensor]:
    @also_called(x1="a", x2="b")
    def operation(a: Any, b: Any, name: str = name or op) -> Tensor:
        return apply(op, a, b, name=name)

    return named(operation, op, doc)


add = _binary("add", "``a + b``; operands broadcast, and one of them may be a number.")
subtract = _binary("subtract", "``a - b``.")
multiply = _binary("multiply", "``a * b``.", "mul")
divide = _binary("divide", "``a / b``.")
power = _binary("power", "``a`` to the power of ``b``.")
maximum = _binary("maximum", "The greater of each pair.")
minimum = _binary("minimum", "The lesser of each pair.")
equal = _binary("equal", "``a == b``.")
not_equal = _binary("not_equal", "``a != b``.")
less = _binary("less", "``a < b``.")
less_equal = _binary("less_equal", "``a <= b``.")
greater = _binary("greater", "``a > b``.")
greater_equal = _binary("greater_equal", "``a >= b``.")
logical_and = _binary("logical_and", "Whether both hold.")
logical_or = _binary("logical_or", "Whether one of both holds.")

cos = _unary("cos", "The cosine.")
erf = _unary("erf", "The error function.")
exp = _unary("exp", "``e`` to the power of `x`.")
floor = _unary("floor", "The greatest whole number that is not greater.")
log = _unary("log", "The natural logarithm.")
logical_not = _unary("logical_not", "Whether `x` does not hold.")
negative = _unary("negative", "``-x``.", "neg")
relu = _unary("nn.relu", "``max(x, 0)``.")
rsqrt = _unary("rsqrt", "``1 / sqrt(x)``.")
sigmoid = _unary("sigmoid", "``1 / (1 + exp(-x))``.")
silu = _unary("nn.silu", "``x * sigmoid(x)``.")
sin = _unary("sin", "The sine.")
sqrt = _unary("sqrt", "The square root.")
square = _unary("square", "``x * x``.")
tanh = _unary("tanh", "The hyperbolic tangent.")


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """Convert to another data type; nothing is emitted where it is the same."""
    return x if dtype == x.dtype else apply("astype", x, dtype=dtype, name=name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """``x`` times the normal distribution's function of `x`, by a hyperbolic tangent where `approximate` is "tanh"."""
    return apply("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", x, name=name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """``x`` where positive, else ``alpha * x`` with one `alpha` for each channel, which is dimension 1."""
    return apply("nn.prelu", x, alpha, name=name)


def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """``min(max(x, 0), 6)``."""
    return apply("nn.relu6", x, name=name)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus") -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, and `x` itself where ``beta * x`` is above the threshold."""
    return apply("nn.softplus", x, beta=beta, threshold=threshold, name=name)


def where(condition: Tensor, x1: Tensor | float, x2: Tensor | float, name: str = "where") -> Tensor:
    """`x1` where the condition holds, else `x2`; numbers are of the other one's type, two of float32."""
    dtype = next((v.dtype for v in (x1, x2) if isinstance(v, Tensor)), "float32")
    branches = [v if isinstance(v, Tensor) else Tensor.from_scalar(v, dtype) for v in (x1, x2)]
    if condition.dtype != "bool":
        condition = astype(condition, "bool")
    return apply("where", condition, *branches, name=name)
