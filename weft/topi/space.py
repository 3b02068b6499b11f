"""Blocks of spatial axes as a batch, and back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft import te
from weft.error import ShapeMismatch
from weft.ir import as_int, floordiv, floormod
from weft.topi.padding import pad
from weft.topi.shape import simplify


def _rank(name: str, data: Any, *lists: Sequence[Any]) -> int:
    rank = len(lists[0])
    if any(len(v) != rank for v in lists) or rank >= data.ndim:
        raise ShapeMismatch(
            f"{name}: one number for each of the axes behind the first", found=str([len(v) for v in lists])
        )
    return rank


def space_to_batch_nd(
    data: te.Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Any:
    """Divide the axes behind the first into blocks; the place inside a block leads in the first axis."""
    rank = _rank("space_to_batch_nd", data, block_shape, pad_before, pad_after)
    blocks, rest = [int(b) for b in block_shape], [0] * (data.ndim - 1 - rank)
    before, after = ([0, *(int(p) for p in widths), *rest] for widths in (pad_before, pad_after))
    x = pad(data, before, after, pad_value) if any(before) or any(after) else data
    batch, places = x.shape[0], 1
    for d, b in enumerate(blocks):
        places *= b
        if (as_int(x.shape[1 + d]) or 0) % b:
            raise ShapeMismatch(
                f"space_to_batch_nd: axis {1 + d} is no multiple of its block",
                expected=f"n * {b}",
                found=str(x.shape[1 + d]),
            )

    def element(*i: Any) -> Any:
        place, at = floordiv(i[0], batch), list(i)
        at[0] = floormod(i[0], batch)
        for d in reversed(range(rank)):
            at[1 + d] = i[1 + d] * blocks[d] + floormod(place, blocks[d])
            place = floordiv(place, blocks[d])
        return x(*at)

    sizes = [simplify(floordiv(x.shape[1 + d], b)) for d, b in enumerate(blocks)]
    shape = (simplify(batch * places), *sizes, *x.shape[1 + rank :])
    return te.compute(shape, element, name="T_space_to_batch_nd")


def batch_to_space_nd(
    data: te.Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Any:
    """Undo :func:`space_to_batch_nd`: what leads in the first axis is the place inside a block; then crop."""
    rank = _rank("batch_to_space_nd", data, block_shape, crop_begin_list, crop_end_list)
    blocks, first = [int(b) for b in block_shape], [int(c) for c in crop_begin_list]
    places = prod(blocks)
    batch = simplify(floordiv(data.shape[0], places))

    def element(*i: Any) -> Any:
        place: Any = 0
        at = list(i)
        for d in range(rank):
            moved = i[1 + d] + first[d]
            place = place * blocks[d] + floormod(moved, blocks[d])
            at[1 + d] = floordiv(moved, blocks[d])
        at[0] = place * batch + i[0]
        return data(*at)

    sizes = [simplify(data.shape[1 + d] * b - first[d] - int(crop_end_list[d])) for d, b in enumerate(blocks)]
    return te.compute((batch, *sizes, *data.shape[1 + rank :]), element, name="T_batch_to_space_nd")
