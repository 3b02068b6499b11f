"""Convolutions of any rank, channels first or last, and transposed convolutions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from weft import te, tir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import Expr, TensorType, as_int, as_shape, cast, const, floordiv, floormod, if_then_else, int64
from weft.op.infer import same_dtype, simplify, tensor_arg
from weft.op.registry import Fusion, declare

__all__: list[str] = []


def pair(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each spatial axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in (values if len(values) == rank else values * rank))


def paddings(padding: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each spatial axis, from one number, one an axis, or all beginnings then all ends."""
    values = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    values = tuple(int(v) for v in values)
    if len(values) == 1:
        values = values * (2 * rank)
    elif len(values) == rank:
        values = values * 2
    if len(values) != 2 * rank:
        raise ShapeMismatch(
            "padding has a wrong length", expected=f"1, {rank} or {2 * rank} numbers", found=str(len(values))
        )
    return values[:rank], values[rank:]


def _last(layout: str) -> bool:
    return layout.endswith("C")


_PACKED = re.compile(r"^O[DHW]*I(\d+)o$|^O[DHW]+I(\d+)o$")


def _weight_info(shape: Any, layout: str, rank: int, channels: Any) -> tuple[Any, list[Any], str]:
    """Return (output channels, spatial extents of the kernel, kind) of weights in a layout."""
    if _PACKED.match(layout):
        return (
            (int64(int(channels)) if channels is not None else shape[0] * shape[-1]),
            list(shape[1 : 1 + rank]),
            "packed",
        )
    if layout.startswith("OI"):
        return shape[0], list(shape[2:]), "first"
    if layout.endswith("IO"):
        return shape[-1], list(shape[:rank]), "last"
    if layout.endswith("C"):
        return shape[-1], list(shape[:rank]), "depthwise"
    raise InvalidArgument(f"conv: unknown kernel layout '{layout}'", expected="OIHW, HWIO, HWC or OHWI<n>o")


def _out_size(size: Any, kernel: Any, stride: int, dilation: int, before: int, after: int) -> Any:
    extent = (kernel - int64(1)) * int64(dilation) + int64(1)
    return simplify(floordiv(size + int64(before + after) - extent, int64(stride)) + int64(1))


def _conv_infer(rank: int) -> Any:
    name = f"nn.conv{rank}d"

    def infer(
        data: Expr, weight: Expr, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, data_layout: str = "", kernel_layout: str = "",
        out_layout: Any = None, out_dtype: str = "", channels: Any = None,
    ) -> TensorType:  # fmt: skip
        x, w = tensor_arg(name, "data", data, ndim=rank + 2), tensor_arg(name, "weight", weight)
        dtype = out_dtype or same_dtype(name, data, weight)
        if x.shape is None or w.shape is None:
            return TensorType(None, dtype, rank + 2)
        out_channels, kernel, kind = _weight_info(w.shape, kernel_layout or "OI", rank, channels)
        last = _last(data_layout)
        spatial, c = (x.shape[1:-1], x.shape[-1]) if last else (x.shape[2:], x.shape[1])
        if (
            kind == "first"
            and as_int(c) is not None
            and as_int(w.shape[1]) is not None
            and as_int(c) != as_int(w.shape[1]) * groups
        ):  # type: ignore[operator]
            raise ShapeMismatch(
                f"{name}: channels do not fit", expected=f"data channels == weight.shape[1] * groups = {as_int(w.shape[1]) * groups}",  # type: ignore[operator]
                found=str(c), where=data.span,
            )  # fmt: skip
        s, d, (before, after) = pair(strides, rank), pair(dilation, rank), paddings(padding, rank)
        outs = [_out_size(spatial[i], kernel[i], s[i], d[i], before[i], after[i]) for i in range(rank)]
        dims = (x.shape[0], *outs, out_channels) if last else (x.shape[0], out_channels, *outs)
        return TensorType(dims, dtype, rank + 2)

    return infer


