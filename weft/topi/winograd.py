"""Winograd's minimal filtering for 3x3 convolutions: a tile of outputs from products in another basis.

A tile of ``m x m`` outputs needs ``(m + 2) ** 2`` products for each pair of channels instead of ``9 * m * m``. The
products are matrix products, one for each of the ``(m + 2) ** 2`` places, and the transforms before and after are sums
with small constants.

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

import numpy as np

from weft import error, ir, te, tir
from weft.ir import PrimExpr
from weft.machine import UNKNOWN, Machine
from weft.topi.conv import conv_size, paddings
from weft.topi.precision import narrowed
from weft.topi.shape import simplify
from weft.topi.typing import Padding

_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 4.0, -4.0, 0.25, -0.25, 3.0, -3.0)


def winograd_matrices(tile: int, taps: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices of data, weights and outputs for tiles of `tile` outputs and filters of `taps`.

    Parameters
    ----------
    tile : int
        2 to 8.
    taps : int
        3 to 7.

    Returns
    -------
    (numpy.ndarray, numpy.ndarray, numpy.ndarray)
        ``B``, ``G`` and ``A`` of float64, (n, n), (n, taps) and (tile, n) with ``n = tile + taps - 1``, such that
        ``A @ ((G @ g) * (B @ d))`` are the `tile` outputs of filter ``g`` on data ``d``.

    Raises
    ------
    InvalidArgument
        For another tile or filter.
    """
    if not 2 <= tile <= 8 or not 3 <= taps <= 7:
        raise error.InvalidArgument(f"winograd: no tiles of {tile} outputs of {taps} taps", expected="2 to 8 of 3 to 7")
    n = tile + taps - 1
    points = _POINTS[: n - 1]
    outputs = np.zeros((tile, n))
    weights, data = np.zeros((n, taps)), np.zeros((n, n))
    for j, p in enumerate(points):
        others = [q for q in points if q != p]
        scale = np.prod([p - q for q in others])
        outputs[:, j] = [p**i for i in range(tile)]
        weights[j] = [p**i / scale for i in range(taps)]
        data[j, : n - 1] = np.poly(others)[::-1]  # the product of (x - q) over the other points, constant term first
    outputs[tile - 1, n - 1] = 1.0
    weights[n - 1, taps - 1] = 1.0
    data[n - 1] = np.poly(points)[::-1]
    return data, weights, outputs


def weight_transform(kernel: te.Tensor, tile: int, spatial: Sequence[int], last: bool = False) -> Any:
    """Transform the spatial axes of weights, which all have as many taps, by the weights' matrix.

    Parameters
    ----------
    kernel : Tensor
        (out, in, ...), or, `last`, (..., in, out).
    spatial : sequence of int
        The axes to transform.

    Returns
    -------
    Tensor
        The transformed axes, the spatial axes that are not, out, in.
    """
    sizes = [ir.as_int(kernel.shape[a]) or 0 for a in spatial]
    if len(set(sizes)) != 1:
        raise error.InvalidArgument("winograd: a filter has as many taps along each axis", found=str(sizes))
    g = winograd_matrices(tile, sizes[0])[1]
    n = tile + sizes[0] - 1
    channels = (kernel.ndim - 1, kernel.ndim - 2) if last else (0, 1)
    shape = [n] * len(spatial)
    shape += [kernel.shape[a] for a in range(kernel.ndim) if a not in spatial and a not in channels]
    shape += [kernel.shape[c] for c in channels]

    def element(*i: Any) -> Any:
        def read(d: int, taps: tuple[int, ...]) -> Any:
            if d < len(spatial):
                return _row(g, i[d], lambda t: read(d + 1, (*taps, t)))
            others = iter(i[len(spatial) : -2])
            places = dict(zip((*spatial, *channels), (*taps, *i[-2:]), strict=True))
            return kernel(*(places[a] if a in places else next(others) for a in range(kernel.ndim)))

        return read(0, ())

    return te.compute(tuple(shape), element, name="transform_weight")


