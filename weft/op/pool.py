"""Pooling over windows of any rank, channels first or last."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, TupleType, int64, max_, min_
from weft.op.any_layout import Layouts, in_any_order
from weft.op.attributes import Attribute, data_layout, flag, integer, padding, sizes, word
from weft.op.infer import demand_same_layout, same_dtype, tensor_arg
from weft.op.registry import Fusion, Layout, declare, get_op_def
from weft.op.relations import demand_at_least, demand_same_shape
from weft.te import Tensor
from weft.topi import pool as pooling
from weft.topi.conv import channels_last, conv_shape, spatial
from weft.topi.conv_gradient import pool_grad
from weft.topi.precision import in_float32
from weft.topi.shape import simplify
from weft.topi.typing import Extents


def _windows_of(rank: int | None) -> dict[str, Attribute]:
    """The attributes of windows; where the rank is None, the data decides it."""
    return {
        "pool_size": sizes(1, rank),
        "strides": sizes(1, rank),
        "padding": padding(rank),
        "dilation": sizes(1, rank),
        "ceil_mode": flag(False),
    }


_WINDOW = ("pool_size", "strides", "dilation", "padding")  # in the order that functions of windows take


def _layouts(rank: int) -> dict[str, Attribute]:
    plain = "NC" + "DHW"[3 - rank :]
    return {
        "layout": in_any_order(data_layout(rank), plain),
        "out_layout": in_any_order(data_layout(rank, optional=True), plain),
    }


def _known(name: str, rank: int) -> Layouts:
    """The layouts that windows are computed in."""
    spatial = "DHW"[3 - rank :]
    data = ("NC" + spatial, f"N{spatial}C")
    return Layouts(
        name, (("layout", data[0]),), lambda a: a["layout"] in data and a["out_layout"] in (None, a["layout"])
    )


def _infer(rank: int, op: str) -> Any:
    def infer(data: Expr, layout: str, out_layout: str | None, **attrs: Any) -> TensorType:
        ty = tensor_arg(op, "data", data, ndim=rank + 2)
        if ty.shape is None:
            return TensorType(None, ty.dtype, rank + 2)
        demand_same_layout(op, layout, out_layout, data.span)
        dims = pooling.pool_shape(ty.shape, layout=layout, **{name: attrs[name] for name in _windows_of(rank)})
        _demand_sizes(op, dims, data)
        return TensorType(dims, ty.dtype, rank + 2)

    return infer


def _demand_sizes(op: str, dims: Any, data: Expr) -> None:
    """Demand that windows fit into the padded data."""
    for i, d in enumerate(dims):
        demand_at_least(f"{op}: dimension {i} of the result", d, 0, data.span)


def _windows(x: Any, rank: int, k: Any, s: Any, d: Any, b: Any, a: Any, ceil_mode: bool, fill: Any) -> Any:
    outs = [
        int(pooling.pool_size_of(int64(x.shape[2 + i]), k[i], s[i], d[i], b[i], a[i], ceil_mode)) for i in range(rank)
    ]
    pads = [
        (b[i], max(a[i], (outs[i] - 1) * s[i] + (k[i] - 1) * d[i] + 1 - x.shape[2 + i] - b[i])) for i in range(rank)
    ]
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    for t in np.ndindex(*k):
        spans = [slice(t[i] * d[i], t[i] * d[i] + max((outs[i] - 1) * s[i] + 1, 0), s[i]) for i in range(rank)]
        yield padded[(slice(None), slice(None), *spans)]


def _counted(
    x: np.ndarray,
    rank: int,
    k: tuple[int, ...],
    s: tuple[int, ...],
    d: tuple[int, ...],
    b: tuple[int, ...],
    a: tuple[int, ...],
    ceil_mode: bool,
    include_pad: bool,
) -> Any:
    """Count the elements of each window; there may be more windows than results where the padding counts."""
    ones = np.ones_like(x, np.float64)
    if include_pad:
        ones = np.pad(ones, [(0, 0), (0, 0), *zip(b, a, strict=True)], constant_values=1)
        b = a = (0,) * rank
    return np.maximum(sum(_windows(ones, rank, k, s, d, b, a, ceil_mode, 0)), 1)


def _reference(rank: int, kind: str) -> Any:
    def reference(x: Any, ceil_mode: bool, count_include_pad: bool, layout: str, **windows: Any) -> Any:
        last = layout.endswith("C")
        k, s, d, b, a = pooling.window(rank, *(windows[n] for n in _WINDOW))
        y = np.moveaxis(x, -1, 1) if last else x
        if kind == "max":
            lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
            out = np.maximum.reduce(list(_windows(y, rank, k, s, d, b, a, ceil_mode, lowest)))
        else:
            total: Any = sum(_windows(y.astype(np.float64), rank, k, s, d, b, a, ceil_mode, 0))
            counted = _counted(y, rank, k, s, d, b, a, ceil_mode, count_include_pad)
            out = (total / counted[tuple(map(slice, total.shape))]).astype(x.dtype)
        return np.ascontiguousarray(np.moveaxis(out, 1, -1) if last else out)

    return reference


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        declare(
            f"nn.{_kind}_pool{_rank}d",
            "data",
            {**_windows_of(_rank), "count_include_pad": flag(False), **_layouts(_rank)},
            **_known(f"nn.{_kind}_pool{_rank}d", _rank).declared(
                _infer(_rank, f"nn.{_kind}_pool{_rank}d"), partial(pooling.pool, _kind), _reference(_rank, _kind)
            ),
            fusion=Fusion.ANCHOR,
            rtol=1e-4,
            layout=Layout.NAMED,
            doc=f"{_kind} pooling over {_rank}-D windows.",
        )


def _output_size(rank: int) -> Attribute:
    """Sizes of the result; None keeps all of the data's, and in a tuple one of them."""
    kind = sizes(1, rank)

    def normal(value: Any) -> Any:
        values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
        known = kind.normal([1 if v is None else v for v in values])
        return tuple(None if v is None else n for v, n in zip(values * (rank // len(values)), known, strict=True))

    return replace(kind, default=None, optional=True, normal=normal)


def _adaptive_infer(op: str, rank: int) -> Any:
    def infer(data: Expr, output_size: Any, layout: str, out_layout: str | None) -> TensorType:
        ty = tensor_arg(op, "data", data, ndim=rank + 2)
        demand_same_layout(op, layout, out_layout, data.span)
        if ty.shape is None:
            return TensorType(None, ty.dtype, rank + 2)
        last = channels_last(layout)
        sizes = pooling.adaptive_sizes(ty.shape, output_size, layout)
        for i, (d, n) in enumerate(zip(spatial(ty.shape, last), sizes, strict=True)):
            demand_at_least(f"{op}: spatial dimension {i} of 'data'", d, min_(n, int64(1)), data.span)
        return TensorType(conv_shape(ty.shape, sizes, ty.shape[-1] if last else ty.shape[1], last), ty.dtype, rank + 2)

    return infer


def _adaptive_ref(kind: str) -> Any:
    def reference(x: Any, output_size: Any, layout: str) -> Any:
        y = np.moveaxis(x, -1, 1) if channels_last(layout) else x
        outs = [int(v) for v in pooling.adaptive_sizes([int64(d) for d in x.shape], output_size, layout)]
        out = np.empty((*y.shape[:2], *outs), x.dtype)
        for o in np.ndindex(*outs):
            part = y[
                (..., *(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(o, y.shape[2:], outs, strict=True)))
            ]
            axes = tuple(range(2, y.ndim))
            out[(..., *o)] = part.max(axes) if kind == "max" else part.mean(axes, dtype=np.float64)
        return np.ascontiguousarray(np.moveaxis(out, 1, -1) if channels_last(layout) else out)

    return reference


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        declare(
            f"nn.adaptive_{_kind}_pool{_rank}d",
            "data",
            {"output_size": _output_size(_rank), **_layouts(_rank)},
            **_known(f"nn.adaptive_{_kind}_pool{_rank}d", _rank).declared(
                _adaptive_infer(f"nn.adaptive_{_kind}_pool{_rank}d", _rank),
                partial(pooling.adaptive_pool, _kind),
                _adaptive_ref(_kind),
            ),
            rtol=1e-4,
            layout=Layout.NAMED,
            doc="Pool to a given output size; None keeps a size.",
        )


# --- max pooling that also returns where ------------------------------------------------------------------------------


def _indices_infer(data: Expr, pool_size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool) -> TupleType:
    ty = tensor_arg("nn.max_pool_with_indices", "data", data)
    dims = None if ty.shape is None else pooling.pool_shape(ty.shape, pool_size, strides, dilation, padding, ceil_mode)
    _demand_sizes("nn.max_pool_with_indices", dims or (), data)
    return TupleType((TensorType(dims, ty.dtype, ty.ndim), TensorType(dims, "int64", ty.ndim)))


def _indices_ref(
    x: Any, pool_size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool, storage_order: int
) -> Any:
    rank = x.ndim - 2
    k, s, d, b, a = pooling.window(rank, pool_size, strides, dilation, padding)
    flat = np.arange(x.size).reshape(x.shape)
    if storage_order:
        columns_first = np.arange(x.size).reshape(*x.shape[:2], *x.shape[:1:-1])
        flat = columns_first.transpose(0, 1, *range(rank + 1, 1, -1))
    best: Any = None
    where: Any = None
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    for v, i in zip(
        _windows(x, rank, k, s, d, b, a, ceil_mode, lowest),
        _windows(flat, rank, k, s, d, b, a, ceil_mode, -1),
        strict=True,
    ):
        better = np.ones(v.shape, bool) if best is None else (v > best) | ((where < 0) & (i >= 0))
        best, where = (v, i) if best is None else (np.where(better, v, best), np.where(better, i, where))
    return best, where.astype(np.int64)  # type: ignore[union-attr]


declare(
    "nn.max_pool_with_indices",
    "data",
    {**_windows_of(None), "storage_order": integer(0, at_least=0)},
    infer=_indices_infer,
    lower=pooling.max_pool_with_indices,
    reference=_indices_ref,
    doc="Max pooling (channels first); also the flat index of each maximum, rows first or (storage_order 1) "
    "columns first.",
)


def _backward_infer(kind: str) -> Any:
    op = f"grad.{kind}_pool2d_backward"

    def infer(output_grad: Expr, data: Expr, layout: str, out_layout: str | None, **attrs: Any) -> TensorType:
        g, ty = (tensor_arg(op, n, x, ndim=4, kind="float") for n, x in (("output_grad", output_grad), ("data", data)))
        same_dtype(op, output_grad, data)
        demand_same_layout(op, layout, out_layout, data.span)
        made = get_op_def(f"nn.{kind}_pool2d").infer(data, layout=layout, **attrs)
        demand_same_shape(f"{op}: 'output_grad'", g.shape, made.shape, output_grad.span)
        return ty

    return infer


def _backward_ref(kind: str) -> Any:
    def reference(
        g: np.ndarray, x: np.ndarray, ceil_mode: bool, count_include_pad: bool, layout: str, **windows: Any
    ) -> Any:
        last = channels_last(layout)
        g, y = (np.moveaxis(v, -1, 1) if last else v for v in (g, x))
        k, s, d, b, a = pooling.window(2, *(windows[n] for n in _WINDOW))
        out = np.zeros(y.size)
        if kind == "max":
            places = [_indices_ref(y, k, s, (*b, *a), d, ceil_mode, 0)[1]]
        else:
            counted = _counted(y, 2, k, s, d, b, a, ceil_mode, count_include_pad)
            g = g / counted[tuple(map(slice, g.shape))]
            places = list(_windows(np.arange(y.size).reshape(y.shape), 2, k, s, d, b, a, ceil_mode, -1))
        for place in places:
            np.add.at(out, place[place >= 0], g[place >= 0])
        out = out.reshape(y.shape)
        return np.ascontiguousarray(np.moveaxis(out, 1, -1) if last else out).astype(x.dtype)

    return reference


def _backward(kind: str) -> Any:
    def lower(
        g: Tensor, data: Tensor, pool_size: Extents, strides: Extents, out_layout: str | None, **attrs: Any
    ) -> Any:
        return pool_grad(g, data, pool_size, strides, pool_type=kind, **attrs)

    return in_float32(lower)


for _kind in ("max", "avg"):
    declare(
        f"grad.{_kind}_pool2d_backward",
        "output_grad data",
        {
            **_windows_of(2),
            "count_include_pad": flag(False),
            "layout": word("NCHW", "NCHW", "NHWC"),
            "out_layout": data_layout(2, optional=True),
        },
        infer=_backward_infer(_kind),
        lower=_backward(_kind),
        reference=_backward_ref(_kind),
        rtol=1e-3,
        doc=f"What flows back to the data of {_kind} pooling; of equal greatest elements the first takes all.",
    )


def _overlap_infer(data: Expr, hop: int) -> TensorType:
    ty = tensor_arg("nn.overlap_add", "data", data, ndim=5)
    if ty.shape is None:
        return TensorType(None, ty.dtype, 4)
    rows, parts, middle, length, inner = ty.shape
    return TensorType((rows, middle, simplify(max_(length + (parts - 1) * hop, 0)), inner), ty.dtype, 4)


def _overlap_ref(x: Any, hop: int) -> Any:
    rows, parts, middle, length, inner = x.shape
    out = np.zeros((rows, middle, max(length + (parts - 1) * hop, 0), inner), x.dtype)
    for a in range(parts):
        out[:, :, a * hop : a * hop + length] += x[:, a]
    return out


declare(
    "nn.overlap_add",
    "data",
    {"hop": integer(1, at_least=0)},
    infer=_overlap_infer,
    lower=pooling.overlap_add,
    reference=_overlap_ref,
    fusion=Fusion.INJECTIVE,
    doc="The sum over the second of five axes, each term `hop` places further along the fourth than the one before.",
)