def pad_spatial(x: Any, before: Any, after: Any, last: bool, value: Any = None, name: str = "pad") -> Any:
    """Pad the spatial axes; the tensor itself where there is nothing to pad."""
    if not any(before) and not any(after):
        return x
    first = 1 if last else 2
    fill = const(0, x.dtype) if value is None else value
    shape = list(x.shape)
    for i, (b, a) in enumerate(zip(before, after, strict=True)):
        shape[first + i] = simplify(shape[first + i] + int64(b + a))

    def element(*i: Any) -> Any:
        at, inside = list(i), const(True, "bool")
        for d, (b, a) in enumerate(zip(before, after, strict=True)):
            j = i[first + d] - int64(b) if b else i[first + d]
            at[first + d] = j
            if b:
                inside = tir.all(inside, j >= int64(0))
            if a:
                inside = tir.all(inside, j < x.shape[first + d])
        return if_then_else(inside, x(*at), fill)

    return te.compute(tuple(shape), element, name=name)


def _conv_lower(rank: int) -> Any:
    def lower(
        x: Any, w: Any, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, data_layout: str = "", kernel_layout: str = "",
        out_layout: Any = None, out_dtype: str = "", channels: Any = None,
    ) -> Any:  # fmt: skip
        last, dtype = _last(data_layout), out_dtype or x.dtype
        s, d, (before, after) = pair(strides, rank), pair(dilation, rank), paddings(padding, rank)
        out_channels, kernel, kind = _weight_info(w.shape, kernel_layout or "OI", rank, channels)
        spatial = x.shape[1:-1] if last else x.shape[2:]
        outs = [_out_size(spatial[i], kernel[i], s[i], d[i], before[i], after[i]) for i in range(rank)]
        padded = pad_spatial(x, before, after, last)
        in_channels = x.shape[-1] if last else x.shape[1]
        per_group = simplify(floordiv(in_channels, int64(groups))) if groups > 1 else in_channels
        ks = [te.reduce_axis((int64(0), kernel[i]), f"k{i}") for i in range(rank)]
        rc = te.reduce_axis((int64(0), per_group), "rc")
        group_size = simplify(floordiv(out_channels, int64(groups)))
        depthwise = kind == "depthwise"

        def element(*i: Any) -> Any:
            n, oc = i[0], i[-1] if last else i[1]
            o = i[1:-1] if last else i[2:]
            at = [o[j] * int64(s[j]) + ks[j].var * int64(d[j]) for j in range(rank)]
            taps = [k.var for k in ks]
            if depthwise:
                c = oc if as_int(group_size) == 1 else floordiv(oc, group_size)
                weight = w(*taps, oc)
            else:
                c = rc.var if groups == 1 else floordiv(oc, group_size) * per_group + rc.var
                weight = _weight(w, kind, oc, taps, rc.var)
            value = padded(n, *at, c) if last else padded(n, c, *at)
            return te.sum(cast(dtype, value) * cast(dtype, weight), axis=ks if depthwise else [*ks, rc])

        shape = (x.shape[0], *outs, out_channels) if last else (x.shape[0], out_channels, *outs)
        return te.compute(shape, element, name="T_depthwise_conv" if depthwise else "T_conv")

    return lower


def _weight(w: Any, kind: str, oc: Any, taps: list[Any], c: Any) -> Any:
    if kind == "packed":
        panel = w.shape[-1]
        return w(floordiv(oc, panel), *taps, c, floormod(oc, panel))
    return w(oc, c, *taps) if kind == "first" else w(*taps, c, oc)


def _to_first(x: Any, w: Any, rank: int, data_layout: str, kernel_layout: str, channels: Any) -> tuple[Any, Any]:
    """Bring arrays to channels-first data and OI... weights."""
    if _last(data_layout):
        x = np.moveaxis(x, -1, 1)
    kind = _weight_info(as_shape(w.shape), kernel_layout or "OI", rank, channels)[2]
    if kind == "packed":
        w = np.moveaxis(w, -1, 1)
        w = np.moveaxis(w.reshape(-1, *w.shape[2:])[: int(channels) if channels is not None else None], -1, 1)
    elif kind == "last":
        w = np.moveaxis(w, (-1, -2), (0, 1))
    elif kind == "depthwise":
        w = np.moveaxis(w, -1, 0)[:, None]
    return x, w


