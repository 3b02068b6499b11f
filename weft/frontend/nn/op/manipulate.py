"""Shapes, indices and order of elements, and tensors made of nothing but a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.frontend.nn.tensor import Tensor, apply, caller, emit, unwrap_nested, wrap_nested
from weft.ir import PrimExpr
from weft.relax.op import builtin

__all__ = [
    "arange",
    "broadcast_to",
    "chunk",
    "concat",
    "empty",
    "full",
    "gather_elements",
    "ones",
    "pad",
    "permute",
    "permute_dims",
    "repeat",
    "reshape",
    "split",
    "squeeze",
    "strided_slice",
    "take",
    "tril",
    "triu",
    "unsqueeze",
    "zeros",
]


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    """Give the same elements another shape, in which -1 stands for what is left."""
    return x.reshape(*shape, name=name) if isinstance(shape, (list, tuple)) else x.reshape(shape, name=name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Reorder the dimensions; reverse them where no axes are given.

    Without a name, the weight of a "linear" layer becomes one of a "matmul", which is what it is then.
    """
    if name is None:
        own = getattr(x._expr, "name_hint", "")
        name = own.replace("linear", "matmul") if "linear" in own else "permute_dims"
    return apply("permute_dims", x, axes=axes, name=name)


def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """Reorder the dimensions, as :func:`permute_dims` does."""
    return apply("permute_dims", x, axes=axes, name=name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """Repeat dimensions of size 1, and add leading ones, up to a shape."""
    return apply("broadcast_to", x, tuple(shape), name=name)


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """Insert a dimension of size 1."""
    return apply("expand_dims", x, axis=(dim,), name=name)


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """Drop a dimension of size 1."""
    return apply("squeeze", x, axis=(axis,), name=name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Join tensors along a dimension."""
    return apply("concat", tuple(x), axis=dim, name=name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Cut a tensor along an axis, into a number of parts or before each of some indices."""
    points = indices_or_sections if isinstance(indices_or_sections, int) else tuple(indices_or_sections)
    return apply("split", ary, indices_or_sections=points, axis=axis, name=name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """Cut a tensor into parts of equal size; the last is smaller where they do not divide it."""
    return apply("split", x, indices_or_sections=chunks, axis=dim, name=name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Repeat each element along an axis, or of the flattened tensor."""
    return apply("repeat", x, repeats=repeats, axis=axis, name=name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Choose parts along an axis by their indices; without an axis, `x` is a vector."""
    return apply("take", x, indices, axis=axis, name=name)


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0, name: str = "gather_elements") -> Tensor:
    """Choose one element for each index along an axis, as PyTorch's ``gather``."""
    return apply("gather_elements", x, indices, axis=axis, name=name)


def strided_slice(
    x: Tensor,
    axes: Sequence[int],
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[int] | None = None,
    name: str = "strided_slice",
) -> Tensor:
    """Cut a part out along some axes; bounds may be symbolic."""
    return apply(
        "strided_slice",
        x,
        axes=tuple(axes),
        begin=tuple(begin),
        end=tuple(end),
        strides=None if strides is None else tuple(strides),
        name=name,
    )


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad") -> Tensor:
    """Pad each dimension: `pad` is (before, after) for all dimensions in turn."""
    return apply("nn.pad", x, pad_width=tuple(pad), pad_mode=mode, pad_value=value, name=name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Keep what is on and above a diagonal of each matrix, with zeros below."""
    return apply("triu", x, k=diagonal, name=name)


def tril(x: Tensor, diagonal: int = 0, name: str = "tril") -> Tensor:
    """Keep what is on and below a diagonal of each matrix, with zeros above."""
    return apply("tril", x, k=diagonal, name=name)


def full(
    shape: Sequence[Any], fill_value: Tensor | PrimExpr | float, dtype: str = "float32", name: str = "full"
) -> Tensor:
    """Make a tensor of one value, a number or a tensor of no dimensions."""
    if isinstance(fill_value, (ir.FloatImm, ir.IntImm)):
        fill_value = fill_value.value
    if isinstance(fill_value, (bool, int, float)):
        fill_value = Tensor.from_scalar(fill_value, dtype)
    return apply("full", tuple(shape), fill_value, dtype=dtype, name=name)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Make a tensor of zeros."""
    return apply("zeros", tuple(shape), dtype=dtype, name=name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    """Make a tensor of ones."""
    return apply("ones", tuple(shape), dtype=dtype, name=name)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """Make a tensor of any values, to be written by an operation in place."""
    return wrap_nested(emit(builtin.alloc_tensor(tuple(shape), dtype), name), name)


def arange(
    start: PrimExpr | float,
    end: PrimExpr | float | None = None,
    step: PrimExpr | float = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """Count from `start` to before `end`, or from 0 to before `start` where it is alone; sizes may be symbolic."""
    if end is None:
        start, end = 0, start
    if ir.as_int(step) == 0:
        raise error.InvalidArgument("arange: the step is 0", where=caller())
    bounds = [unwrap_nested(ir.prim_value(v)) for v in (start, end, step)]
    whole = not any(isinstance(v, float) for v in (start, end, step))
    return apply("arange", *bounds, dtype=dtype or ("int64" if whole else "float32"), name=name)
