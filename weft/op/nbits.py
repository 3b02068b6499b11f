"""Weights of 2, 4 and 8 bits in groups, and products with them."""

import math
from typing import Any

import numpy as np

from weft.error import DTypeMismatch, ShapeMismatch
from weft.ir import Expr, TensorType, TupleType, as_int, ceildiv, int64, numpy_dtype
from weft.op.attributes import axis, dtype, flag, integer, text
from weft.op.infer import normalize_axis, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_at_least, demand_divisible, demand_equal, demand_same_shape
from weft.topi import nbits
from weft.topi.nbits_products import MANY_ROWS, rows_per_word

_GROUP = integer(32, at_least=1)
_ROWS = text("float32", "float32|int8", "float32 or int8")
_PANELS = {"n": integer(0, at_least=0), "bits": integer(4, at_least=2, at_most=8), "group": _GROUP}


def _dequantize_infer(data: Expr, scale: Expr, zero_point: Expr, axis: int, group: int, out_dtype: str) -> TensorType:
    name = "dequantize_groups"
    ty = tensor_arg(name, "data", data, kind="integer", min_ndim=1)
    parameters = tensor_arg(name, "scale", scale, kind="float"), tensor_arg(name, "zero_point", zero_point)
    if ty.shape is not None:
        along = normalize_axis(name, axis, ty.ndim)
        dims = tuple(ceildiv(d, int64(int(group))) if i == along else d for i, d in enumerate(ty.shape))
        for label, p in zip(("scale", "zero_point"), parameters, strict=True):
            if p.shape is not None and len(p.shape) != len(dims):
                raise ShapeMismatch(
                    f"{name}: '{label}' has a wrong rank",
                    expected=f"{len(dims)} dimensions",
                    found=str(p),
                    where=data.span,
                )
            demand_same_shape(f"{name}: '{label}'", p.shape, dims, data.span)
    return TensorType(ty.shape, out_dtype, ty.ndim)


def _dequantize_ref(data: Any, scale: Any, zero_point: Any, axis: int, group: int, out_dtype: str) -> Any:
    size, along = int(group), int(axis) % data.ndim
    spread = [np.repeat(p, size, along).take(range(data.shape[along]), along) for p in (scale, zero_point)]
    shifted = data.astype(np.float32) - spread[1].astype(np.float32)
    return (shifted * spread[0].astype(np.float32)).astype(numpy_dtype(out_dtype))


declare(
    "dequantize_groups",
    "data scale zero_point",
    {"axis": axis(0), "group": _GROUP, "out_dtype": dtype("float32"), "rows": _ROWS},
    infer=_dequantize_infer,
    lower=nbits.dequantize_groups,
    reference=_dequantize_ref,
    fusion=Fusion.INJECTIVE,
    doc="``(data - zero_point) * scale`` with a scale and a zero point for each `group` elements along `axis`. "
    "`rows` says what rows that are multiplied by the result may be rounded to.",
)


def _quantize_infer(x: Expr, group: int) -> Any:
    ty = tensor_arg("nn.quantize_groups", "x", x, kind="float", min_ndim=1)
    if ty.shape is None:
        return TupleType(tuple(TensorType(None, t, ty.ndim) for t in ("int8", "float32", "int32")))
    size = int64(int(group))
    groups = ceildiv(ty.shape[-1], size)
    return TupleType(
        tuple(
            TensorType((*ty.shape[:-1], last), t, ty.ndim)
            for last, t in ((groups * size, "int8"), (groups, "float32"), (groups, "int32"))
        )
    )


