"""Element-wise operators that both registries call the same."""

from __future__ import annotations

from weft.relay.op.registry import declare, shared

__all__: list[str] = []

_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor",
    "isfinite", "isinf", "isnan", "log", "log10", "log2", "negative", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc", "logical_not", "bitwise_not",
)  # fmt: skip
_BINARY = (
    "add", "subtract", "multiply", "divide", "floor_divide", "floor_mod", "mod", "power", "maximum", "minimum", "equal",
    "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
)  # fmt: skip

for _name in _UNARY:
    declare(_name, "data", expand=_name, doc=f"Element-wise ``{_name}``.")
for _name in _BINARY:
    declare(_name, "lhs rhs", expand=_name, doc=f"Element-wise ``{_name}`` with broadcasting.")

declare("cast", "data", {"dtype": "float32"}, expand=lambda data, dtype: shared("astype", data, dtype=dtype),
        doc="Convert the elements to another data type.")  # fmt: skip
