"""Pooling over windows of any rank, channels first or last."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import Expr, TensorType, TupleType, as_int, cast, const, floordiv, if_then_else, int64, select
from weft.op.conv import pad_spatial
from weft.op.conv import pair, paddings
from weft.op.infer import simplify, tensor_arg
from weft.op.registry import Fusion, declare

__all__: list[str] = []

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _window(rank: int, pool_size: Any, strides: Any, dilation: Any, padding: Any) -> tuple[Any, Any, Any, Any, Any]:
    before, after = paddings(padding, rank)
    return pair(pool_size, rank), pair(strides, rank), pair(dilation, rank), before, after


def _out_size(size: Any, k: int, s: int, d: int, b: int, a: int, ceil_mode: bool) -> Any:
    room = size + int64(b + a - (k - 1) * d - 1)
    if not ceil_mode:
        return simplify(floordiv(room, int64(s)) + int64(1))
    n = simplify(floordiv(room + int64(s - 1), int64(s)) + int64(1))
    # a window that would begin in the padding behind the tensor is left out
    return simplify(n - cast("int64", (n - int64(1)) * int64(s) >= size + int64(b)))


def _spatial(shape: Any, last: bool) -> Any:
    return shape[1:-1] if last else shape[2:]


def _pool_shape(
    rank: int, shape: Any, pool_size: Any, strides: Any, dilation: Any, padding: Any, ceil_mode: bool, layout: str
) -> Any:
    k, s, d, b, a = _window(rank, pool_size, strides, dilation, padding)
    last = layout.endswith("C")
    outs = [_out_size(x, k[i], s[i], d[i], b[i], a[i], ceil_mode) for i, x in enumerate(_spatial(shape, last))]
    return (shape[0], *outs, shape[-1]) if last else (shape[0], shape[1], *outs)


def _infer(rank: int, op: str) -> Any:
    def infer(
        data: Expr, pool_size: Any = 1, strides: Any = 1, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, count_include_pad: bool = False,
        layout: str = "", out_layout: Any = None,
    ) -> TensorType:  # fmt: skip
        ty = tensor_arg(op, "data", data, ndim=rank + 2)
        if ty.shape is None:
            return TensorType(None, ty.dtype, rank + 2)
        dims = _pool_shape(rank, ty.shape, pool_size, strides, dilation, padding, ceil_mode, layout)
        return TensorType(dims, ty.dtype, rank + 2)

    return infer


def _padded(x: Any, rank: int, k: Any, s: Any, d: Any, b: Any, a: Any, ceil_mode: bool, last: bool, fill: Any) -> Any:
    """Pad so that every window lies inside, ceil_mode's last ones included."""
    extra = [a[i] + (s[i] - 1 if ceil_mode else 0) for i in range(rank)]
    return pad_spatial(x, b, extra, last, fill)


def _lower(rank: int, kind: str) -> Any:
    def lower(
        x: Any, pool_size: Any = 1, strides: Any = 1, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, count_include_pad: bool = False,
        layout: str = "", out_layout: Any = None,
    ) -> Any:  # fmt: skip
        k, s, d, b, a = _window(rank, pool_size, strides, dilation, padding)
        last = layout.endswith("C")
        shape = _pool_shape(rank, x.shape, pool_size, strides, dilation, padding, ceil_mode, layout)
        fill = te.lowest(x.dtype) if kind == "max" else const(0, x.dtype)
        padded = _padded(x, rank, k, s, d, b, a, ceil_mode, last, fill)
        ks = [te.reduce_axis((int64(0), int64(k[i])), f"k{i}") for i in range(rank)]

        def element(*i: Any) -> Any:
            o = _spatial(i, last)
            at = [o[j] * int64(s[j]) + ks[j].var * int64(d[j]) for j in range(rank)]
            value = padded(i[0], *at, i[-1]) if last else padded(i[0], i[1], *at)
            return te.max(value, axis=ks) if kind == "max" else te.sum(value, axis=ks)

        out = te.compute(shape, element, name=f"T_{kind}_pool")
        if kind == "max":
            return out
        sizes = _spatial(x.shape, last)

        def mean(*i: Any) -> Any:
            o = _spatial(i, last)
            count: Any = int64(1)
            for j in range(rank):
                count = count * _count(o[j], sizes[j], k[j], s[j], d[j], b[j], a[j], ceil_mode, count_include_pad)
            if as_int(count) is not None:
                return out(*i) * const(1.0 / as_int(count), x.dtype)  # type: ignore[operator]
            return out(*i) / cast(x.dtype, tir.max(count, int64(1)))

        return te.compute(shape, mean, name="T_avg_pool")

    return lower


