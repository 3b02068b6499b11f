"""Reductions under the names and parameter orders of ``tvm.topi``."""

from typing import Any

from weft.te import Tensor
from weft.topi.reduce import arg_reduce, reduce
from weft.topi.shape import normalize_axes, normalize_axis
from weft.topi.typing import Axes


def _reduce(kind: str, data: Any, axis: Any, keepdims: bool) -> Any:
    return reduce(kind, data, normalize_axes(kind, axis, data.ndim), keepdims)


def sum(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """The sum over axes."""
    return _reduce("sum", data, axis, keepdims)


def prod(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """The product over axes."""
    return _reduce("prod", data, axis, keepdims)


def max(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """The maximum over axes."""
    return _reduce("max", data, axis, keepdims)


def min(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """The minimum over axes."""
    return _reduce("min", data, axis, keepdims)


def all(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """Whether all elements hold."""
    return _reduce("all", data, axis, keepdims)


def any(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """Whether any element holds."""
    return _reduce("any", data, axis, keepdims)


def _arg(kind: str, data: Any, axis: Any, keepdims: bool, select_last_index: bool) -> Any:
    a = None if axis is None else normalize_axis("arg" + kind, axis, data.ndim)
    return arg_reduce(kind, data, a, keepdims, select_last_index, "int32")


def argmax(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index of the greatest element along an axis (int32)."""
    return _arg("max", data, axis, keepdims, select_last_index)


def argmin(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index of the least element along an axis (int32)."""
    return _arg("min", data, axis, keepdims, select_last_index)
