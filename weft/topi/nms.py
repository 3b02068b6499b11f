"""Non-maximum suppression: of boxes that overlap, the one with the greatest score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.ir import FloatImm, cast, const, floordiv, floormod, int64, logical_and
from weft.tir import bitwise_or
from weft.topi.index import clamped
from weft.topi.typing import Buffers

_LANES = 16
"""Chosen boxes that a box is compared with at a time."""

_ZERO, _ONE, _SIDE = int64(0), int64(1), int64(_LANES)


def suppressed(
    boxes: te.Tensor,
    scores: te.Tensor,
    order: te.Tensor,
    limit: te.Tensor,
    overlap: te.Tensor,
    least: te.Tensor,
    center: bool = False,
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

    def body(ins: Buffers, outs: Buffers) -> Any:
        return _classes(ins, outs[0], scores.shape, center)

    given = [boxes, scores, order, limit, overlap, least]
    return te.extern(scores.shape, given, body, name="suppressed", dtype="int64")


def _classes(ins: Any, kept: Any, shape: Any, center: bool) -> Any:
    """Loop over images and classes, in parallel."""
    boxes, scores, order, limit, overlap, least = ins
    lines, j, cleared = (tir.Var(n, "int64") for n in ("line", "j", "cleared"))
    classes = tir.max(cast("int64", shape[1]), _ONE)
    b, c = floordiv(lines, classes), floormod(lines, classes)
    chosen, extent = tir.Var("box", "int64"), cast("int64", shape[2])
    counts, free, places = (tir.decl_buffer((_ONE,), "int64", n, scope="local") for n in ("count", "free", "place"))
    near = [tir.decl_buffer((extent + _SIDE,), boxes.dtype, n) for n in ("top", "bottom", "left", "right", "area")]
    clashes = tir.decl_buffer((_SIDE,), "int32", "clash", scope="local")
    at = lambda buffer, *i: tir.BufferLoad(buffer, i)  # noqa: E731
    count, k = at(counts, _ZERO), at(places, _ZERO)

    own = [tir.Var(buffer.name, boxes.dtype) for buffer in near]
    corners = [x for side in _corners(lambda q: at(boxes, b, chosen, int64(q)), center) for x in side]
    values = [*corners, (own[1] - own[0]) * (own[3] - own[2])]
    shared = lambda q: _overlap([at(buffer, k + q) for buffer in near], own, boxes.dtype)  # noqa: E731
    clash = [_vector(_LANES, lambda q: tir.BufferStore(clashes, cast("int32", shared(q) > at(overlap, _ZERO)), (q,)))]
    for half in (8, 4, 2, 1):  # whether any lane's box clashes, as vectors
        clash.append(
            _vector(
                half,
                lambda q, half=half: tir.BufferStore(
                    clashes, bitwise_or(at(clashes, q), at(clashes, q + int64(half))), (q,)
                ),
            )
        )
    clash.append(tir.BufferStore(free, _ONE - cast("int64", at(clashes, _ZERO)), (_ZERO,)))
    clash.append(tir.BufferStore(places, k + _SIDE, (_ZERO,)))
    against = tir.While(logical_and(at(free, _ZERO) > _ZERO, k < count), tir.seq(*clash))
    inf = FloatImm(boxes.dtype, float("inf"))
    nothing = (inf, -inf, inf, -inf, const(0, boxes.dtype))  # beyond the last: what meets no box
    fill = [
        _vector(_LANES, lambda q, n=n, x=x: tir.BufferStore(n, x, (count + q,)))
        for n, x in zip(near, nothing, strict=True)
    ]
    keep = tir.seq(
        tir.IfThenElse(floormod(count, _SIDE).equal(_ZERO), tir.seq(*fill)),
        *[tir.BufferStore(buffer, value, (count,)) for buffer, value in zip(near, own, strict=True)],
        tir.BufferStore(kept, chosen, (b, c, count)),
        tir.BufferStore(counts, count + _ONE, (_ZERO,)),
    )
    begin = (tir.BufferStore(free, _ONE, (_ZERO,)), tir.BufferStore(places, _ZERO, (_ZERO,)))
    consider: Any = tir.seq(*begin, against, tir.IfThenElse(at(free, _ZERO) > _ZERO, keep))
    for variable, value in reversed(list(zip(own, values, strict=True))):
        consider = tir.LetStmt(variable, value, consider)
    wanted = logical_and(at(scores, b, c, chosen) > at(least, _ZERO), count < at(limit, _ZERO))
    step = tir.LetStmt(chosen, clamped(at(order, b, c, j), extent), tir.IfThenElse(wanted, consider))
    clear = tir.For(cleared, _ZERO, extent, tir.ForKind.SERIAL, tir.BufferStore(kept, int64(-1), (b, c, cleared)))
    line = tir.seq(clear, tir.BufferStore(counts, _ZERO, (_ZERO,)), tir.For(j, _ZERO, extent, tir.ForKind.SERIAL, step))
    for buffer in (*near, clashes, places, free, counts):
        line = tir.AllocBuffer(buffer, line)
    return tir.For(lines, _ZERO, cast("int64", shape[0]) * cast("int64", shape[1]), tir.ForKind.PARALLEL, line)


def _vector(lanes: int, body: Callable[[Any], Any]) -> Any:
    """Run a statement for numbers from 0 on, as one vector."""
    lane = tir.Var("lane", "int64")
    return tir.For(lane, _ZERO, int64(lanes), tir.ForKind.VECTORIZED, body(lane))


def _corners(box: Callable[[int], Any], center: bool) -> list[tuple[Any, Any]]:
    """Return where a box begins and ends along each of its two axes."""
    p = [box(q) for q in range(4)]
    if center:
        half = const(0.5, p[0].dtype)
        return [(p[i] - p[i + 2] * half, p[i] + p[i + 2] * half) for i in (0, 1)]
    return [(tir.min(p[i], p[i + 2]), tir.max(p[i], p[i + 2])) for i in (0, 1)]


def _overlap(a: list[Any], b: list[Any], dtype: str) -> Any:
    """Return the intersection's share of the union of two boxes with their areas; 0 where they only touch."""
    zero = const(0, dtype)
    sides = [tir.min(a[i + 1], b[i + 1]) - tir.max(a[i], b[i]) for i in (0, 2)]
    shared = tir.max(sides[0], zero) * tir.max(sides[1], zero)
    return tir.Select(shared > zero, shared / (a[4] + b[4] - shared), zero)
