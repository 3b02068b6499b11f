"""Element-wise operators of one and more operands; activations are in ``activation``."""

import numpy as np

from weft import ir
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import dtype_of

_UNARY = tuple(
    (
        "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log log10 log2 "
        "negative round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc logical_not bitwise_not"
    ).split()
)
_BINARY = tuple(
    (
        "add subtract multiply divide floor_divide floor_mod power maximum minimum equal not_equal less less_equal "
        "greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift "
        "right_shift"
    ).split()
)


def scalar(value: float, dtype: str) -> ir.Constant:
    """Return a number as a constant of a data type, for use in expansions."""
    return ir.constant(np.array(value, ir.numpy_dtype(dtype)))


for _name in _UNARY:
    declare(_name, "data", expand=_name, doc=f"Element-wise ``{_name}``.")
for _name in _BINARY:
    declare(_name, "lhs rhs", expand=_name, doc=f"Element-wise ``{_name}`` with broadcasting.")
for _name in ("exp", "tanh", "erf"):
    declare(f"fast_{_name}", "data", expand=_name, doc=f"Element-wise ``{_name}``, as exact as ``{_name}`` is.")
for _name in ("mod", "trunc_mod"):
    declare(_name, "lhs rhs", expand="fmod", doc="Remainder with the sign of the dividend.")


def _trunc_divide(lhs: ir.Expr, rhs: ir.Expr) -> ir.Expr:
    out = shared("divide", lhs, rhs)
    return shared("trunc", out) if ir.DataType(dtype_of(lhs)).is_float else out


declare("trunc_divide", "lhs rhs", expand=_trunc_divide, doc="Division rounded towards zero.")

# --- data types -------------------------------------------------------------------------------------------------------

declare(
    "reinterpret",
    "data",
    {"dtype": REQUIRED},
    expand="reinterpret",
    doc="The bits of numbers as those of another data type of the same size.",
)
declare("cast", "data", {"dtype": REQUIRED}, expand="astype", doc="Convert the elements to another data type.")
declare(
    "cast_like",
    "data dtype_like",
    expand=lambda data, dtype_like: shared("astype", data, dtype=dtype_of(dtype_like)),
    doc="Convert the elements to the data type of another tensor.",
)


declare(
    "copy",
    "data",
    expand=lambda data: shared("astype", data, dtype=dtype_of(data)),
    doc="The same elements in memory of their own.",
)

# --- limits and choices -----------------------------------------------------------------------------------------------

declare(
    "clip",
    "a",
    {"a_min": REQUIRED, "a_max": REQUIRED},
    expand=lambda a, a_min, a_max: shared("clip", a, min=a_min, max=a_max),
    doc="Limit to ``a_min..a_max``.",
)


def _where(condition: ir.Expr, x: ir.Expr, y: ir.Expr) -> ir.Expr:
    mask = condition if dtype_of(condition) == "bool" else shared("astype", condition, dtype="bool")
    return shared("where", mask, x, y)


declare(
    "where",
    "condition x y",
    expand=_where,
    doc="``x`` where `condition` is true or not zero, else ``y``, with broadcasting.",
)


def _fixed_point_multiply(data: ir.Expr, multiplier: int, shift: int) -> ir.Expr:
    """Multiply in 64 bits and round half up."""
    total = 31 - int(shift)
    wide = shared("multiply", shared("astype", data, dtype="int64"), scalar(int(multiplier), "int64"))
    if total > 0:
        wide = shared("right_shift", shared("add", wide, scalar(1 << (total - 1), "int64")), scalar(total, "int64"))
    elif total < 0:
        wide = shared("left_shift", wide, scalar(-total, "int64"))
    return shared("astype", wide, dtype=dtype_of(data))


declare(
    "fixed_point_multiply",
    "data",
    {"multiplier": REQUIRED, "shift": REQUIRED},
    expand=_fixed_point_multiply,
    doc="``data * multiplier * 2**(shift - 31)``, rounded, for a multiplier in Q31.",
)
