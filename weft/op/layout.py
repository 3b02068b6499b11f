"""Operators that bring tensors into other layouts: blocks of space as channels, named layouts, grids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft import tir
from weft.error import InvalidArgument
from weft.ir import Expr, PrimExpr, TensorType, TupleType, cast, floordiv, int64
from weft.op.attributes import Attribute, integer, integers, number, text, word
from weft.op.infer import demand_held, fields_of, simplify, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_divisible, demand_equal
from weft.runtime import tensor
from weft.tir.schedule import IndexMap
from weft.topi.manipulate import depth_to_space, layout_shape, layout_transform, meshgrid, space_to_depth

_BLOCK = integer(1, at_least=1)
_PATTERN, _SAYS = r"([A-Z]|[1-9]\d*[a-z])+", "letters for dimensions and numbers before those of blocks, as NCHW16c"


def _divided(op: str, dim: Any, by: int, where: Any) -> Any:
    demand_divisible(f"{op}: a dimension that is taken apart", dim, by, where)
    return simplify(floordiv(dim, int64(by)))


def _space_to_depth_infer(data: Expr, block_size: int) -> TensorType:
    ty = tensor_arg("space_to_depth", "data", data, ndim=4)
    if ty.shape is None:
        return TensorType(None, ty.dtype, 4)
    n, c, h, w = ty.shape
    b = int(block_size)
    dims = (
        n,
        simplify(c * int64(b * b)),
        _divided("space_to_depth", h, b, data.span),
        _divided("space_to_depth", w, b, data.span),
    )
    return TensorType(dims, ty.dtype, 4)


def _space_to_depth_ref(data: Any, block_size: int) -> Any:
    (n, c, h, w), b = data.shape, block_size
    y = data.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return np.ascontiguousarray(y.reshape(n, c * b * b, h // b, w // b))


declare(
    "space_to_depth",
    "data",
    {"block_size": _BLOCK},
    infer=_space_to_depth_infer,
    lower=space_to_depth,
    reference=_space_to_depth_ref,
    fusion=Fusion.INJECTIVE,
    doc="Move blocks of the two spatial axes of (n, c, h, w) into channels.",
)


def _shuffled(op: str, data: Expr, block_size: int, ndim: int | None = None) -> TensorType:
    ty = tensor_arg(op, "data", data, ndim, min_ndim=3)
    if ty.shape is None:
        return TensorType(None, ty.dtype, ty.ndim)
    *lead, c, h, w = ty.shape
    b = int(block_size)
    dims = (*lead, _divided(op, c, b * b, data.span), simplify(h * int64(b)), simplify(w * int64(b)))
    return TensorType(dims, ty.dtype, ty.ndim)


def _depth_to_space_ref(data: Any, block_size: int, mode: str) -> Any:
    (*lead, c, h, w), b = data.shape, block_size
    n, d = prod(lead), c // (b * b)
    if mode == "DCR":
        y = data.reshape(n, b, b, d, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = data.reshape(n, d, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(y.reshape(*lead, d, h * b, w * b))


declare(
    "depth_to_space",
    "data",
    {"block_size": _BLOCK, "mode": word("DCR", "DCR", "CRD")},
    infer=lambda data, block_size: _shuffled("depth_to_space", data, block_size, 4),
    lower=depth_to_space,
    reference=_depth_to_space_ref,
    fusion=Fusion.INJECTIVE,
    doc="Move channels of (n, c, h, w) into blocks of the two spatial axes.",
)

declare(
    "nn.pixel_shuffle",
    "data",
    {"upscale_factor": _BLOCK},
    infer=lambda data, upscale_factor: _shuffled("nn.pixel_shuffle", data, upscale_factor),
    lower=lambda data, upscale_factor: depth_to_space(data, upscale_factor, "CRD"),
    reference=lambda data, upscale_factor: _depth_to_space_ref(data, upscale_factor, "CRD"),
    fusion=Fusion.INJECTIVE,
    doc="Move channels of (.., c, h, w) into blocks of the two spatial axes, as PyTorch orders them.",
)


def _meshgrid_infer(tensors: Expr, indexing: str) -> TupleType:
    types = [
        tensor_arg("meshgrid", f"tensor {i}", f, ndim=1)
        for i, f in enumerate(fields_of("meshgrid", "tensors", tensors))
    ]
    if any(t.shape is None for t in types):
        return TupleType(tuple(TensorType(None, t.dtype, len(types)) for t in types))
    dims = [t.shape[0] for t in types]  # type: ignore[index]
    if indexing == "xy" and len(dims) > 1:
        dims[:2] = [dims[1], dims[0]]
    return TupleType(tuple(TensorType(tuple(dims), t.dtype, len(types)) for t in types))


declare(
    "meshgrid",
    "tensors:tensors",
    {"indexing": word("ij", "ij", "xy")},
    infer=_meshgrid_infer,
    lower=meshgrid,
    reference=lambda tensors, indexing: tuple(map(np.ascontiguousarray, np.meshgrid(*tensors, indexing=indexing))),
    doc="Vectors repeated over the grid that they span.",
)


def _layout_infer(x: Expr, src_layout: str, dst_layout: str, index_map: Any, pad_value: Any) -> TensorType:
    ty = tensor_arg("layout_transform", "x", x)
    if index_map is not None:
        return _moved_type(ty, index_map, pad_value, x)
    if ty.shape is None:
        return TensorType(None, ty.dtype, -1 if ty.ndim < 0 else sum(c.isalpha() for c in dst_layout))
    dims = layout_shape(ty.shape, src_layout, dst_layout)
    demand_blocks("layout_transform", ty.shape, src_layout, x)
    whole = layout_shape(ty.shape, src_layout, letters := "".join(c for c in src_layout if c.isupper()))
    for axis, block in _blocks(dst_layout):
        letter = [c for c in dst_layout if c.isalpha()][axis].upper()
        demand_divisible(f"layout_transform: dimension {letter}", whole[letters.index(letter)], block, x.span)
    return TensorType(dims, ty.dtype, len(dims))


def _moved_type(ty: TensorType, index_map: Any, pad_value: Any, x: Expr) -> TensorType:
    rank = len(index_map.initial_indices)
    if ty.ndim not in (-1, rank):
        raise InvalidArgument(
            "layout_transform: the index map takes another number of indices",
            expected=str(ty.ndim),
            found=str(rank),
            where=x.span,
        )
    demand_held("layout_transform", "pad_value", pad_value, ty.dtype, x.span)
    dims = None
    if ty.shape is not None:
        dims = tuple(cast("int64", d) for d in index_map.map_shape(ty.shape))
    return TensorType(dims, ty.dtype, len(index_map.final_indices), ty.vdevice)


def _index_map(value: Any) -> Any:
    kind: Any = tir.IndexMap
    if isinstance(value, kind):
        return value
    if not callable(value):
        raise TypeError
    return kind.from_func(value)


def demand_blocks(op: str, shape: Sequence[PrimExpr], layout: str, x: Expr) -> None:
    """Demand that the blocks of a tensor are as large as its layout says."""
    for axis, block in _blocks(layout):
        demand_equal(f"{op}: block of dimension {axis}", shape[axis], block, x.span)


def _blocks(layout: str) -> list[tuple[int, int]]:
    """List the axis and the size of each block: ``[(4, 16)]`` of ``NCHW16c``."""
    parts = re.findall(r"(\d*)([A-Za-z])", layout)
    return [(axis, int(size)) for axis, (size, _) in enumerate(parts) if size]


def layout_reference(
    x: np.ndarray,
    src_layout: str = "",
    dst_layout: str = "",
    index_map: IndexMap | None = None,
    pad_value: float | None = None,
) -> Any:
    """Bring an array from one named layout into another, or where an index map says."""
    if index_map is not None:
        return index_map.map_tensor(tensor(np.ascontiguousarray(x)), pad_value or 0).numpy()
    shape = [int(d) for d in layout_shape([int64(d) for d in x.shape], src_layout, dst_layout)]
    flat = "".join(c for c in src_layout if c.isupper())
    whole = np.einsum(
        "".join(c for c in src_layout if c.isalpha())
        + "->"
        + "".join(c + c.lower() * (c.lower() in src_layout) for c in flat),
        x,
    )
    whole = whole.reshape([int(d) for d in layout_shape([int64(d) for d in x.shape], src_layout, flat)])
    letters = "".join(c for c in dst_layout if c.isalpha())
    outer = "".join(c + c.lower() * (c.lower() in letters) for c in flat)
    split = whole.reshape([shape[letters.index(c)] for c in outer])
    return np.ascontiguousarray(split.transpose([outer.index(c) for c in letters]))


declare(
    "layout_transform",
    "x",
    {
        "src_layout": text("", _PATTERN, _SAYS),
        "dst_layout": text("", _PATTERN, _SAYS),
        "index_map": Attribute(None, "a function of indices", _index_map, optional=True),
        "pad_value": number().or_none(),
        "axis_separators": integers(),
        "input_axis_separators": integers(),
    },
    infer=_layout_infer,
    lower=layout_transform,
    reference=layout_reference,
    fusion=Fusion.INJECTIVE,
    doc="Bring a tensor from one named layout into another (``NCHW`` to ``NCHW16c``), whose blocks must divide their "
    "axes, or its elements where `index_map` says; then places that nothing goes to hold `pad_value` or 0.",
)
