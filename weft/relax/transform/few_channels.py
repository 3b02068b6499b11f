"""Convolutions to few channels, which leave most lanes of a vector of channels idle: pixels are lanes, channels first.

Where rows are long, the kernel itself takes neighbouring pixels. Otherwise the taps of all channels are the rows of a
matrix that is multiplied with all pixels, and its products are summed where their windows lie, an axis at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from weft.ir import Call, Constant, Expr, PrimExpr, as_int, constant, int64
from weft.machine import Machine
from weft.op import make_call, simplify
from weft.relax.block_builder import BlockBuilder
from weft.relax.transform import panels
from weft.runtime import aligned

FEW_CHANNELS = 4
"""Up to so many channels, an image is read as it is, its pixels broadcast, and one made leaves most lanes idle.

A window of one pixel has nothing to gain from channels side by side while they fit one vector and are no more than are
read: the order of the data, which is the larger, stays.
"""

MOST_GROUPS, _MOST_GROUPS_OF_WINDOWS = 16, 8
"""Groups, and those of windows, that may be convolutions of their own: each is a call."""

_FEW_SUMS = 16
"""Products of an element of a group from which on they are worth a call."""

_WIDE = 4
"""Vectors in a row of pixels from which on it does not matter that its rest is computed one by one."""

_LIKE_A_MOVE = 12
"""Taps of a window that take as long, where one lane of a vector is used, as an element's move into another order."""

_LEAST_SUMMED, _FEW_PRODUCTS = 8, 12
"""Channels that are summed from which on products take longer than the sums of taps, and the most channels of a group
whose products are worth that. Where neighbouring pixels of rows of known length are read anyway, twice as many are
summed. Groups of any size that are no whole vectors are products where a window is one pixel: nothing is summed."""

_MORE = 4
"""How many times as many numbers as its windows hold a convolution of a sequence makes that is a product of them."""

_DEEPEST, _MOST_SUMMED = 64, 384
"""The most channels of a sequence, and products of an element of an image, that are summed where the data lie."""

_MOVE, _GAIN = 20, 1.15
"""Multiply-adds in the time of an element's move into another order, and how many times as long all of it has to take
until data stay where they lie: measured."""

_LARGEST = 8
"""How many times as large as the data the products may be, which all lie in memory."""


def channels_first(
    machine: Machine, call: Call, has_last: bool, alone: bool, direct: bool, bb: BlockBuilder
) -> Call | None:
    """Emit a convolution on data as they lie; None where channels last are better.

    Data may have been brought there already (`has_last`); `alone`, nobody else gains from it. Channels last would be
    summed as they are (`direct`) or by Winograd's algorithm.
    """
    (channels, depth, *kernel), groups = panels.known_shape(call.args[1]), call.attrs.get("groups", 1)
    few = machine.lanes(32) if prod(kernel) == 1 and channels <= depth else FEW_CHANNELS
    if (product := _product_of_taps(machine, call, has_last, bb)) is not None:
        return product
    if alone and (product := _product_of_windows(machine.lanes(32), call, bb)) is not None:
        return product
    if not _lanes_are_pixels(machine, call, prod(kernel), has_last):
        return None
    stays = alone and direct and _moving_takes_longer(machine, call, groups)
    if (groups == 1 and channels <= few) or (stays and 1 in (groups, depth)):
        return call
    if not (stays and groups <= _MOST_GROUPS_OF_WINDOWS and isinstance(call.args[1], Constant)):
        return None
    return panels.each_group(
        call, call.args[0], 1, lambda data, kernel: panels.group_alone(call, data, aligned(kernel), len(kernel)), bb
    )


def has_odd_groups(machine: Machine, panel: int, shape: Sequence[int], groups: int, apart: bool) -> bool:
    """Whether groups of products end inside vectors, and are few enough and fill panels of their own well enough.

    Where windows lie `apart`, what the rule of grouped products copies for each output channel is used only once.
    """
    outs, taps, lanes = shape[0] // groups, prod(shape[2:]), machine.lanes(32)
    odd = outs % lanes > 0 and shape[1] * taps >= _FEW_SUMS
    if apart and outs % lanes > 0 and 1 < groups <= _MOST_GROUPS_OF_WINDOWS and shape[1] > 1:
        return True
    if taps == 1:
        return 1 < groups <= MOST_GROUPS and odd
    full = lanes % outs > 0 and 2 * panel <= 5 * outs
    return 1 < groups <= _MOST_GROUPS_OF_WINDOWS and odd and shape[1] > 1 and full


def _lanes_are_pixels(machine: Machine, call: Call, taps: int, has_last: bool) -> bool:
    """Whether a convolution to few channels is better computed for neighbouring pixels, of which a vector is read."""
    shape = panels.shape_of(call)
    if not shape or getattr(call.args[0].ty, "dtype", "") != "float32":
        return False
    if np.ravel(call.attrs.get("strides", 1))[-1] != 1:
        return False
    row = prod(panels.likely(d, panels.LIKELY_SIZE) for d in (shape[2:] if taps == 1 else shape[-1:]))
    return row >= _WIDE * machine.lanes(32) and (not has_last or taps > _LIKE_A_MOVE)