def _count(o: Any, size: Any, k: int, s: int, d: int, b: int, a: int, ceil_mode: bool, include_pad: bool) -> Any:
    """How many elements a window counts along one axis."""
    if (b == 0 and a == 0 and not ceil_mode) or (include_pad and not ceil_mode):
        return int64(k)
    start = o * int64(s) - int64(b)
    low, high = (int64(-b), size + int64(a)) if include_pad else (int64(0), size)
    first = tir.max(floordiv(low - start + int64(d - 1), int64(d)), int64(0))
    stop = tir.min(floordiv(high - start + int64(d - 1), int64(d)), int64(k))
    return stop - first


def _windows(x: Any, rank: int, k: Any, s: Any, d: Any, b: Any, a: Any, ceil_mode: bool, fill: Any) -> Any:
    outs = [int(_out_size(int64(x.shape[2 + i]), k[i], s[i], d[i], b[i], a[i], ceil_mode)) for i in range(rank)]
    pads = [
        (b[i], max(a[i], (outs[i] - 1) * s[i] + (k[i] - 1) * d[i] + 1 - x.shape[2 + i] - b[i])) for i in range(rank)
    ]
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    for t in np.ndindex(*k):
        yield padded[
            (
                slice(None),
                slice(None),
                *(slice(t[i] * d[i], t[i] * d[i] + (outs[i] - 1) * s[i] + 1, s[i]) for i in range(rank)),
            )
        ]


def _reference(rank: int, kind: str) -> Any:
    def reference(
        x: Any,
        pool_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: Any,
    ) -> Any:
        last = layout.endswith("C")
        k, s, d, b, a = _window(rank, pool_size, strides, dilation, padding)
        y = np.moveaxis(x, -1, 1) if last else x
        if kind == "max":
            lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
            out = np.maximum.reduce(list(_windows(y, rank, k, s, d, b, a, ceil_mode, lowest)))
        else:
            total = sum(_windows(y.astype(np.float64), rank, k, s, d, b, a, ceil_mode, 0))
            if count_include_pad:
                ones = np.pad(np.ones_like(y, np.float64), [(0, 0), (0, 0), *zip(b, a, strict=True)], constant_values=1)
                zeros = (0,) * rank
                counted = sum(_windows(ones, rank, k, s, d, zeros, zeros, ceil_mode, 0))
                counted = counted[tuple(slice(0, n) for n in total.shape)]
            else:
                counted = sum(_windows(np.ones_like(y, np.float64), rank, k, s, d, b, a, ceil_mode, 0))
            out = (total / np.maximum(counted, 1)).astype(x.dtype)
        return np.ascontiguousarray(np.moveaxis(out, 1, -1) if last else out)

    return reference


for _rank in (1, 2, 3):
    for _kind in ("max", "avg"):
        declare(
            f"nn.{_kind}_pool{_rank}d", "data",
            {
                "pool_size": 1, "strides": 1, "padding": 0, "dilation": 1, "ceil_mode": False, "count_include_pad": False, "layout": _LAYOUTS[_rank],
                "out_layout": None,
            },
            infer=_infer(_rank, f"nn.{_kind}_pool{_rank}d"), lower=_lower(_rank, _kind), reference=_reference(_rank, _kind), fusion=Fusion.ANCHOR,
            rtol=1e-4, doc=f"{_kind} pooling over {_rank}-D windows.",
        )  # fmt: skip


