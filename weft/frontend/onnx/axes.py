"""Axes that are known only at run time: the rank stays known, the dimensions become choices between expressions.

They are counted from the front and checked (``Node.axis``). A dimension that may or may not be meant is split in two,
``(kept, taken)``, one of which is 1: so one program serves every choice of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.value import Dim


def is_member(i: int, axes: Sequence[Dim]) -> Any:
    """Return whether axis `i` is one of `axes`: a bool, or a scalar expression."""
    found: Any = False
    for a in axes:
        found = s.logic("Or", found, s.compare("Equal", a, i))
    return found


def split_axes(shape: Sequence[Dim], axes: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Return (kept, taken): of each dimension, what stays and what `axes` take; one of the two is 1."""
    kept, taken = [], []
    for i, d in enumerate(shape):
        member = is_member(i, axes)
        kept.append(s.choose(member, 1, d))
        taken.append(s.choose(member, d, 1))
    return kept, taken


def remaining(shape: Sequence[Dim], axes: Sequence[Dim]) -> list[Dim]:
    """Return the dimensions that are left when `axes` are dropped."""
    rank, count = len(shape), len(axes)
    result: list[Dim] = []
    members = [is_member(i, axes) for i in range(rank)]
    for p in range(rank - count):
        dim: Dim = 1
        for i in reversed(range(p, p + count + 1)):
            before = s.subtract(i, _count(members[:i]))
            here = s.logic("And", s.logic("Not", members[i]), s.compare("Equal", before, p))
            dim = s.choose(here, shape[i], dim)
        result.append(dim)
    return result


def _count(members: Sequence[Any]) -> Dim:
    total: Dim = 0
    for m in members:
        total = s.add(total, s.choose(m, 1, 0))
    return total


def inserted(shape: Sequence[Dim], axes: Sequence[Dim]) -> list[Dim]:
    """Return the dimensions with ones inserted at `axes` of the result."""
    rank = len(shape) + len(axes)
    members = [is_member(i, axes) for i in range(rank)]
    result: list[Dim] = []
    for q in range(rank):
        position = s.subtract(q, _count(members[:q]))
        dim: Dim = 1
        for i in reversed(range(max(0, q - len(axes)), min(q + 1, len(shape)))):
            dim = s.choose(s.compare("Equal", position, i), shape[i], dim)
        result.append(s.choose(members[q], 1, dim))
    return result


def around_axis(shape: Sequence[Dim], axis: Dim) -> list[Dim]:
    """Return (outer, size, inner): the dimensions before an axis multiplied, its own, those behind it multiplied."""
    return [
        s.product(s.choose(s.compare(side, i, axis), d, 1) for i, d in enumerate(shape))
        for side in ("Less", "Equal", "Greater")
    ]


def by_axis(rank: int, axes: Sequence[Dim], values: Sequence[Dim], default: Sequence[Dim]) -> list[Dim]:
    """Spread values given beside `axes` over all axes."""
    result: list[Dim] = []
    for i in range(rank):
        value = default[i]
        for a, v in zip(axes, values, strict=True):
            value = s.choose(s.compare("Equal", a, i), v, value)
        result.append(value)
    return result
