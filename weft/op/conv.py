"""Convolutions of any rank, channels first or last, and transposed convolutions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from weft.ir import Expr, TensorType, as_int, as_shape, ceildiv, int64
from weft.op.any_layout import Layouts, in_any_order
from weft.op.attributes import Attribute, data_layout, dtype, integer, padding, sizes, text
from weft.op.infer import demand_held, demand_same_layout, same_dtype, simplify, tensor_arg
from weft.op.registry import Fusion, declare, make_call
from weft.op.relations import demand_at_least, demand_divisible, demand_equal
from weft.topi.conv import (
    channels_last,
    conv,
    conv_shape,
    conv_size,
    conv_transpose,
    dot_group,
    panel_size,
    spatial,
    transposed_size,
    weight_info,
)
from weft.topi.precision import in_float32
from weft.topi.winograd import conv2d_winograd, winograd_matrices


def _conv_infer(rank: int) -> Any:
    name = f"nn.conv{rank}d"

    def infer(data: Expr, weight: Expr, groups: int, data_layout: str, kernel_layout: str, **attrs: Any) -> TensorType:
        strides, padding, dilation = (attrs[name] for name in ("strides", "padding", "dilation"))
        letters = sum(c.isupper() for c in kernel_layout) + ("o" in kernel_layout)  # panels have a dimension more
        x, w = tensor_arg(name, "data", data, ndim=rank + 2), tensor_arg(name, "weight", weight, ndim=letters)
        dtype = attrs["out_dtype"] or same_dtype(name, data, weight)
        demand_held(name, "pad_value", attrs["pad_value"], x.dtype, data.span)
        if x.shape is None or w.shape is None:
            return TensorType(None, dtype, rank + 2)
        out_channels, kernel, kind = weight_info(w.shape, kernel_layout, rank, attrs["channels"])
        last = channels_last(data_layout)
        sizes, c = spatial(x.shape, last), x.shape[-1] if last else x.shape[1]
        if kind == "packed":
            _demand_panels(name, w, kernel_layout, out_channels, data)
        where = {"first": 1, "outer": -1, "last": -2, "packed": -2}.get(kind)
        if where is not None and dot_group(kernel_layout) == 1:
            demand_equal(f"{name}: channels of 'data'", c, w.shape[where] * int64(groups), data.span)
        elif where is not None:
            steps = ceildiv(c, int64(dot_group(kernel_layout)))
            demand_equal(f"{name}: channels of 'data', in groups", steps, w.shape[where], data.span)
        else:
            demand_equal(f"{name}: channels of 'data'", c, groups, data.span)
        demand_divisible(f"{name}: output channels", out_channels, groups, data.span)
        before, after = padding[:rank], padding[rank:]
        outs = [conv_size(sizes[i], kernel[i], strides[i], dilation[i], before[i], after[i]) for i in range(rank)]
        _demand_sizes(name, outs, data)
        last_out = channels_last(attrs["out_layout"] or data_layout)
        return TensorType(conv_shape(x.shape, outs, out_channels, last_out), dtype, rank + 2)

    return infer


def _demand_sizes(name: str, outs: list[Any], data: Expr) -> None:
    """Demand that windows fit into the padded data."""
    for i, out in enumerate(outs):
        demand_at_least(f"{name}: size of the result in spatial dimension {i}", out, 0, data.span)


def _demand_panels(name: str, weight: TensorType, layout: str, channels: Any, data: Expr) -> None:
    """Demand panels as wide as the layout says, and as many as hold all output channels."""
    shape, wide, group = weight.shape, panel_size(layout), dot_group(layout)
    demand_equal(f"{name}: width of the panels of 'weight'", shape[-1], wide, data.span)  # type: ignore[index]
    held = shape[0] * int64(wide // group)  # type: ignore[index]
    demand_at_least(f"{name}: output channels in 'weight'", held, channels, data.span)


def _to_first(x: Any, w: Any, rank: int, data_layout: str, kernel_layout: str, channels: Any) -> tuple[Any, Any]:
    """Bring arrays to channels-first data and OI... weights."""
    if channels_last(data_layout):
        x = np.moveaxis(x, -1, 1)
    kind = weight_info(as_shape(w.shape), kernel_layout, rank, channels)[2]
    if kind == "packed":
        group = dot_group(kernel_layout)
        if group > 1:  # (O / panel, ..., I / group, panel * group) to (O / panel, ..., I, panel)
            wide = w.shape[-1] // group
            w = np.moveaxis(w.reshape(*w.shape[:-1], wide, group), -1, -2)
            w = w.reshape(*w.shape[:-3], w.shape[-3] * group, wide)
            w = w[..., : x.shape[1], :]
        w = np.moveaxis(w, -1, 1)
        w = np.moveaxis(
            w.reshape(w.shape[0] * w.shape[1], *w.shape[2:])[: int(channels) if channels is not None else None], -1, 1
        )
    elif kind == "last":
        w = np.moveaxis(w, (-1, -2), (0, 1))
    elif kind == "outer":
        w = np.moveaxis(w, -1, 1)
    elif kind == "depthwise":
        w = np.moveaxis(w, -1, 0)[:, None]
    return x, w


def _conv_ref(rank: int) -> Any:
    def reference(x: Any, w: Any, groups: int, data_layout: str, kernel_layout: str, **attrs: Any) -> Any:
        dtype, channels = attrs["out_dtype"] or x.dtype, attrs["channels"]
        exact = np.int64 if x.dtype.kind in "iu" and w.dtype.kind in "iu" else np.float64
        x, w = _to_first(x.astype(exact), w.astype(exact), rank, data_layout, kernel_layout, channels)
        s, d, padding = attrs["strides"], attrs["dilation"], attrs["padding"]
        around = [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)]
        x = np.pad(x, around, constant_values=attrs["pad_value"])
        outs = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * d[i] - 1) // s[i] + 1 for i in range(rank)]
        y = np.zeros((x.shape[0], w.shape[0], *outs), exact)
        cg, og = x.shape[1] // groups, w.shape[0] // groups
        for g in range(groups):
            for t in np.ndindex(*w.shape[2:]):
                at = tuple(slice(b := t[i] * d[i], b + max((outs[i] - 1) * s[i] + 1, 0), s[i]) for i in range(rank))
                y[:, g * og : (g + 1) * og] += np.einsum(
                    "nc...,oc->no...",
                    x[(slice(None), slice(g * cg, (g + 1) * cg), *at)],
                    w[(slice(g * og, (g + 1) * og), slice(None), *t)],
                )
        last = channels_last(attrs["out_layout"] or data_layout)
        return np.ascontiguousarray(np.moveaxis(y, 1, -1) if last else y).astype(dtype)

    return reference


def _kernel_forms(rank: int) -> str:
    """The pattern of the layouts of weights that convolutions compute with as they are."""
    spatial = "DHW"[3 - rank :]
    return f"OI{spatial}|{spatial}IO|{spatial}C|O{spatial}I(\\d+o(\\d+i)?)?"


def _kernel_layout(rank: int) -> Attribute:
    spatial, forms = "DHW"[3 - rank :], _kernel_forms(rank)
    names = (f"OI{spatial}", f"{spatial}IO", f"O{spatial}I", f"{spatial}C")
    return text(names[0], forms, ", ".join(map(repr, names)) + f" or 'O{spatial}I<n>o'")


def _layouts(rank: int, kernel: Attribute, letters: str) -> dict[str, Attribute]:
    """The attributes of layouts, each in any order and with blocks."""
    plain = "DHW"[3 - rank :]
    data, out = (in_any_order(data_layout(rank, optional=o), f"NC{plain}") for o in (False, True))
    return {"data_layout": data, "kernel_layout": in_any_order(kernel, letters + plain), "out_layout": out}


def _known(name: str, rank: int, letters: str) -> Layouts:
    """The layouts that the convolution itself computes in."""
    spatial = "DHW"[3 - rank :]
    data = ("NC" + spatial, f"N{spatial}C")
    kernel = re.compile(_kernel_forms(rank) if letters == "OI" else f"IO{spatial}")

    def known(attrs: dict[str, Any]) -> bool:
        outs = (None, *data) if letters == "OI" else (None, attrs["data_layout"])
        plain = attrs["data_layout"] in data and attrs["out_layout"] in outs
        return plain and kernel.fullmatch(attrs["kernel_layout"]) is not None

    return Layouts(name, (("data_layout", data[0]), ("kernel_layout", letters + spatial)), known)


def _simpler(rank: int) -> Any:
    """Turn weights whose input channels come last to where everything knows them; constants are turned once.

    A convolution that scales each channel by itself is a multiplication, which needs no layout of its own; one whose
    windows end in the padding wherever they stand, as those of wide dilations do, has smaller windows.
    """

    def decompose(data: Expr, weight: Expr, kernel_layout: str, **attrs: Any) -> Expr | None:
        ty, (c, *rest) = weight.ty, [as_int(d) for d in getattr(weight.ty, "shape", None) or (None,)]
        first = kernel_layout.startswith("OI") and attrs["data_layout"].startswith("NC")
        if first and c == attrs["groups"] and rest == [1] * (rank + 1) and _only_scales(data, ty, attrs):
            return make_call("multiply")(data, make_call("reshape")(weight, (c, *[1] * rank)))
        if first and not attrs["pad_value"] and (seen := _seen_taps(rank, data, ty, attrs)) is not None:
            begin, end, smaller = seen
            weight = make_call("strided_slice")(weight, axes=list(range(2, rank + 2)), begin=begin, end=end)
            return make_call(f"nn.conv{rank}d")(data, weight, kernel_layout=kernel_layout, **attrs | smaller)
        if not kernel_layout.endswith("I"):
            return None
        spatial = kernel_layout[1:-1]
        turned = make_call("permute_dims")(weight, [*range(1, rank + 2), 0])
        return make_call(f"nn.conv{rank}d")(data, turned, kernel_layout=f"{spatial}IO", **attrs)

    return decompose


def _only_scales(data: Expr, weight: Any, attrs: dict[str, Any]) -> bool:
    """Whether a window of one element meets each element of the data once, and nothing changes type or order."""
    dtype = getattr(data.ty, "dtype", None)
    plain = dtype == weight.dtype and dtype in ("float32", "float64") and attrs["out_dtype"] in (None, "", dtype)
    steps, around = np.ravel(attrs["strides"]), np.ravel(attrs["padding"])
    return plain and attrs["out_layout"] in (None, "", attrs["data_layout"]) and (steps == 1).all() and not around.any()


def _seen_taps(rank: int, data: Expr, weight: Any, attrs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]] | None:
    """Return where the taps of a window that ever meet the data begin and end, and the attributes of that window."""
    known = [[as_int(n) for n in getattr(t, "shape", None) or [None] * (rank + 2)][2:] for t in (data.ty, weight)]
    low, high, dilation = list(attrs["padding"][:rank]), list(attrs["padding"][rank:]), list(attrs["dilation"])
    begin, end, window = [0] * rank, [0] * rank, known[1]
    for i, (n, k) in enumerate(zip(*known, strict=True)):
        if n is None or k is None:
            return None
        room, d = n + low[i] + high[i] - (k - 1) * dilation[i] - 1, dilation[i]
        last = room - room % attrs["strides"][i]  # where the last window begins
        seen = [tap for tap in range(k) if -last <= tap * d - low[i] < n]
        if room < 0 or not seen or seen[0] * d > low[i] or (k - 1 - seen[-1]) * d > high[i]:
            return None
        begin[i], end[i] = seen[0], seen[-1] + 1
        low[i], high[i] = low[i] - seen[0] * d, high[i] - (k - 1 - seen[-1]) * d
        dilation[i] = d if len(seen) > 1 else 1
    return None if (begin, end) == ([0] * rank, window) else (begin, end, {"padding": low + high, "dilation": dilation})


for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d",
        "data weight",
        {
            "strides": sizes(1, _rank),
            "padding": padding(_rank),
            "dilation": sizes(1, _rank),
            "groups": integer(1, at_least=1),
            **_layouts(_rank, _kernel_layout(_rank), "OI"),
            "out_dtype": dtype(),
            "channels": integer(at_least=1).or_none(),
            "pad_value": integer(0),
        },
        fusion=Fusion.ANCHOR,
        rtol=1e-4,
        **_known(f"nn.conv{_rank}d", _rank, "OI").declared(_conv_infer(_rank), conv, _conv_ref(_rank), _simpler(_rank)),
        doc=f"{_rank}-D convolution (cross-correlation). `padding` is all beginnings, then all ends, and adds "
        "elements of `pad_value`.",
    )


# --- transposed -------------------------------------------------------------------------------------------------------


def _transpose_infer(rank: int) -> Any:
    name = f"nn.conv{rank}d_transpose"

    def infer(
        data: Expr,
        weight: Expr,
        strides: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        data_layout: str,
        out_layout: str | None,
        out_dtype: str,
    ) -> TensorType:
        demand_same_layout(name, data_layout, out_layout, data.span)
        x, w = tensor_arg(name, "data", data, ndim=rank + 2), tensor_arg(name, "weight", weight, ndim=rank + 2)
        dtype = out_dtype or same_dtype(name, data, weight)
        s, d, e, before, after = strides, dilation, output_padding, padding[:rank], padding[rank:]
        for i in range(rank):
            most = max(s[i], d[i]) - 1
            demand_at_least(f"{name}: what output_padding {e[i]} leaves of {most}", int64(most - e[i]), 0, data.span)
        if x.shape is None or w.shape is None:
            return TensorType(None, dtype, rank + 2)
        last = channels_last(data_layout)
        sizes, c = spatial(x.shape, last), x.shape[-1] if last else x.shape[1]
        demand_equal(f"{name}: channels of 'data'", c, w.shape[0], data.span)
        demand_divisible(f"{name}: channels of 'data'", c, groups, data.span)
        outs = [transposed_size(sizes[i], w.shape[2 + i], s[i], d[i], before[i], after[i], e[i]) for i in range(rank)]
        _demand_sizes(name, outs, data)
        return TensorType(conv_shape(x.shape, outs, simplify(w.shape[1] * int64(groups)), last), dtype, rank + 2)

    return infer


def _transpose_ref(rank: int) -> Any:
    def reference(x: Any, w: Any, padding: Any, groups: int, data_layout: str, out_dtype: str, **attrs: Any) -> Any:
        s, d, e = attrs["strides"], attrs["dilation"], attrs["output_padding"]
        before, after = padding[:rank], padding[rank:]
        x = np.moveaxis(x, -1, 1) if channels_last(data_layout) else x
        full = [(x.shape[2 + i] - 1) * s[i] + (w.shape[2 + i] - 1) * d[i] + 1 + e[i] for i in range(rank)]
        og, cg = w.shape[1], x.shape[1] // groups
        y = np.zeros((x.shape[0], og * groups, *full))
        for g in range(groups):
            for t in np.ndindex(*w.shape[2:]):
                at = tuple(
                    slice(t[i] * d[i], t[i] * d[i] + max((x.shape[2 + i] - 1) * s[i] + 1, 0), s[i]) for i in range(rank)
                )
                part = np.einsum(
                    "nc...,co->no...",
                    x[:, g * cg : (g + 1) * cg].astype(np.float64),
                    w[(slice(g * cg, (g + 1) * cg), slice(None), *t)].astype(np.float64),
                )
                y[(slice(None), slice(g * og, (g + 1) * og), *at)] += part
        crop = tuple(slice(before[i], full[i] - after[i]) for i in range(rank))
        y = y[(slice(None), slice(None), *crop)]
        return np.ascontiguousarray(np.moveaxis(y, 1, -1) if channels_last(data_layout) else y).astype(
            out_dtype or x.dtype
        )

    return reference


for _rank in (1, 2, 3):
    declare(
        f"nn.conv{_rank}d_transpose",
        "data weight",
        {
            "strides": sizes(1, _rank),
            "padding": padding(_rank),
            "output_padding": sizes(0, _rank, at_least=0),
            "dilation": sizes(1, _rank),
            "groups": integer(1, at_least=1),
            **_layouts(_rank, text(_io := f"IO{'DHW'[3 - _rank :]}", _io, repr(_io)), "IO"),
            "out_dtype": dtype(),
        },
        **_known(f"nn.conv{_rank}d_transpose", _rank, "IO").declared(
            _transpose_infer(_rank), conv_transpose, _transpose_ref(_rank)
        ),
        fusion=Fusion.ANCHOR,
        rtol=1e-4,
        doc=f"{_rank}-D transposed convolution, weights (in, out / groups, ...).",
    )


# --- by Winograd's algorithm ---


def _winograd_infer(data: Expr, weight: Expr, padding: Any, tile: int, channels: int) -> TensorType:
    name = "nn.conv2d_winograd"
    x, w = tensor_arg(name, "data", data, min_ndim=4), tensor_arg(name, "weight", weight, ndim=5)
    dtype = same_dtype(name, data, weight)
    if x.shape is None or w.shape is None:
        return TensorType(None, dtype, x.ndim)
    demand_equal(f"{name}: channels of 'data'", x.shape[-1], w.shape[-2], data.span)
    for i in range(2):
        demand_equal(f"{name}: dimension {i} of 'weight'", w.shape[i], tile + 2, data.span)
    demand_at_least(f"{name}: output channels in 'weight'", w.shape[2] * w.shape[4], channels, data.span)
    outs = [conv_size(x.shape[i - 3], int64(3), 1, 1, padding[i], padding[2 + i]) for i in range(2)]
    _demand_sizes(name, outs, data)
    return TensorType((*x.shape[:-3], *outs, int64(channels)), dtype, x.ndim)


def _winograd_ref(data: Any, u: Any, padding: Any, tile: int, channels: int) -> Any:
    b, _, a = winograd_matrices(tile)
    rows, columns = (size + padding[i] + padding[2 + i] - 2 for i, size in enumerate(data.shape[-3:-1]))
    x = data.astype(np.float64).reshape(np.prod(data.shape[:-3], dtype=int), *data.shape[-3:])
    x = np.pad(x, [(0, 0), (padding[0], padding[2] + -rows % tile), (padding[1], padding[3] + -columns % tile), (0, 0)])
    u = np.moveaxis(u.astype(np.float64), -1, 3).reshape(*u.shape[:2], -1, u.shape[3])[:, :, :channels]
    y = np.zeros((x.shape[0], x.shape[1] - 2, x.shape[2] - 2, channels))
    for i, j in np.ndindex(y.shape[1] // tile, y.shape[2] // tile):
        d = x[:, i * tile : i * tile + tile + 2, j * tile : j * tile + tile + 2]
        m = np.einsum("naec,aeoc->naeo", _rows(b, _rows(b, d, 1), 2), u)
        y[:, i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = _rows(a, _rows(a, m, 1), 2)
    return y[:, :rows, :columns].reshape(*data.shape[:-3], rows, columns, channels).astype(data.dtype)


def _rows(matrix: Any, x: Any, axis: int) -> Any:
    """A constant matrix times the vectors along an axis, where terms without a factor are left out, be they NaN."""
    moved = np.moveaxis(x, axis, 0)
    return np.stack([sum(f * moved[r] for r, f in enumerate(row) if f) for row in matrix], axis)


declare(
    "nn.conv2d_winograd",
    "data weight",
    {"padding": padding(2), "tile": integer(4, at_least=1), "channels": integer(0, at_least=0)},
    infer=_winograd_infer,
    lower=in_float32(conv2d_winograd),
    reference=_winograd_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-3,
    doc="3x3 convolution of channels-last images by Winograd's algorithm, with weights from ``topi.winograd_weight``.",
)
