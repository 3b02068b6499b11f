"""Non-maximum suppression: of boxes that overlap, the one with the greatest score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.ir import cast, const, int64, logical_and

_ZERO, _ONE = int64(0), int64(1)


def suppressed(
    boxes: te.Tensor, scores: te.Tensor, order: Any, limit: Any, overlap: Any, least: Any, center: bool = False
) -> Any:
    """Choose boxes greedily, each class of each image by itself.

    Parameters
    ----------
    boxes : Tensor
        (batch, n, 4): two opposite corners, or the centre, width and height.
    scores : Tensor
        (batch, classes, n).
    order : Tensor
        (batch, classes, n) int64: the boxes by falling scores.
    limit : Tensor
        (1,) int64: so many boxes of a class at most.
    overlap : Tensor
        (1,): a box goes whose intersection with a chosen one is more than this share of their union.
    least : Tensor
        (1,): only boxes with greater scores are chosen.
    center : bool
        Whether boxes are given by their centres.

    Returns
    -------
    Tensor
        (batch, classes, n) int64: the chosen boxes in order, then -1.
    """

    def body(ins: Any, outs: Any) -> Any:
        return _classes(ins, outs[0], scores.shape, center)

    given = [boxes, scores, order, limit, overlap, least]
    return te.extern(scores.shape, given, body, name="suppressed", dtype="int64")


def _classes(ins: Any, kept: Any, shape: Any, center: bool) -> Any:
    """Loop over images and classes, in parallel."""
    boxes, scores, order, limit, overlap, least = ins
    b, c, j = (tir.Var(name, "int64") for name in "bcj")
    cleared = tir.Var("cleared", "int64")
    chosen, other = tir.Var("box", "int64"), tir.Var("other", "int64")
    counts, free, places = (tir.decl_buffer((_ONE,), "int64", n, scope="local") for n in ("count", "free", "place"))
    extent = cast("int64", shape[2])
    at = lambda buffer, *i: tir.BufferLoad(buffer, i)  # noqa: E731
    count, k = at(counts, _ZERO), at(places, _ZERO)

    first, second = (_corners(lambda q, x=x: at(boxes, b, x, int64(q)), center) for x in (chosen, other))
    clash = _overlap(first, second, boxes.dtype) > at(overlap, _ZERO)
    still = tir.BufferStore(free, tir.Select(clash, _ZERO, _ONE), (_ZERO,))
    compare = tir.LetStmt(other, at(kept, b, c, k), still)
    against = tir.While(
        logical_and(at(free, _ZERO) > _ZERO, k < count), tir.seq(compare, tir.BufferStore(places, k + _ONE, (_ZERO,)))
    )
    keep = tir.seq(tir.BufferStore(kept, chosen, (b, c, count)), tir.BufferStore(counts, count + _ONE, (_ZERO,)))
    begin = (tir.BufferStore(free, _ONE, (_ZERO,)), tir.BufferStore(places, _ZERO, (_ZERO,)))
    consider = tir.seq(*begin, against, tir.IfThenElse(at(free, _ZERO) > _ZERO, keep))
    wanted = logical_and(at(scores, b, c, chosen) > at(least, _ZERO), count < at(limit, _ZERO))
    step = tir.LetStmt(chosen, at(order, b, c, j), tir.IfThenElse(wanted, consider))
    clear = tir.For(cleared, _ZERO, extent, tir.ForKind.SERIAL, tir.BufferStore(kept, int64(-1), (b, c, cleared)))
    line = tir.seq(clear, tir.BufferStore(counts, _ZERO, (_ZERO,)), tir.For(j, _ZERO, extent, tir.ForKind.SERIAL, step))
    line = tir.AllocBuffer(counts, tir.AllocBuffer(free, tir.AllocBuffer(places, line)))
    line = tir.For(c, _ZERO, cast("int64", shape[1]), tir.ForKind.SERIAL, line)
    return tir.For(b, _ZERO, cast("int64", shape[0]), tir.ForKind.PARALLEL, line)


def _corners(box: Callable[[int], Any], center: bool) -> list[tuple[Any, Any]]:
    """Return where a box begins and ends along each of its two axes."""
    p = [box(q) for q in range(4)]
    if center:
        half = const(0.5, p[0].dtype)
        return [(p[i] - p[i + 2] * half, p[i] + p[i + 2] * half) for i in (0, 1)]
    return [(tir.min(p[i], p[i + 2]), tir.max(p[i], p[i + 2])) for i in (0, 1)]


def _overlap(a: list[tuple[Any, Any]], b: list[tuple[Any, Any]], dtype: str) -> Any:
    """Return the intersection's share of the union; 0 where they only touch."""
    zero = const(0, dtype)
    sides = [tir.min(x[1], y[1]) - tir.max(x[0], y[0]) for x, y in zip(a, b, strict=True)]
    shared = tir.max(sides[0], zero) * tir.max(sides[1], zero)
    area = lambda box: (box[0][1] - box[0][0]) * (box[1][1] - box[1][0])  # noqa: E731
    return tir.Select(shared > zero, shared / (area(a) + area(b) - shared), zero)