def winograd_convolution(data: te.Tensor, weight: te.Tensor, padding: Padding, out_dtype: str = "") -> Any:
    """Convolve 3x3 with stride 1 over channels-last data, weights (n, n, out, in) of :func:`weight_transform`."""
    n, channels = ir.as_int(weight.shape[0]) or 0, ir.as_int(weight.shape[2]) or 0
    panel = (weight.shape[0], weight.shape[1], 1, weight.shape[3], weight.shape[2])
    packed = te.compute(panel, lambda i, j, _, c, o: weight(i, j, o, c), name="weight_panel")
    return narrowed(conv2d_winograd(data, packed, padding, n - 2, channels), out_dtype or data.dtype)


def winograd_weight(kernel: np.ndarray, tile: int, panel: int) -> np.ndarray:
    """Transform weights (O, I, 3, 3) and pack them: (tile + 2, tile + 2, ceil(O / panel), I, panel)."""
    g = winograd_matrices(tile)[1]
    o, i = kernel.shape[:2]
    packed = np.zeros((tile + 2, tile + 2, -(-o // panel), i, panel), kernel.dtype)
    for n in range(packed.shape[2]):  # a panel with its transform stays in the second cache
        part = np.ascontiguousarray(kernel[n * panel : (n + 1) * panel].transpose(2, 3, 1, 0), dtype="float64")
        rows = np.einsum("ar,rsio->asio", g, part)
        packed[:, :, n, :, : part.shape[3]] = np.einsum("bs,asio->abio", g, rows)
    return packed


def conv2d_winograd(x: te.Tensor, u: te.Tensor, padding: Padding = 0, tile: int = 4, channels: int = 0) -> Any:
    """Convolve 3x3 with stride 1 over channels-last data, with weights from :func:`winograd_weight`.

    Parameters
    ----------
    x : Tensor
        (n, ..., h, w, c), floating point: images in a batch of any number of dimensions.
    u : Tensor
        (tile + 2, tile + 2, ceil(channels / panel), c, panel).
    """
    b, _, a = winograd_matrices(tile)
    *batch, height, width, c = x.shape
    n, panel, images = tile + 2, u.shape[-1], ir.int64(1) * prod(batch)
    before, after = paddings(padding, 2)
    rows, columns = (conv_size(s, ir.int64(3), 1, 1, before[i], after[i]) for i, s in enumerate((height, width)))
    down, across = (simplify(ir.floordiv(size + ir.int64(tile - 1), ir.int64(tile))) for size in (rows, columns))
    tiles = simplify(images * down * across)
    reach = [simplify(down * ir.int64(tile) + ir.int64(2)), simplify(across * ir.int64(tile) + ir.int64(2))]
    extra = [simplify(r - s - ir.int64(p)) for r, s, p in zip(reach, (height, width), before, strict=True)]
    padded = _padded(x, before, extra)

    def data(i: PrimExpr, s: Any, p: Any, k: PrimExpr) -> ir.PrimExpr:
        image, place = ir.floordiv(p, down * across), ir.floormod(p, down * across)
        y, z = ir.floordiv(place, across) * ir.int64(tile), ir.floormod(place, across) * ir.int64(tile) + s
        return _row(b, i, lambda r: padded(image, y + ir.int64(r), z, k))

    half = te.compute((ir.int64(n), ir.int64(n), tiles, c), data, name="winograd_rows")
    moved = te.compute(
        (ir.int64(n), ir.int64(n), tiles, c),
        lambda i, j, p, k: _row(b, j, lambda s: half(i, ir.int64(s), p, k)),
        name="winograd_data",
    )
    rc = te.reduce_axis((ir.int64(0), c), "rc")
    whole = gcd(ir.as_int(panel) or 1, (ir.as_int(panel) or 1) // 2)  # vectors; only what is written ends in one
    wide = ir.int64(channels + -channels % whole)
    products = te.compute(
        (ir.int64(n), ir.int64(n), tiles, wide),
        lambda i, j, p, o: te.sum(
            moved(i, j, p, rc.var) * u(i, j, ir.floordiv(o, panel), rc.var, ir.floormod(o, panel)), axis=[rc]
        ),
        name="winograd_products",
    )
    sums = te.compute(
        (ir.int64(tile), ir.int64(n), tiles, wide),
        lambda i, s, p, o: _row(a, i, lambda r: products(ir.int64(r), s, p, o)),
        name="winograd_sums",
    )
    t = ir.int64(tile)

    def output(image: PrimExpr, *at: PrimExpr) -> ir.PrimExpr:
        *inner, y, z, o = at
        for size, i in zip(batch[1:], inner, strict=True):
            image = image * size + i
        place = (image * down + ir.floordiv(y, t)) * across + ir.floordiv(z, t)
        return _row(a, ir.floormod(z, t), lambda s: sums(ir.floormod(y, t), ir.int64(s), place, o))

    return te.compute((*batch, rows, columns, ir.int64(channels)), output, name="winograd_outputs")


def _padded(x: Any, before: Any, extra: Any) -> Any:
    """Surround the data by zeros, as far as the last tiles reach; all images are one batch."""
    *batch, height, width, c = x.shape
    sizes = [simplify(s + ir.int64(before[i]) + extra[i]) for i, s in enumerate((height, width))]

    def element(image: PrimExpr, y: PrimExpr, z: PrimExpr, k: PrimExpr) -> ir.PrimExpr:
        i, j, inner = y - ir.int64(before[0]), z - ir.int64(before[1]), []
        for size in reversed(batch[1:]):
            inner.insert(0, ir.floormod(image, size))
            image = ir.floordiv(image, size)
        value = x(image, *inner, i, j, k)
        for at, size in ((j, width), (i, height)):  # apart, tests of one axis are the same for all taps along the other
            value = ir.if_then_else(tir.all(at >= ir.int64(0), at < size), value, ir.const(0, x.dtype))
        return value

    return te.compute((simplify(ir.int64(1) * prod(batch)), *sizes, c), element, name="pad")


def _row(matrix: np.ndarray, which: Any, element: Any) -> ir.PrimExpr:
    """The product of one row of a constant matrix with a vector; the row is decided once `which` is unrolled."""
    *rows, result = (_dot(row, element) for row in matrix)
    for i, row in reversed(list(enumerate(rows))):
        result = ir.if_then_else(which == ir.int64(i), row, result)
    return result


def _dot(row: np.ndarray, element: Any) -> ir.PrimExpr:
    """Sum the terms whose factor is not zero."""
    total: ir.PrimExpr | None = None
    for r, factor in ((r, f) for r, f in enumerate(row) if f):
        x = element(r)
        subtracted = factor == -1 and total is not None
        if factor != 1 and not subtracted:
            x = x * ir.const(float(factor), x.dtype)
        total = x if total is None else total - x if subtracted else total + x
    assert total is not None
    return total


_TRANSFORM = {2: 450, 4: 1000}
"""Multiply-adds that both transforms of a tile of one channel take as long as, measured."""


def winograd_tile(
    pixels: tuple[int, int, int], channels: tuple[int, int], near: bool = False, machine: Machine = UNKNOWN
) -> int:
    """Choose a tile for a 3x3 convolution by estimated time: 2 or 4, or 0 where computing it directly is faster.

    Parameters
    ----------
    pixels : tuple of int
        (batch, output rows, output columns).
    channels : tuple of int
        (input channels, output channels).
    near : bool
        Whether the weights of the whole model stay in the last cache from call to call.
    machine : Machine
        How long that takes, beside computing.
    """
    n, h, w = pixels
    c, o = channels
    weight = 4 * (machine.l3_balance if near else machine.memory_balance)  # what reading one takes
    best, tile = 0.85 * (9 * n * h * w * c * o + weight * 9 * c * o), 0
    for m, transform in _TRANSFORM.items():
        tiles, places = n * -(-h // m) * -(-w // m), (m + 2) ** 2
        cost = places * tiles * c * o + transform * tiles * (c + o) / 2 + weight * places * c * o
        if cost < best:
            best, tile = cost, m
    return tile
