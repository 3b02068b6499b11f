"""Layers: convolutions, pools, products, reductions, norms, resizing. Pixels' channels come last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.frontend.tflite.importer import CONVERTERS, Node


def _first(node: Node, x: Any) -> Any:
    """Bring channels to the front of space."""
    rank = len(node.dims(x))
    return node.reader.permute(x, [0, rank - 1, *range(1, rank - 1)])


def _last(node: Node, x: Any) -> Any:
    rank = len(node.dims(x))
    return node.reader.permute(x, [0, *range(2, rank), 1])


def _padding(
    node: Node, table: str, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """What is before and behind each dimension: nothing, or what makes as many windows as there are strides."""
    if node.option(table, "Padding") == 1:  # VALID
        return (0,) * (2 * len(sizes))
    total = [max((-(-n // s) - 1) * s + w - n, 0) for n, w, s in zip(sizes, windows, strides, strict=True)]
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def _pair(node: Node, table: str, name: str) -> list[int]:
    return [node.option(table, f"{name}{side}", 1) for side in ("H", "W")]


def _biased(node: Node, out: Any, i: int, table: str) -> Any:
    if node.has(i):
        out = node.op("add", out, node.real(i))
    return node.result(node.activated(out, table))


_CONVOLUTIONS = {
    "CONV_2D": ("Conv2DOptions", (0, 3, 1, 2)),
    "CONV_3D": ("Conv3DOptions", (4, 3, 0, 1, 2)),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (3, 0, 1, 2)),
}
"""Options, and the order that brings output and input channels to the front of weights."""


@CONVERTERS.on(*_CONVOLUTIONS)
def _convolution(node: Node) -> Any:
    table, order = _CONVOLUTIONS[node.name]
    x, weights = _first(node, node.real(0)), node.real(1, order)
    strides, dilation = (
        [node.option(table, name.format(s), 1) for s in "DHW"[5 - len(order) :]]
        for name in ("Stride{}", "Dilation{}Factor")
    )
    windows = [(k - 1) * d + 1 for k, d in zip(node.dims(weights)[2:], dilation, strict=True)]
    out = node.op(
        f"nn.conv{len(strides)}d",
        x,
        weights,
        strides=tuple(strides),
        dilation=tuple(dilation),
        groups=node.dims(x)[1] // node.dims(weights)[1],
        padding=_padding(node, table, node.dims(x)[2:], windows, strides),
    )
    return _biased(node, _last(node, out), 2, table)


@CONVERTERS.on("TRANSPOSE_CONV")
def _transposed(node: Node) -> Any:
    table = "TransposeConvOptions"
    weights, x = node.real(1, (3, 0, 1, 2)), _first(node, node.real(2))
    strides, sizes = _pair(node, table, "Stride"), node.ints(0)[1:3]
    full = [(n - 1) * s + k for n, s, k in zip(node.dims(x)[2:], strides, node.dims(weights)[2:], strict=True)]
    cut = [max(f - n, 0) for f, n in zip(full, sizes, strict=True)]
    before = [c // 2 for c in cut] if node.option(table, "Padding") == 0 else [0, 0]
    out = node.op("nn.conv2d_transpose", x, weights, strides=tuple(strides), padding=(0, 0, 0, 0), kernel_layout="IOHW")
    low, high = [0, 0, *(-b for b in before)], [0, 0, *(n - f + b for n, f, b in zip(sizes, full, before, strict=True))]
    out = node.reader.pad(out, node.reader.scalar(0, out.ty.dtype), low, high)
    return _biased(node, _last(node, out), 3, table)


@CONVERTERS.on("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def _pool(node: Node) -> Any:
    table = "Pool2DOptions"
    x = _first(node, node.real(0))
    windows, strides = [node.option(table, f"Filter{s}") for s in ("Height", "Width")], _pair(node, table, "Stride")
    attrs: dict[str, Any] = {
        "pool_size": tuple(windows),
        "strides": tuple(strides),
        "padding": _padding(node, table, node.dims(x)[2:], windows, strides),
    }
    if node.name == "L2_POOL_2D":
        out = node.op("sqrt", node.op("nn.avg_pool2d", node.op("square", x), count_include_pad=False, **attrs))
    elif node.name == "MAX_POOL_2D":
        out = node.op("nn.max_pool2d", x, **attrs)
    else:
        out = node.op("nn.avg_pool2d", x, count_include_pad=False, **attrs)
    return node.result(node.activated(_last(node, out), table))


@CONVERTERS.on("FULLY_CONNECTED")
def _fully_connected(node: Node) -> Any:
    table = "FullyConnectedOptions"
    if node.option(table, "WeightsFormat"):
        node.unsupported("shuffled weights", expected="WeightsFormat DEFAULT")
    weights, x = node.real(1, (1, 0)), node.real(0)
    width, count = node.dims(weights)
    rows = node.reader.quotient(node.dims(x), [width])
    out = node.op("matmul", node.reader.reshape(x, [rows, width]), weights)
    shape = [*node.dims(x)[:-1], count] if node.option(table, "KeepNumDims", False) else [rows, count]
    return _biased(node, node.reader.reshape(out, shape), 2, table)


@CONVERTERS.on("BATCH_MATMUL")
def _batch_matmul(node: Node) -> Any:
    sides = []
    for i, name in enumerate(("AdjX", "AdjY")):
        rank = len(node.dims(node.x(i)))
        turned = [*range(rank - 2), rank - 1, rank - 2]
        sides.append(node.real(i, turned if node.option("BatchMatMulOptions", name, False) else None))
    return node.result(node.op("matmul", *sides))


@CONVERTERS.on("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(node: Node) -> Any:
    """Gates come apart: input, forget, cell, output. States begin as the model's variables do, with zeros."""
    table = "UnidirectionalSequenceLSTMOptions"
    activation = {1: "relu", 4: "tanh"}.get(node.option(table, "FusedActivationFunction"))
    if activation is None or any(map(node.has, (16, 17, 20, 21, 22, 23))) or node.real(0) is not node.x(0):
        node.unsupported("an LSTM with projections, norms or bytes", expected="floats, tanh or relu")
    order = (0, 1, 2) if node.option(table, "TimeMajor", False) else (1, 0, 2)
    x = node.reader.permute(node.x(0), order)
    (steps, batch, width), hidden = node.dims(x), node.dims(node.x(6))[1]

    def filled(value: float, dtype: str, size: int | ir.PrimExpr) -> Any:
        return node.reader.expand(node.reader.scalar(value, dtype), (size,))

    def joined(first: int, *shape: int, gates: Sequence[int] = (0, 3, 1, 2)) -> Any:
        """Weights of gates; an input gate without its own is 1 less the forget gate."""
        parts = [
            node.real(first + g)
            if node.has(first + g)
            else node.op("negative", node.real(first + 1))
            if node.has(first + 1)
            else filled(0, "float32", hidden)
            for g in gates
        ]
        return node.reader.reshape(node.reader.concat(parts, 0), shape)

    bias = node.reader.concat([joined(12, 4 * hidden), filled(0, "float32", 4 * hidden)], 0)
    out = node.op(
        "nn.lstm",
        x,
        joined(1, 1, 4 * hidden, width),
        joined(5, 1, 4 * hidden, hidden),
        node.reader.reshape(bias, (1, 8 * hidden)),
        filled(steps, "int32", batch),
        *(node.reader.expand(node.real(i), (1, batch, hidden)) for i in (18, 19)),
        joined(9, 1, 3 * hidden, gates=(0, 2, 1)),
        activations=("sigmoid", activation, activation),
        cell_clip=node.option(table, "CellClip", 0.0),
    )
    return node.reader.permute(node.reader.reshape(node.reader.fields(out)[0], (steps, batch, hidden)), order)