def _quantize_ref(x: Any, group: int) -> Any:
    groups = -(-x.shape[-1] // group)
    filled = np.pad(x.astype(np.float32), [(0, 0)] * (x.ndim - 1) + [(0, groups * group - x.shape[-1])])
    parts = filled.reshape(*x.shape[:-1], groups, group)
    top = np.abs(parts).max(-1)
    unit = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    q = np.rint(parts * unit[..., None]).astype(np.int8)
    return q.reshape(filled.shape), top * np.float32(1 / 127), q.sum(-1, dtype=np.int32)


declare(
    "nn.quantize_groups",
    "x",
    {"group": _GROUP},
    infer=_quantize_infer,
    lower=nbits.quantize_groups,
    reference=_quantize_ref,
    doc="Rows (..., k) as int8 in groups along the last axis, which is filled up with zeros: (..., groups * group), "
    "the groups' scales and the sums of their integers, (..., groups) each.",
)


def _panels_infer(
    name: str, x: TensorType, w: Expr, scale: Expr, offset: Expr | None, n: int, bits: int, group: int
) -> None:
    """Check weights in panels, and rows (..., k) that they multiply."""
    words, steps = tensor_arg(name, "w", w, ndim=3), int(group) // rows_per_word(int(bits))
    if words.dtype != "int32" or int(bits) not in (2, 4, 8) or int(group) % 16:
        raise DTypeMismatch(
            f"{name}: weights are words of int32 with 2, 4 or 8 bits each, in groups of whole words",
            found=f"{words.dtype}, {bits} bits, groups of {group}",
            where=w.span,
        )
    if words.shape is None:
        return
    panels, rows, panel = words.shape
    parameters = [("scale", scale), *([] if offset is None else [("offset", offset)])]
    for label, parameter in parameters:
        shape = tensor_arg(name, label, parameter, ndim=3, kind="float").shape
        demand_same_shape(f"{name}: '{label}'", shape, (panels, ceildiv(rows, int64(steps)), panel), w.span)
    demand_at_least(f"{name}: columns of 'w'", panels * panel, int(n), w.span)
    if (as_int(panel) or 0) % 16:
        raise ShapeMismatch(
            f"{name}: a panel has a wrong width", expected="a constant multiple of 16", found=str(panel), where=w.span
        )
    if x.shape is not None:
        groups = ceildiv(x.shape[-1], int64(int(group)))
        demand_equal(f"{name}: rows of 'w'", rows, groups * int64(steps), w.span)


def _weights(w: Any, scale: Any, offset: Any, bits: int, group: int) -> Any:
    """Return the matrix (rows, columns) of weights in panels."""
    words = w.view(np.uint32)[:, :, None, None]
    shifts = (np.arange(8 // bits)[:, None] * bits + np.arange(4) * 8).astype(np.uint32)
    fields = (words >> shifts[..., None] & np.uint32((1 << bits) - 1)).astype(np.float64)
    q = fields.reshape(w.shape[0], -1, w.shape[2]) - (1 << (bits - 1))
    real = q * np.repeat(scale.astype(np.float64), group, 1)
    real += 0 if offset is None else np.repeat(offset.astype(np.float64), group, 1)
    return real.transpose(1, 0, 2).reshape(q.shape[1], -1)


def _packed_infer(
    x: Expr, w: Expr, scale: Expr, offset: Expr | None = None, *, n: int, bits: int, group: int, tiles: bool
) -> Any:
    ty = tensor_arg("nn.matmul_nbits_packed", "x", x, kind="float", min_ndim=1)
    _panels_infer("nn.matmul_nbits_packed", ty, w, scale, offset, n, bits, group)
    if tiles and w.ty.shape is not None and as_int(w.ty.shape[-1]) != 32:  # type: ignore[attr-defined]
        raise ShapeMismatch("nn.matmul_nbits_packed: tiles take panels of 32 columns", found=str(w.ty), where=w.span)
    return TensorType(None if ty.shape is None else (*ty.shape[:-1], int64(int(n))), ty.dtype, ty.ndim)


def _packed_ref(
    x: Any, w: Any, scale: Any, offset: Any = None, *, n: int, bits: int, group: int, rows: str, dot: int, tiles: bool
) -> Any:
    """Products of rows as they are, or as bytes."""
    if rows == "int8" and not (tiles and math.prod(x.shape[:-1]) >= MANY_ROWS):
        q, x_scale, x_sum = _quantize_ref(x, group)
        return _dot_ref(
            q, x_scale, x_sum, w, scale, offset, n=n, bits=bits, group=group, dot=dot, out_dtype=str(x.dtype)
        )
    weights = _weights(w, scale, offset, bits, group)[: x.shape[-1], :n]
    return np.matmul(x.astype(np.float64), weights).astype(x.dtype)


declare(
    "nn.matmul_nbits_packed",
    "x w scale offset?",
    {**_PANELS, "rows": _ROWS, "dot": integer(0, at_least=0), "tiles": flag(False)},
    infer=_packed_infer,
    lower=nbits.matmul_nbits_packed,
    reference=_packed_ref,
    rtol=1e-4,
    doc="``x @ unpack(w)[:, :n]`` with weights of `bits` bits, ``(q - half) * scale + offset``: words (panels, rows, "
    "panel) int32, scales and offsets (panels, groups, panel) for each `group` weights of a column. With `rows` int8 "
    "few are rounded to bytes in these groups (`dot`: lanes of the machine's dot products of bytes, or 0), and 32 and "
    "more to bfloat16 where there are matrix `tiles`.",
)


def _dot_infer(
    x: Expr,
    x_scale: Expr,
    x_sum: Expr,
    w: Expr,
    scale: Expr,
    offset: Expr | None = None,
    *,
    n: int,
    bits: int,
    group: int,
    out_dtype: str,
) -> Any:
    name = "nn.matmul_nbits_dot"
    ty = tensor_arg(name, "x", x, dtype="int8", min_ndim=1)
    _panels_infer(name, ty, w, scale, offset, n, bits, group)
    for label, value, element in (("x_scale", x_scale, "float"), ("x_sum", x_sum, "int32")):
        shape = tensor_arg(name, label, value, dtype=element).shape
        if ty.shape is not None:
            demand_same_shape(
                f"{name}: '{label}'", shape, (*ty.shape[:-1], ceildiv(ty.shape[-1], int64(int(group)))), w.span
            )
    if ty.shape is not None:
        demand_divisible(f"{name}: length of the rows of 'x'", ty.shape[-1], int(group), x.span)
    return TensorType(None if ty.shape is None else (*ty.shape[:-1], int64(int(n))), out_dtype, ty.ndim)


def _dot_ref(
    x: Any,
    x_scale: Any,
    x_sum: Any,
    w: Any,
    scale: Any,
    offset: Any = None,
    *,
    n: int,
    bits: int,
    group: int,
    dot: int,
    out_dtype: str,
) -> Any:
    """Products as they are computed: bytes of weights without a sign, their half taken off by the rows' sums."""
    ones, half = np.ones_like(scale), 0 if bits == 8 and not dot else 1 << (bits - 1)
    parts = x.reshape(*x.shape[:-1], x.shape[-1] // group, group).astype(np.int64)
    fields = _weights(w, ones, None, bits, group)[:, :n].astype(np.int64).reshape(-1, group, n) + half
    sums = (np.einsum("...gk,gkn->...gn", parts, fields) - half * x_sum[..., None].astype(np.int64)).astype(np.int32)
    spread = [np.zeros_like(ones) if p is None else p for p in (scale, offset)]
    factor, shift = (np.moveaxis(p.astype(np.float64), 1, 0).reshape(p.shape[1], -1)[:, :n] for p in spread)
    each = sums * factor + x_sum[..., None] * shift
    return (each * x_scale[..., None].astype(np.float64)).sum(-2).astype(numpy_dtype(out_dtype))


declare(
    "nn.matmul_nbits_dot",
    "x x_scale x_sum w scale offset?",
    {**_PANELS, "dot": integer(0, at_least=0), "out_dtype": dtype("float32")},
    infer=_dot_infer,
    lower=nbits.matmul_nbits_dot,
    reference=_dot_ref,
    rtol=1e-4,
    doc="A product of rows from ``nn.quantize_groups`` with weights as ``nn.matmul_nbits_packed`` has them, in "
    "integers for each group; `dot` is the number of lanes of the machine's dot products of bytes, or 0.",
)
