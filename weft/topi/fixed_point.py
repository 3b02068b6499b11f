"""Products with fixed-point numbers, and logarithms of integers."""

from collections.abc import Sequence
from typing import Any

from weft import te, tir
from weft.ir import DataType, as_expr, cast, int64
from weft.topi.broadcast import elementwise
from weft.topi.typing import Operand, Whole

_FRACTION = 31
"""The bits behind the point of a multiplier, which is an int32 between -1 and 1."""


def _scaled(value: Any, multiplier: Any, left: Any, right: Any) -> Any:
    """``value * 2 ** left * multiplier / 2 ** (31 + right)``, rounded half up."""
    product = tir.shift_left(cast("int64", value), cast("int64", left)) * cast("int64", multiplier)
    shift = int64(_FRACTION) + cast("int64", right)
    half = tir.shift_left(int64(1), shift - int64(1))
    return cast(value.dtype, tir.shift_right(product + half, shift))


def fixed_point_multiply(x: Operand, multiplier: int, shift: int) -> Any:
    """Multiply int32 values by ``multiplier / 2 ** 31 * 2 ** shift``, rounded half up."""
    left, right = max(int(shift), 0), max(-int(shift), 0)

    def scaled(value: Any) -> Any:
        return _scaled(value, int64(int(multiplier)), int64(left), int64(right))

    return elementwise(scaled, x, name="T_fixed_point_multiply") if isinstance(x, te.Tensor) else scaled(as_expr(x))


def fixed_point_multiply_per_axis(
    x: te.Tensor,
    y: te.Tensor,
    lshift: te.Tensor,
    rshift: te.Tensor,
    is_lshift_required: Whole,
    is_rshift_required: Whole,
    axes: Sequence[int],
) -> Any:
    """Multiply int32 values by fixed-point numbers `y` that differ along `axes`, shifted as `lshift` and `rshift` say.

    Parameters
    ----------
    y, lshift, rshift : Tensor
        int32, one value for each index of `axes`.
    is_lshift_required, is_rshift_required : int
        Whether any of the shifts is not 0.
    """
    along = [int(a) for a in axes]

    def element(*i: Any) -> Any:
        at = [i[a] for a in along]
        left = lshift(*at) if int(is_lshift_required) else int64(0)
        right = rshift(*at) if int(is_rshift_required) else int64(0)
        return _scaled(x(*i), y(*at), left, right)

    return te.compute(x.shape, element, name="T_fixed_point_multiply")


def ceil_log2(x: te.Tensor) -> Any:
    """The least power of two that reaches a scalar, as its exponent."""
    value = as_expr(x)
    if DataType(value.dtype).is_float:
        return tir.ceil(tir.log2(value))
    return cast(value.dtype, tir.ceil(tir.log2(cast("float64", value))))