_NAMED = {"MEAN": "mean", "SUM": "sum", "REDUCE_ANY": "max", "REDUCE_ALL": "min"}
_REDUCE = _NAMED | {f"REDUCE_{n.upper()}": n for n in ("max", "min", "prod")}


@CONVERTERS.on(*_REDUCE)
def _reduce(node: Node) -> Any:
    x, dtype = node.real(0), node.outputs[0].dtype
    x = node.reader.astype(x, "uint8") if dtype == "bool" else x
    rank = len(node.dims(x))
    axes = tuple(sorted({a % rank for a in node.ints(1)})) if rank else ()
    keep = bool(node.option("ReducerOptions", "KeepDims", False))
    out = node.op(_REDUCE[node.name], x, axis=axes, keepdims=keep) if axes else x
    return node.reader.astype(out, "bool") if dtype == "bool" else node.result(out)


@CONVERTERS.on("L2_NORMALIZATION")
def _l2_norm(node: Node) -> Any:
    x = node.real(0)
    total = node.op("sum", node.op("square", x), axis=(-1,), keepdims=True)
    root = node.op("sqrt", node.op("maximum", total, node.reader.scalar(1e-6, x.ty.dtype)))
    return node.result(node.activated(node.op("divide", x, root), "L2NormOptions"))


@CONVERTERS.on("LOCAL_RESPONSE_NORMALIZATION")
def _lrn(node: Node) -> Any:
    table = "LocalResponseNormalizationOptions"
    radius, bias, alpha, beta = (node.option(table, k) for k in ("Radius", "Bias", "Alpha", "Beta"))
    size = 2 * radius + 1
    return node.op("nn.lrn", node.real(0), size=size, axis=3, bias=bias, alpha=alpha * size, beta=beta)


@CONVERTERS.on("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(node: Node) -> Any:
    """Resize; places of pixels are scaled, or those of their middles, or first and last ones stay where they are."""
    bilinear = node.name == "RESIZE_BILINEAR"
    table = "ResizeBilinearOptions" if bilinear else "ResizeNearestNeighborOptions"
    (x,) = [node.real(0)] if bilinear else node.moved(0)
    sizes = node.ints(1)
    aligned, middles = (bool(node.option(table, k, False)) for k in ("AlignCorners", "HalfPixelCenters"))
    for axis, new in enumerate(sizes, 1):
        old = node.dims(x)[axis]
        scale = np.float32((old - 1) / (new - 1)) if aligned and new > 1 else np.float32(old / new)
        places = np.arange(new, dtype=np.float32)
        places = (places + np.float32(0.5)) * scale if middles else places * scale
        if not bilinear:
            whole = np.floor(places + np.float32(0.5)) if aligned else np.floor(places)
            x = node.op("take", x, _places(whole, old), axis=axis, mode="clip")
            continue
        places = places - np.float32(0.5) if middles else places
        low = np.floor(places)
        share = (places - low).reshape([-1 if i == axis else 1 for i in range(4)])
        parts = [node.op("take", x, _places(low + k, old), axis=axis, mode="clip") for k in (0, 1)]
        change = node.op("multiply", node.op("subtract", parts[1], parts[0]), ir.constant(share))
        x = node.op("add", parts[0], change)
    return node.result(x) if bilinear else x


def _places(places: Any, size: int) -> Any:
    return ir.constant(np.clip(places, 0, size - 1).astype(np.int64))
