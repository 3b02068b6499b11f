"""Gathering and scattering by index."""

import math
from typing import Any

from weft import error, ir, te, tir
from weft.ir import PrimExpr, as_expr, as_int, as_shape, cast, exact_const, floormod, int64, select
from weft.topi.broadcast import broadcast_index, broadcast_shape
from weft.topi.shape import normalize_axis, product, unravel
from weft.topi.typing import Extent, Scalar, Tensors


def whole(index: Extent) -> Any:
    """An index in int64; a DTypeMismatch where it is no integer, for what is behind a point is not cut off."""
    index = as_expr(index)
    if not (ir.DataType(index.dtype).is_integer or index.dtype == "bool"):
        raise error.DTypeMismatch(
            "indices are integers", expected="int32 or int64", found=index.dtype, help="round and cast them first"
        )
    return cast("int64", index)


def clamped(index: Extent, extent: Extent) -> Any:
    """An index made safe: memory outside of the tensor is never read, whatever the data."""
    return tir.max(tir.min(whole(index), extent - int64(1)), int64(0))


def from_end(index: Extent, extent: Extent) -> Any:
    """An index that counts from the end where it is negative."""
    index = whole(index)
    return select(index < int64(0), index + extent, index)


def _wrapped(index: Any, extent: Any) -> Any:
    """An index that may count from the end, made safe."""
    return clamped(from_end(index, extent), extent)


def _resolved(index: Any, extent: Any, mode: str) -> Any:
    """An index by the rule of a mode: counted from the end where negative, clamped, or counted round the axis."""
    if mode == "wrap":
        return floormod(whole(index), tir.max(extent, int64(1)))
    return _wrapped(index, extent) if mode == "fast" else clamped(index, extent)


def take(x: te.Tensor, indices: te.Tensor | Scalar, axis: int | None = None, mode: str = "fast") -> Any:
    """Take elements along an axis by index, or by a scalar."""
    a, picked = normalize_axis("take", axis or 0, x.ndim), indices.shape if isinstance(indices, te.Tensor) else ()
    n, given = len(picked), indices

    def place(*i: Any) -> Any:
        return given(*i) if isinstance(given, te.Tensor) else whole(given)  # type: ignore[arg-type]

    def element(*i: Any) -> Any:
        index, extent = place(*i[a : a + n]), x.shape[a]
        value = x(*i[:a], _resolved(index, extent, mode), *i[a + n :])
        if mode != "nan":
            return value
        return tir.if_then_else(ir.all_of(index >= 0, index < extent), value, ir.const(math.nan, x.dtype))

    return te.compute((*x.shape[:a], *picked, *x.shape[a + 1 :]), element, name="T_take")


def take_flat(x: te.Tensor, indices: te.Tensor, mode: str = "fast") -> Any:
    """Take elements by their position in row-major order."""
    size = product(x.shape)
    return te.compute(indices.shape, lambda *i: x(*unravel(_resolved(indices(*i), size, mode), x.shape)), name="T_take")


def gather_batched(x: te.Tensor, indices: te.Tensor, batch_dims: int, axis: int | None = None) -> Any:
    """Take along an axis, where the first `batch_dims` axes of data and indices go together."""
    a = normalize_axis("take", batch_dims if axis is None else axis, x.ndim)
    n = indices.ndim - batch_dims

    def element(*i: Any) -> Any:
        batch, outer, inner = i[:batch_dims], i[:a], i[a + n :]
        return x(*outer, clamped(indices(*batch, *i[a : a + n]), x.shape[a]), *inner)

    return te.compute((*x.shape[:a], *indices.shape[batch_dims:], *x.shape[a + 1 :]), element, name="T_take")


def gather_elements(data: te.Tensor, indices: te.Tensor, axis: int = 0) -> Any:
    """Take one element for each index along an axis."""
    a = normalize_axis("gather_elements", axis, data.ndim)
    return te.compute(
        indices.shape,
        lambda *i: data(*(_wrapped(indices(*i), data.shape[a]) if d == a else v for d, v in enumerate(i))),
        name="T_gather_elements",
    )


def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> Any:
    """Take slices by tuples of indices."""
    depth, outer = as_int(indices.shape[-1]), indices.ndim - 1
    if depth is None:
        raise error.InvalidArgument(
            "gather_nd: the last dimension of the indices must be constant", found=str(indices.shape[-1])
        )

    def element(*i: Any) -> Any:
        at = [_wrapped(indices(*i[:outer], int64(k)), a.shape[batch_dims + k]) for k in range(depth)]
        return a(*i[:batch_dims], *at, *i[outer:])

    return te.compute((*indices.shape[:-1], *a.shape[batch_dims + depth :]), element, name="T_gather_nd")


def index_tensor(data: te.Tensor, indices: Tensors) -> Any:
    """Index leading axes by tensors that broadcast together, as NumPy's advanced indexing."""
    shape = broadcast_shape(*(t.shape for t in indices))

    def element(*i: Any) -> Any:
        outer = i[: len(shape)]
        at = [_wrapped(t(*broadcast_index(t.shape, shape, outer)), data.shape[d]) for d, t in enumerate(indices)]
        return data(*at, *i[len(shape) :])

    return te.compute((*shape, *data.shape[len(indices) :]), element, name="T_index_tensor")


def one_hot(
    indices: te.Tensor, on_value: Scalar, off_value: Scalar, depth: Extent, axis: int = -1, dtype: str = "float32"
) -> Any:
    """`on_value` where a new axis's index is the value of an element, else `off_value`."""
    a = normalize_axis("one_hot", axis, indices.ndim + 1)
    on, off = (cast(dtype, v) if isinstance(v, PrimExpr) else exact_const(v, dtype) for v in (on_value, off_value))

    def element(*i: Any) -> Any:
        return select(whole(indices(*i[:a], *i[a + 1 :])).equal(i[a]), on, off)

    return te.compute((*indices.shape[:a], as_shape((depth,))[0], *indices.shape[a:]), element, name="T_one_hot")


def reverse_sequence(a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Any:
    """Reverse the first ``seq_lengths[b]`` elements of each sequence b."""
    s = normalize_axis("reverse_sequence", seq_axis, a.ndim)
    b = normalize_axis("reverse_sequence", batch_axis, a.ndim)

    def element(*i: Any) -> Any:
        length = tir.max(tir.min(whole(seq_lengths(i[b])), a.shape[s]), int64(0))
        j = select(i[s] < length, length - int64(1) - i[s], i[s])
        return a(*(j if d == s else v for d, v in enumerate(i)))

    return te.compute(a.shape, element, name="T_reverse_sequence")