def _moving_takes_longer(machine: Machine, call: Call, groups: int) -> bool:
    """Whether bringing data into another order and back takes longer than what products of pixels in a row lose.

    These end inside of vectors of pixels, products of channels side by side inside of vectors of those. Rows of unknown
    length may be short; those of sequences, all of whose pixels are one, are taken as long.
    """
    (channels, depth, *kernel), shape = panels.known_shape(call.args[1]), panels.known_shape(call)
    if groups > 1 == depth:
        return bool(shape)
    if all(as_int(d) == 1 for d in (panels.shape_of(call) or ())[2:-1]):
        return depth <= _DEEPEST
    summed, each, lanes = depth * prod(kernel), channels // groups, machine.lanes(32)
    if not shape or summed > _MOST_SUMMED:
        return False
    moved = summed * panels.round_up(each, lanes) + _MOVE * (depth + each)
    return moved * shape[-1] >= _GAIN * summed * each * panels.round_up(shape[-1], 2 * lanes)


def _product_of_taps(machine: Machine, call: Call, has_last: bool, bb: BlockBuilder) -> Call | None:
    """Emit a convolution to few channels as a product, whose rows are summed; None where that is no gain."""
    (data, weight), attrs = call.args[:2], call.attrs
    (channels, depth, *kernel), groups = panels.known_shape(weight), attrs.get("groups", 1)
    rank, taps, each = len(kernel), prod(kernel), channels // groups
    shape, outs, pads = (
        panels.shape_of(data),
        panels.shape_of(call),
        np.resize(attrs.get("padding", 0), 2 * rank).tolist(),
    )
    gaps, strides = (np.broadcast_to(attrs.get(n, 1), rank).tolist() for n in ("dilation", "strides"))
    reach = [(k - 1) * d for k, d in zip(kernel, gaps, strict=True)]
    if not shape or not outs or taps == groups == 1 or any(s != 1 for s in strides) or attrs.get("pad_value", 0):
        return None
    lanes = machine.lanes(32)
    few = each <= _FEW_PRODUCTS and channels <= lanes
    if not (few or (taps == 1 and each % lanes)) or (has_last and taps <= _LIKE_A_MOVE):
        return None
    read_anyway = groups == 1 and channels <= FEW_CHANNELS and _lanes_are_pixels(machine, call, taps, has_last)
    least = _LEAST_SUMMED * (2 if read_anyway and as_int(shape[-1]) is not None else 1)
    if depth < least or taps * each > _LARGEST * depth or any(p > r for p, r in zip(pads, reach * 2, strict=True)):
        return None
    dtype = str(getattr(call.ty, "dtype", ""))
    wide = "float64" if dtype == "float64" else "float32"
    rows = panels.moved_weight(
        panels.flipped_weight(weight, range(2, 2 + rank), bb), (groups, each, depth, taps), (0, 3, 1, 2), bb
    )
    rows = panels.moved_weight(rows, (groups, taps * each, depth), range(3), bb)
    pixels = bb.emit(panels.reshaped(data, (shape[0], groups, depth, _product(shape[2:]))))
    value: Expr = bb.emit(make_call("matmul")(rows, pixels, out_dtype=wide))
    inner: Sequence[PrimExpr | int] = ()
    for i in (i for i in reversed(range(rank)) if taps > 1):
        lead, middle = _product((shape[0], groups, *kernel[:i])), _product((each, *shape[2 : 2 + i]))
        value = bb.emit(panels.reshaped(value, (lead, kernel[i], middle, shape[2 + i], _product(inner))))
        value = bb.emit(make_call("nn.overlap_add")(value, hop=gaps[i]))
        begin = reach[i] - pads[i]
        value = bb.emit(make_call("strided_slice")(value, axes=[2], begin=[begin], end=[outs[2 + i] + int64(begin)]))
        inner = (outs[2 + i], *inner)
    if dtype != wide:
        value = bb.emit(make_call("astype")(value, dtype=dtype))
    return panels.reshaped(value, (shape[0], channels, *outs[2:]))


def _product_of_windows(lanes: int, call: Call, bb: BlockBuilder) -> Call | None:
    """Emit a convolution of single pixels, or of a sequence that makes more than its windows hold, as a product.

    Windows are columns in the order of the data, which stays. None where that is no gain: images of unknown size are
    moved in the time in which columns of unknown number are brought into panels.
    """
    (data, weight), attrs = call.args[:2], call.attrs
    channels, depth, *kernel = panels.known_shape(weight)
    sizes, outs, rank, taps = panels.shape_of(data), panels.shape_of(call), len(kernel), kernel[-1]
    gaps, strides = (np.broadcast_to(attrs.get(n, 1), rank) for n in ("dilation", "strides"))
    plain = not np.any(attrs.get("padding", 0)) and attrs.get("groups", 1) == 1 and prod(kernel) == taps
    if not (sizes and outs and plain) or str(getattr(call.ty, "dtype", "")) != "float32":
        return None
    columns = prod(panels.likely(d, panels.LIKELY_SIZE) for d in outs[2:])
    known, moves = panels.known_shape(call), taps > 1 or any(s > 1 for s in strides)
    if not known and (moves or rank < 3):
        return None
    if moves and (any(as_int(d) != 1 for d in sizes[2:-1]) or _MORE * depth * taps > channels):
        return None
    if columns < _WIDE * lanes or (columns % lanes and columns < _WIDE * _WIDE * lanes) or channels < lanes:
        return None
    if moves:
        at = np.arange(taps)[:, None] * gaps[-1] + np.arange(columns) * strides[-1]
        data = bb.emit(make_call("take")(data, constant(at.astype(np.int32)), axis=rank + 1, mode="fast"))
    windows = bb.emit(panels.reshaped(data, (sizes[0], depth * taps, _product(outs[2:]))))
    rows = panels.moved_weight(weight, (channels, depth * taps), range(2), bb)
    return panels.reshaped(bb.emit(make_call("matmul")(rows, windows)), outs)


def _product(sizes: Sequence[PrimExpr | int]) -> PrimExpr:
    return simplify(int64(1) * prod(sizes))