def _adaptive_infer(op: str) -> Any:
    def infer(data: Expr, output_size: Any = None, layout: str = "NCHW", out_layout: Any = None) -> TensorType:
        ty = tensor_arg(op, "data", data, ndim=4)
        if ty.shape is None:
            return ty
        h, w = pair(output_size, 2) if output_size is not None else (None, None)
        last = layout.endswith("C")
        spatial = _spatial(ty.shape, last)
        outs = [int64(h) if h is not None else spatial[0], int64(w) if w is not None else spatial[1]]
        dims = (ty.shape[0], *outs, ty.shape[3]) if last else (*ty.shape[:2], *outs)
        return TensorType(dims, ty.dtype, 4)

    return infer


def _adaptive_lower(kind: str) -> Any:
    def lower(x: Any, output_size: Any = None, layout: str = "NCHW", out_layout: Any = None) -> Any:
        last = layout.endswith("C")
        sizes = _spatial(x.shape, last)
        outs = [int64(v) for v in pair(output_size, 2)] if output_size is not None else list(sizes)

        def bounds(o: Any, size: Any, out: Any) -> tuple[Any, Any]:
            return floordiv(o * size, out), floordiv((o + int64(1)) * size + out - int64(1), out)

        longest = [simplify(floordiv(sizes[j] + outs[j] - int64(1), outs[j]) + int64(1)) for j in range(2)]
        ks = [
            te.reduce_axis((int64(0), n if as_int(outs[j]) != 1 else sizes[j]), f"k{j}") for j, n in enumerate(longest)
        ]
        fill = te.lowest(x.dtype) if kind == "max" else const(0, x.dtype)

        def element(*i: Any) -> Any:
            o = _spatial(i, last)
            at, inside = [], const(True, "bool")
            for j in range(2):
                low, high = bounds(o[j], sizes[j], outs[j])
                at.append(low + ks[j].var)
                if as_int(outs[j]) != 1:
                    inside = tir.all(inside, at[-1] < high)
            value = x(i[0], *at, i[-1]) if last else x(i[0], i[1], *at)
            value = if_then_else(inside, value, fill)
            return te.max(value, axis=ks) if kind == "max" else te.sum(value, axis=ks)

        shape = (x.shape[0], *outs, x.shape[3]) if last else (*x.shape[:2], *outs)
        out = te.compute(shape, element, name=f"T_adaptive_{kind}")
        if kind == "max":
            return out

        def mean(*i: Any) -> Any:
            count: Any = int64(1)
            for j, o in enumerate(_spatial(i, last)):
                low, high = bounds(o, sizes[j], outs[j])
                count = count * (high - low)
            return out(*i) / cast(x.dtype, count)

        return te.compute(shape, mean, name="T_adaptive_mean")

    return lower


def _adaptive_ref(kind: str) -> Any:
    def reference(x: Any, output_size: Any, layout: str, out_layout: Any) -> Any:
        y = np.moveaxis(x, -1, 1) if layout.endswith("C") else x
        oh, ow = pair(output_size, 2) if output_size is not None else y.shape[2:]
        out = np.empty((*y.shape[:2], oh, ow), x.dtype)
        for i, j in np.ndindex(oh, ow):
            part = y[
                :,
                :,
                i * y.shape[2] // oh : -(-(i + 1) * y.shape[2] // oh),
                j * y.shape[3] // ow : -(-(j + 1) * y.shape[3] // ow),
            ]
            out[:, :, i, j] = part.max((2, 3)) if kind == "max" else part.mean((2, 3), dtype=np.float64)
        return np.ascontiguousarray(np.moveaxis(out, 1, -1) if layout.endswith("C") else out)

    return reference


