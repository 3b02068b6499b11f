"""Reductions under the names and parameter orders of ``tvm.topi``."""

from collections.abc import Callable
from typing import Any

from weft.spelling import named
from weft.te import Tensor
from weft.topi.reduce import arg_reduce, reduce
from weft.topi.shape import normalize_axes, normalize_axis
from weft.topi.typing import Axes


def _reduction(kind: str, doc: str) -> Callable[..., Any]:
    def operation(data: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
        return reduce(kind, data, normalize_axes(kind, axis, data.ndim), keepdims)

    return named(operation, kind, doc)


sum = _reduction("sum", "The sum over axes.")
prod = _reduction("prod", "The product over axes.")
max = _reduction("max", "The maximum over axes.")
min = _reduction("min", "The minimum over axes.")
all = _reduction("all", "Whether all elements hold.")
any = _reduction("any", "Whether any element holds.")


def _arg(kind: str, data: Any, axis: Any, keepdims: bool, select_last_index: bool) -> Any:
    a = None if axis is None else normalize_axis("arg" + kind, axis, data.ndim)
    return arg_reduce(kind, data, a, keepdims, select_last_index, "int32")


def argmax(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index of the greatest element along an axis (int32)."""
    return _arg("max", data, axis, keepdims, select_last_index)


def argmin(data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index of the least element along an axis (int32)."""
    return _arg("min", data, axis, keepdims, select_last_index)
