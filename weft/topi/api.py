"""Functions whose parameter order in ``tvm.topi`` differs from the operators'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir import PrimExpr, as_int, cast, if_then_else, int64
from weft.topi.create import arange as _arange
from weft.topi.create import eye as _eye
from weft.topi.create import full as _full
from weft.topi.create import trilu as _trilu
from weft.topi.elementwise import clip as _clip
from weft.topi.index import gather_batched, gather_elements, take_flat
from weft.topi.index import gather_nd as _gather_nd
from weft.topi.index import take as _take
from weft.topi.manipulate import tile as _tile
from weft.topi.manipulate import transpose
from weft.topi.matmul import einsum as _einsum
from weft.topi.matmul import matmul as _matmul
from weft.topi.reorder import dynamic_strided_slice
from weft.topi.scatter import scatter_nd as _scatter_nd
from weft.topi.slice import strided_slice as _strided_slice
from weft.topi.sort import argsort as _argsort
from weft.topi.sort import topk as _topk
from weft.topi.typing import Bounds, Extent, Extents, Scalar, Shape


def full(shape: Shape, dtype: str, fill_value: Scalar) -> Any:
    """A tensor of one value."""
    return _full(shape, fill_value, dtype)


def arange(start: Scalar, stop: Scalar | None = None, step: Scalar = 1, dtype: str = "float32") -> Any:
    """Evenly spaced numbers; of one number, from 0 up to it."""
    return _arange(0, start, step, dtype) if stop is None else _arange(start, stop, step, dtype)


def strided_slice(
    a: te.Tensor,
    begin: Bounds,
    end: Bounds | Sequence[Extent | None],
    strides: Bounds | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Any:
    """A part of a tensor; with `slice_mode` "size", `end` are lengths, of which a negative one is the rest.

    Bounds in tensors are known at run time only: the extents of the result are variables then.
    """
    ends: Any = end
    by: Any = strides
    if isinstance(begin, te.Tensor):
        ones = te.compute(begin.shape, lambda _: int64(1), name="ones")
        extents = [te.size_var(f"dim{d}", "int64") for d in range(a.ndim)]
        return dynamic_strided_slice(a, begin, ends, ones if by is None else by, extents)
    axes = list(range(len(begin))) if axes is None else [int(d) for d in axes]
    if slice_mode == "size":
        ends = [a.shape[d] if (as_int(e) or 0) < 0 else b + e for d, b, e in zip(axes, begin, ends, strict=True)]
    steps = [1] * len(axes) if by is None else [*by, *[1] * (len(axes) - len(by))]
    if not isinstance(ends, te.Tensor):  # None is behind the last element
        ends = [
            (a.shape[d] if (as_int(s) or 1) > 0 else -1 - a.shape[d]) if e is None else e
            for d, e, s in zip(axes, ends, steps, strict=True)
        ]
    return _strided_slice(a, axes, begin, ends, steps, assume_inbound)  # type: ignore[arg-type]


def topk(
    data: te.Tensor,
    k: Extent = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:
    """The k greatest (or, ascending, least) of each line, sorted; equal elements by index. A k below 1 means all."""
    known = as_int(k)
    return _topk(data, -1 if known is not None and known < 1 else k, axis, ret_type, is_ascend, dtype)


def take(a: te.Tensor, indices: te.Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Any:
    """Elements along an axis by index; without an axis, of all elements in row-major order."""
    if batch_dims:
        return gather_batched(a, indices, batch_dims, axis)
    return _take(a, indices, axis, mode) if axis is not None or a.ndim == 1 else take_flat(a, indices, mode)


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> Any:
    """One element for each index along an axis."""
    return gather_elements(data, indices, axis)


def argsort(
    data: te.Tensor,
    valid_count: te.Tensor | None = None,
    axis: int = -1,
    is_ascend: bool | int = 1,
    dtype: str = "float32",
) -> Any:
    """The positions that sort along an axis."""
    return _argsort(data, axis, bool(is_ascend), dtype)


def einsum(subscripts: str, *operand: Any) -> Any:
    """Einstein summation."""
    return _einsum(operand, subscripts)


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> Any:
    """Product of matrices, either of which may be transposed."""
    turned = lambda t: transpose(t, (*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))  # noqa: E731
    return _matmul(turned(a) if transp_a else a, turned(b) if transp_b else b)


def trilu(data: te.Tensor, k: Extent = 0, upper: bool | int = True) -> Any:
    """The upper or lower triangle of each matrix."""
    return _trilu(data, int64(k) if isinstance(k, int) else k, bool(upper))


def clip(x: te.Tensor, a_min: Scalar, a_max: Scalar) -> Any:
    """Limit to ``a_min..a_max``."""
    return _clip(x, a_min, a_max)


def eye(n: Extent, m: Extent | None = None, k: Extent = 0, dtype: str = "float32") -> Any:
    """Ones on the k-th diagonal of a matrix, which is square without `m`."""
    return _eye(n, n if m is None else m, k, dtype)


def tile(a: te.Tensor, reps: Extents) -> Any:
    """Repeat the whole tensor along each axis."""
    return _tile(a, reps)


def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> Any:
    """Take slices by tuples of indices, which stand along the first axis of `indices`."""
    return _gather_nd(a, transpose(indices, (*range(1, indices.ndim), 0)), batch_dims)


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> Any:
    """Write slices by tuples of indices, which stand along the first axis of `indices`.

    Parameters
    ----------
    mode : str
        How old and new values are combined: update, add, mul, min or max.
    """
    return _scatter_nd(data, transpose(indices, (*range(1, indices.ndim), 0)), updates, mode)


def shape(array: te.Tensor, dtype: str = "int32") -> Any:
    """The extents as a vector."""

    def element(i: PrimExpr) -> Any:
        value = cast(dtype, array.shape[-1])
        for d in reversed(range(array.ndim - 1)):
            value = if_then_else(i.equal(d), cast(dtype, array.shape[d]), value)
        return value

    return te.compute((array.ndim,), element, name="T_shape")