for _kind in ("max", "avg"):
    declare(
        f"nn.adaptive_{_kind}_pool2d", "data", {"output_size": None, "layout": "NCHW", "out_layout": None}, infer=_adaptive_infer(f"nn.adaptive_{_kind}_pool2d"),
        lower=_adaptive_lower(_kind), reference=_adaptive_ref(_kind), fusion=Fusion.OPAQUE, rtol=1e-4, doc="Pool to a given output size.",
    )  # fmt: skip


# --- max pooling that also returns where -------------------------------------------------------------------------------


def _indices_infer(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> TupleType:
    ty = tensor_arg("nn.max_pool_with_indices", "data", data)
    rank = ty.ndim - 2
    dims = (
        None
        if ty.shape is None
        else _pool_shape(rank, ty.shape, pool_size, strides, dilation, padding, ceil_mode, _LAYOUTS[rank])
    )
    return TupleType((TensorType(dims, ty.dtype, ty.ndim), TensorType(dims, "int64", ty.ndim)))


def _indices_lower(
    x: Any,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> Any:
    rank = x.ndim - 2
    k, s, d, b, a = _window(rank, pool_size, strides, dilation, padding)
    shape = _pool_shape(rank, x.shape, pool_size, strides, dilation, padding, ceil_mode, _LAYOUTS[rank])
    ks = [te.reduce_axis((int64(0), int64(k[i])), f"k{i}") for i in range(rank)]

    def combine(lhs: Any, rhs: Any) -> Any:
        better = tir.any(rhs[1] > lhs[1], tir.all(lhs[0] < int64(0), rhs[0] >= int64(0)))
        return select(better, rhs[0], lhs[0]), select(better, rhs[1], lhs[1])

    reducer = te.comm_reducer(combine, lambda t0, t1: (const(-1, t0), te.lowest(t1)), name="argmax_pool")
    order = list(range(rank)) if storage_order == 0 else list(reversed(range(rank)))

    def element(n: Any, c: Any, *o: Any) -> Any:
        at = [o[j] * int64(s[j]) + ks[j].var * int64(d[j]) - int64(b[j]) for j in range(rank)]
        inside = tir.all(*(tir.all(p >= int64(0), p < x.shape[2 + j]) for j, p in enumerate(at)))
        flat: Any = n * x.shape[1] + c
        spatial: Any = int64(0)
        for j in order:
            spatial = spatial * x.shape[2 + j] + at[j]
        for j in range(rank):
            flat = flat * x.shape[2 + j]
        index = select(inside, flat + spatial, int64(-1))
        return reducer((index, if_then_else(inside, x(n, c, *at), te.lowest(x.dtype))), axis=ks)

    index, value = te.compute(shape, element, name="max_pool_indices")
    return value, index


def _indices_ref(
    x: Any, pool_size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool, storage_order: int
) -> Any:
    rank = x.ndim - 2
    k, s, d, b, a = _window(rank, pool_size, strides, dilation, padding)
    flat = np.arange(x.size).reshape(x.shape)
    if storage_order:
        base = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]) * int(np.prod(x.shape[2:]))
        flat = (
            base.reshape(*x.shape[:2], *[1] * rank)
            + np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[:1:-1]).transpose()[None, None]
        )
    best, where = None, None
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    for v, i in zip(
        _windows(x, rank, k, s, d, b, a, ceil_mode, lowest),
        _windows(flat, rank, k, s, d, b, a, ceil_mode, -1),
        strict=True,
    ):
        better = np.ones(v.shape, bool) if best is None else (v > best) | ((where < 0) & (i >= 0))
        best, where = (v, i) if best is None else (np.where(better, v, best), np.where(better, i, where))
    return best, where.astype(np.int64)  # type: ignore[union-attr]


declare(
    "nn.max_pool_with_indices", "data", {"pool_size": 1, "strides": 1, "padding": 0, "dilation": 1, "ceil_mode": False, "storage_order": 0},
    infer=_indices_infer, lower=_indices_lower, reference=_indices_ref, fusion=Fusion.OPAQUE,
    doc="Max pooling (channels first); also the flat index of each maximum, rows first or (storage_order 1) columns first.",
)  # fmt: skip