def _conv_ref(rank: int) -> Any:
    def reference(
        x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int, data_layout: str, kernel_layout: str, out_layout: Any, out_dtype: str,
        channels: Any,
    ) -> Any:  # fmt: skip
        dtype = out_dtype or x.dtype
        x, w = _to_first(x.astype(np.float64), w.astype(np.float64), rank, data_layout, kernel_layout, channels)
        s, d, (before, after) = pair(strides, rank), pair(dilation, rank), paddings(padding, rank)
        x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        outs = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * d[i] - 1) // s[i] + 1 for i in range(rank)]
        y = np.zeros((x.shape[0], w.shape[0], *outs))
        cg, og = x.shape[1] // groups, w.shape[0] // groups
        for g in range(groups):
            for t in np.ndindex(*w.shape[2:]):
                at = tuple(slice(t[i] * d[i], t[i] * d[i] + (outs[i] - 1) * s[i] + 1, s[i]) for i in range(rank))
                y[:, g * og : (g + 1) * og] += np.einsum(
                    "nc...,oc->no...",
                    x[(slice(None), slice(g * cg, (g + 1) * cg), *at)],
                    w[(slice(g * og, (g + 1) * og), slice(None), *t)],
                )
        return np.ascontiguousarray(np.moveaxis(y, 1, -1) if _last(data_layout) else y).astype(dtype)

    return reference


_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNELS = {1: "OIW", 2: "OIHW", 3: "OIDHW"}

for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d", "data weight",
        {
            "strides": 1, "padding": 0, "dilation": 1, "groups": 1, "data_layout": _LAYOUTS[_rank], "kernel_layout": _KERNELS[_rank], "out_layout": None,
            "out_dtype": "", "channels": None,
        },
        infer=_conv_infer(_rank), lower=_conv_lower(_rank), reference=_conv_ref(_rank), fusion=Fusion.ANCHOR, rtol=1e-4,
        doc=f"{_rank}-D convolution (cross-correlation). `padding` is all beginnings, then all ends.",
    )  # fmt: skip


# --- transposed --------------------------------------------------------------------------------------------------------


def _transpose_size(size: Any, kernel: Any, stride: int, dilation: int, before: int, after: int, extra: int) -> Any:
    return simplify(
        (size - int64(1)) * int64(stride)
        - int64(before + after)
        + (kernel - int64(1)) * int64(dilation)
        + int64(1 + extra)
    )


def _transpose_infer(rank: int) -> Any:
    name = f"nn.conv{rank}d_transpose"

    def infer(
        data: Expr, weight: Expr, strides: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1, data_layout: str = "",
        kernel_layout: str = "", out_layout: Any = None, out_dtype: str = "",
    ) -> TensorType:  # fmt: skip
        x, w = tensor_arg(name, "data", data, ndim=rank + 2), tensor_arg(name, "weight", weight, ndim=rank + 2)
        dtype = out_dtype or same_dtype(name, data, weight)
        if x.shape is None or w.shape is None:
            return TensorType(None, dtype, rank + 2)
        s, d, e, (before, after) = (
            pair(strides, rank),
            pair(dilation, rank),
            pair(output_padding, rank),
            paddings(padding, rank),
        )
        outs = [
            _transpose_size(x.shape[2 + i], w.shape[2 + i], s[i], d[i], before[i], after[i], e[i]) for i in range(rank)
        ]
        return TensorType((x.shape[0], simplify(w.shape[1] * int64(groups)), *outs), dtype, rank + 2)

    return infer


