"""Rolling: a buffer filled with overlapping tiles keeps what the last tile left, along one axis in a ring."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft import arith, ir
from weft.tir.stmt import For, ForKind

NO_OVERLAP = "no two tiles overlap"


class Rolling(msgspec.Struct, frozen=True):
    """How a buffer rolls: of `axis` it holds `extent` elements; `overlaps` are (axis, loop, elements) kept a step."""

    axis: int
    extent: int
    loop: For
    overlaps: tuple[tuple[int, For, int], ...]
    region: tuple[ir.Range, ...]

    def indices(self, indices: Sequence[ir.PrimExpr]) -> tuple[ir.PrimExpr, ...]:
        """Return the place of an element in the ring."""
        wrapped = ir.floormod(indices[self.axis], ir.const(self.extent, indices[self.axis].dtype))
        return (*indices[: self.axis], wrapped, *indices[self.axis + 1 :])

    def is_new(self, indices: Sequence[ir.PrimExpr], analyzer: arith.Analyzer) -> list[ir.PrimExpr]:
        """List what holds of an element that no iteration before made."""
        return [
            ir.logical_or(f.loop_var < f.min + 1, analyzer.simplify(indices[i] - self.region[i].min) >= kept)
            for i, f, kept in self.overlaps
        ]


def rolling_of(region: Sequence[ir.Range | None], loops: Sequence[For]) -> Rolling | str:
    """Find along which axis the tile `region`, made in each iteration of `loops` (outermost first), rolls.

    A tile starts at a multiple of one loop, or at a part ``i * a // b`` of it, and is longer than it moves.
    Returns the reason where it does not roll.
    """
    steps: list[tuple[int, For, int]] = []
    for axis, r in enumerate(region):
        around = [f for f in loops if r is None or f.loop_var in ir.find(r, ir.Var)]
        if not around:
            continue
        if r is None or len(around) > 1 or not isinstance(r.extent, ir.IntImm):
            return f"dimension {axis} of a tile does not start at a multiple of one loop"
        step = _step(r.min, around[0])
        if step is None or any(f is around[0] for _, f, _ in steps):
            return f"dimension {axis} of a tile moves otherwise than by a multiple of a loop of its own: {r.min}"
        if r.extent.value > step:
            steps.append((axis, around[0], r.extent.value - step))
    if not steps:
        return NO_OVERLAP
    first = min(steps, key=lambda s: next(i for i, f in enumerate(loops) if f is s[1]))
    at = next(i for i, f in enumerate(loops) if f is first[1])
    if any(f.kind not in (ForKind.SERIAL, ForKind.UNROLLED) for f in loops[at:]):
        return f"tiles of loop '{first[1].loop_var.name}' are not made one after another"
    assert all(r is not None for r in region)
    known = tuple(r for r in region if r is not None)
    extent = known[first[0]].extent
    assert isinstance(extent, ir.IntImm)
    return Rolling(first[0], extent.value, first[1], tuple(steps), known)


def _step(start: ir.PrimExpr, loop: For) -> int | None:
    """Return how far a tile moves in one iteration at most."""
    divisor = 1
    while isinstance(start, ir.Cast):
        start = start.value
    if isinstance(start, ir.FloorDiv) and isinstance(start.b, ir.IntImm):
        start, divisor = start.a, start.b.value
    parts = arith.detect_linear_equation(start, [loop.loop_var])
    if len(parts) != 2 or not all(isinstance(p, ir.IntImm) for p in parts):
        return None
    factor = ir.as_int(parts[0])
    return -(-factor // divisor) if factor is not None and factor > 0 and divisor > 0 else None
