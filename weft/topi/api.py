"""Functions whose parameter order in ``tvm.topi`` differs from the operators'."""

from __future__ import annotations

from typing import Any

from weft.ir import as_int, int64
from weft.topi.create import arange as _arange
from weft.topi.create import full as _full
from weft.topi.create import trilu as _trilu
from weft.topi.index import gather_batched, gather_elements, take_flat
from weft.topi.index import take as _take
from weft.topi.manipulate import transpose
from weft.topi.matmul import einsum as _einsum
from weft.topi.matmul import matmul as _matmul
from weft.topi.slice import strided_slice as _strided_slice
from weft.topi.sort import argsort as _argsort

__all__ = ["arange", "argsort", "einsum", "full", "gather", "matmul", "strided_slice", "take", "trilu"]


def full(shape: Any, dtype: str, fill_value: Any) -> Any:
    """A tensor of one value."""
    return _full(shape, fill_value, dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Any:
    """Evenly spaced numbers; of one number, from 0 up to it."""
    return _arange(0, start, step, dtype) if stop is None else _arange(start, stop, step, dtype)


def strided_slice(a: Any, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end") -> Any:
    """A part of a tensor; with `slice_mode` "size", `end` are lengths, of which -1 is the rest."""
    axes = list(range(len(begin))) if axes is None else [int(d) for d in axes]
    if slice_mode == "size":
        end = [a.shape[d] if as_int(e) == -1 else b + e for d, b, e in zip(axes, begin, end, strict=True)]
    steps = [1] * len(axes) if strides is None else [*strides, *[1] * (len(axes) - len(strides))]
    return _strided_slice(a, axes, begin, end, steps)


def take(a: Any, indices: Any, axis: Any = None, batch_dims: int = 0, mode: str = "clip") -> Any:
    """Elements along an axis by index; without an axis, of all elements in row-major order."""
    if batch_dims:
        return gather_batched(a, indices, batch_dims, axis)
    return _take(a, indices, axis, mode) if axis is not None or a.ndim == 1 else take_flat(a, indices, mode)


def gather(data: Any, axis: int, indices: Any) -> Any:
    """One element for each index along an axis."""
    return gather_elements(data, indices, axis)


def argsort(data: Any, valid_count: Any = None, axis: int = -1, is_ascend: Any = 1, dtype: str = "float32") -> Any:
    """The positions that sort along an axis."""
    return _argsort(data, axis, bool(is_ascend), dtype)


def einsum(subscripts: str, *operand: Any) -> Any:
    """Einstein summation."""
    return _einsum(operand, subscripts)


def matmul(tensor_a: Any, tensor_b: Any, transp_a: bool = False, transp_b: bool = False) -> Any:
    """Product of matrices, either of which may be transposed."""
    turned = lambda t: transpose(t, (*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))  # noqa: E731
    return _matmul(turned(tensor_a) if transp_a else tensor_a, turned(tensor_b) if transp_b else tensor_b)


def trilu(data: Any, k: Any = 0, upper: Any = True) -> Any:
    """The upper or lower triangle of each matrix."""
    return _trilu(data, int64(k) if isinstance(k, int) else k, bool(upper))