def _transpose_lower(rank: int) -> Any:
    def lower(
        x: Any, w: Any, strides: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1, data_layout: str = "",
        kernel_layout: str = "", out_layout: Any = None, out_dtype: str = "",
    ) -> Any:  # fmt: skip
        s, d, e, (before, after) = (
            pair(strides, rank),
            pair(dilation, rank),
            pair(output_padding, rank),
            paddings(padding, rank),
        )
        outs = [
            _transpose_size(x.shape[2 + i], w.shape[2 + i], s[i], d[i], before[i], after[i], e[i]) for i in range(rank)
        ]
        per_out = w.shape[1]
        per_in = simplify(floordiv(x.shape[1], int64(groups)))
        ks = [te.reduce_axis((int64(0), w.shape[2 + i]), f"k{i}") for i in range(rank)]
        rc = te.reduce_axis((int64(0), per_in), "rc")

        def element(n: Any, oc: Any, *o: Any) -> Any:
            group = floordiv(oc, per_out) if groups > 1 else int64(0)
            c = group * per_in + rc.var if groups > 1 else rc.var
            at, inside = [], const(True, "bool")
            for i in range(rank):
                j = o[i] + int64(before[i]) - ks[i].var * int64(d[i])
                q = floordiv(j, int64(s[i])) if s[i] > 1 else j
                inside = tir.all(inside, q >= int64(0), q < x.shape[2 + i])
                if s[i] > 1:
                    inside = tir.all(inside, floormod(j, int64(s[i])).equal(int64(0)))
                at.append(q)
            value = if_then_else(inside, x(n, c, *at), const(0, x.dtype))
            oc_in = floormod(oc, per_out) if groups > 1 else oc
            return te.sum(value * w(c, oc_in, *[k.var for k in ks]), axis=[*ks, rc])

        return te.compute((x.shape[0], simplify(per_out * int64(groups)), *outs), element, name="T_conv_transpose")

    return lower


def _transpose_ref(rank: int) -> Any:
    def reference(
        x: Any, w: Any, strides: Any, padding: Any, output_padding: Any, dilation: Any, groups: int, data_layout: str, kernel_layout: str, out_layout: Any,
        out_dtype: str,
    ) -> Any:  # fmt: skip
        s, d, e, (before, after) = (
            pair(strides, rank),
            pair(dilation, rank),
            pair(output_padding, rank),
            paddings(padding, rank),
        )
        full = [(x.shape[2 + i] - 1) * s[i] + (w.shape[2 + i] - 1) * d[i] + 1 + e[i] for i in range(rank)]
        og, cg = w.shape[1], x.shape[1] // groups
        y = np.zeros((x.shape[0], og * groups, *full))
        for g in range(groups):
            for t in np.ndindex(*w.shape[2:]):
                at = tuple(slice(t[i] * d[i], t[i] * d[i] + (x.shape[2 + i] - 1) * s[i] + 1, s[i]) for i in range(rank))
                part = np.einsum(
                    "nc...,co->no...",
                    x[:, g * cg : (g + 1) * cg].astype(np.float64),
                    w[(slice(g * cg, (g + 1) * cg), slice(None), *t)].astype(np.float64),
                )
                y[(slice(None), slice(g * og, (g + 1) * og), *at)] += part
        crop = tuple(slice(before[i], full[i] - after[i]) for i in range(rank))
        return np.ascontiguousarray(y[(slice(None), slice(None), *crop)]).astype(out_dtype or x.dtype)

    return reference


for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d_transpose", "data weight",
        {
            "strides": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1, "data_layout": _LAYOUTS[_rank], "kernel_layout": "IO",
            "out_layout": None, "out_dtype": "",
        },
        infer=_transpose_infer(_rank), lower=_transpose_lower(_rank), reference=_transpose_ref(_rank), fusion=Fusion.ANCHOR, rtol=1e-4,
        doc=f"{_rank}-D transposed convolution, weights (in, out / groups, ...).",
    )  # fmt: skip
