"""Convolutions and pools, in NumPy: a product a group over windows laid side by side, or a step for each tap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from weft.baseline.operators import floats, operator
from weft.baseline.refusal import NotInBaseline


class _Windows:
    """Where the windows of an image lie: `x` is (n, c, *spatial), with pads of `fill` around it.

    The others are ONNX's attributes; with `ceil_mode` a last window that begins inside may go past the pads, and what
    it meets there counts for nothing.
    """

    def __init__(
        self,
        x: np.ndarray,
        fill: float = 0.0,
        *,
        kernel_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
    ) -> None:
        rank = x.ndim - 2
        self.kernel, self.strides = tuple(kernel_shape), tuple(strides or (1,) * rank)
        self.dilations = tuple(dilations or (1,) * rank)
        if rank < 1 or not len(self.kernel) == len(self.strides) == len(self.dilations) == rank:
            raise NotInBaseline("a window of another rank")
        self.pads = tuple(pads) if pads else (0,) * (2 * rank)
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        if auto_pad.startswith("SAME"):
            total = [
                max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(x.shape[2:], self.strides, spans, strict=True)
            ]
            less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
            self.pads = less + more if auto_pad == "SAME_UPPER" else more + less
        if len(self.pads) != 2 * rank or min(self.pads) < 0:
            raise NotInBaseline("negative pads")
        starts = [n + low for n, low in zip(x.shape[2:], self.pads, strict=False)]
        x = _padded(x, self.pads[:rank], self.pads[rank:], fill)
        rooms = [n - k for n, k in zip(x.shape[2:], spans, strict=True)]
        if min(rooms) < 0:
            raise NotInBaseline("windows larger than the image")
        last = [room // s for room, s in zip(rooms, self.strides, strict=True)]
        if ceil_mode:
            last = [min(-(-r // s), (n - 1) // s) for r, n, s in zip(rooms, starts, self.strides, strict=True)]
            past = [max(0, at * s - r) for at, r, s in zip(last, rooms, self.strides, strict=True)]
            x = _padded(x, [0] * rank, past, min(fill, 0.0))
        self.x, self.out = x, tuple(at + 1 for at in last)

    def taps(self) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Yield each place in a window, and what all windows have there, as (n, c, *out)."""
        for at in product(*map(range, self.kernel)):
            cut = tuple(
                slice(i * d, i * d + (o - 1) * s + 1, s)
                for i, d, o, s in zip(at, self.dilations, self.out, self.strides, strict=True)
            )
            yield at, self.x[(slice(None), slice(None), *cut)]


def _padded(x: np.ndarray, before: Sequence[int], after: Sequence[int], fill: float) -> np.ndarray:
    around = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    return np.pad(x, around, constant_values=fill) if any(before) or any(after) else x


@operator("Conv")
def _conv(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, **form: Any) -> np.ndarray:
    floats(x, w, bias)
    out = convolved(x, w, **form)
    return out if bias is None else out + bias.reshape(1, -1, *[1] * (out.ndim - 2))


def convolved(
    x: np.ndarray, w: np.ndarray, *, group: int = 1, kernel_shape: Sequence[int] | None = None, **form: Any
) -> np.ndarray:
    """Return sums of products over windows, in the operands' type."""
    n, c = x.shape[:2]
    m, per_group = w.shape[:2]
    if c != per_group * group or m % group or tuple(kernel_shape or w.shape[2:]) != w.shape[2:]:
        raise NotInBaseline("a convolution whose channels do not fit")
    at = _Windows(x, kernel_shape=w.shape[2:], ceil_mode=0, **form)
    if per_group == 1 and m == c:
        out = np.zeros((n, m, *at.out), x.dtype)
        for place, image in at.taps():
            out += image * w[(slice(None), 0, *place)].reshape(1, m, *[1] * len(at.out))
        return out
    taps = prod(at.kernel)
    columns = np.empty((n, c, taps, *at.out), x.dtype)
    for i, (_, image) in enumerate(at.taps()):
        columns[:, :, i] = image
    matrix = columns.reshape(n, group, per_group * taps, prod(at.out))
    return np.matmul(w.reshape(1, group, m // group, per_group * taps), matrix).reshape(n, m, *at.out)


@operator("ConvTranspose")
def _conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> np.ndarray:
    floats(x, w, bias)
    n, c, *sizes = x.shape
    rank, kernel, m = len(sizes), w.shape[2:], w.shape[1] * group
    steps, spread = strides or (1,) * rank, dilations or (1,) * rank
    edges, more = pads or (0,) * (2 * rank), output_padding or (0,) * rank
    if auto_pad != "NOTSET" or c != w.shape[0] or c % group or (kernel_shape and tuple(kernel_shape) != kernel):
        raise NotInBaseline("a transposed convolution of another form")
    columns = np.matmul(w.reshape(1, group, c // group, -1).swapaxes(2, 3), x.reshape(n, group, c // group, -1))
    columns = columns.reshape(n, m, *kernel, *sizes)
    full = [(i - 1) * s + (k - 1) * d + 1 + o for i, s, k, d, o in zip(sizes, steps, kernel, spread, more, strict=True)]
    out = np.zeros((n, m, *full), np.float32)
    for at in product(*map(range, kernel)):
        cut = tuple(
            slice(i * d, i * d + (size - 1) * s + 1, s) for i, d, size, s in zip(at, spread, sizes, steps, strict=True)
        )
        out[(slice(None), slice(None), *cut)] += columns[(slice(None), slice(None), *at)]
    if min(edges) < 0 or any(f <= a + b for a, b, f in zip(edges[:rank], edges[rank:], full, strict=True)):
        raise NotInBaseline("pads that leave nothing")
    inside = tuple(slice(a, f - b) for a, b, f in zip(edges[:rank], edges[rank:], full, strict=True))
    out = out[(slice(None), slice(None), *inside)]
    return out if bias is None else out + bias.reshape(1, m, *[1] * rank)


@operator("MaxPool")
def _max_pool(x: np.ndarray, *, storage_order: int = 0, **form: Any) -> np.ndarray:
    if x.dtype.name not in ("float32", "int8", "uint8"):
        raise NotInBaseline(f"a maximum of {x.dtype}")
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    at = _Windows(x, least, **form)
    out = np.full((*x.shape[:2], *at.out), least, x.dtype)
    for _, image in at.taps():
        np.maximum(out, image, out=out)
    return out


@operator("AveragePool")
def _average_pool(x: np.ndarray, *, count_include_pad: int = 0, **form: Any) -> np.ndarray:
    floats(x)
    ones = np.ones((1, 1, *x.shape[2:]), np.float32)
    total: Any = sum(image for _, image in _Windows(x, **form).taps())
    count: Any = sum(image for _, image in _Windows(ones, float(count_include_pad), **form).taps())
    if not count.all():
        raise NotInBaseline("windows that are all padding")
    return total / count


@operator("GlobalAveragePool")
def _global_average_pool(x: np.ndarray) -> np.ndarray:
    floats(x)
    return x.mean(tuple(range(2, x.ndim)), np.float32, keepdims=True)


@operator("GlobalMaxPool")
def _global_max_pool(x: np.ndarray) -> np.ndarray:
    floats(x)
    return x.max(tuple(range(2, x.ndim)), keepdims=True)
