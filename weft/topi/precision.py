"""16-bit floats are computed with in float32: sums of many of them would lose most of their digits."""

import functools
from collections.abc import Callable
from typing import Any

from weft import ir, te
from weft.topi.typing import Extent


def accumulator(dtype: str) -> str:
    """The data type in which values of `dtype` are summed."""
    dt = ir.DataType(dtype)
    return "float32" if dt.is_float and dt.bits < 32 else dt


def precise(*given: Any) -> str:
    """The data type in which places and products of tensors are computed: float32, float64 where one of them is."""
    return "float64" if any(t.dtype == "float64" for t in given) else "float32"


def widened(x: te.Tensor) -> Any:
    """A tensor in the data type that sums of it are taken in."""
    wide = accumulator(x.dtype)
    return x if x.dtype == wide else te.compute(x.shape, lambda *i: ir.cast(wide, x(*i)), name="wide")


def narrowed(y: te.Tensor, dtype: str) -> Any:
    """A result, converted to the data type that it should have."""
    return y if y.dtype == dtype else te.compute(y.shape, lambda *i: ir.cast(dtype, y(*i)), name="narrow")


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that takes 16-bit floats as float32; its floats come back in the first tensor's type."""

    @functools.wraps(function)
    def computed(first: te.Tensor, *more: object, **named: object) -> object:
        results = function(*(widened(x) if isinstance(x, te.Tensor) else x for x in (first, *more)), **named)
        if isinstance(results, te.Tensor):
            return narrowed(results, first.dtype) if results.dtype == accumulator(first.dtype) else results
        return [narrowed(y, first.dtype) if y.dtype == accumulator(first.dtype) else y for y in results]

    return computed


def shared(x: te.Tensor, times: Extent) -> Any:
    """A tensor, converted before it is used if each element is used so many times, one by one, that this saves work."""
    return widened(x) if (ir.as_int(times) or _TIMES) >= _TIMES else x


_TIMES = 16
