"""What has to hold between the operands of a call: refuted at once, proved, or checked when the program runs.

A type rule says what it needs with the ``demand_`` functions below. What constants refute is an error there and then.
What is left open goes to whoever collects (:func:`collect_relations`): the pass ``CheckRelations`` proves it from what
is known about the dimensions, and makes a check of the rest, before the call.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from weft import arith, error
from weft.ir import Expr, PrimExpr, Span, as_expr, as_int, cast, equal, floormod, logical_or, max_, min_, select

Dim = PrimExpr | int
Where = Span | str | None


@dataclass(frozen=True)
class Relation:
    """Two scalars that are equal if, and only if, the call is right.

    ``found`` and ``expected`` stand in the message; ``what`` says which operator and operand they belong to, and
    ``kind`` is the name of the error's class.
    """

    what: str
    found: PrimExpr
    expected: PrimExpr
    where: Any = None
    kind: str = "ShapeMismatch"


@dataclass(frozen=True)
class IndexRange:
    """Indices, all of which lie in ``low <= index < high`` if the call is right; they are data.

    ``ranges`` has one such (low, high) for all indices, or one for each place of the last dimension. Indices that are
    ``but``, if that is a number, may lie anywhere.
    """

    what: str
    indices: Expr
    ranges: tuple[tuple[PrimExpr, PrimExpr], ...]
    where: Any = None
    but: int | None = None


_MOST = 1 << 48
"""No size is larger, so that sums and differences of sizes do not overflow."""
_COLLECTED: ContextVar[list[Relation | IndexRange] | None] = ContextVar("relations", default=None)
_ERRORS = {c.__name__: c for c in (error.ShapeMismatch, error.InvalidArgument, error.IndexOutOfRange)}


@contextmanager
def collect_relations() -> Generator[list[Relation | IndexRange]]:
    """Collect what type rules demand inside of the ``with`` and constants do not decide."""
    found: list[Relation | IndexRange] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def size_relation(size: PrimExpr, where: Where = None) -> Relation:
    """Say of a size that is data that it is one; what the compiler knows of sizes would not hold for it."""
    nearest = max_(min_(size, _int64(_MOST)), _int64(0))
    return Relation("a size that the program computes", size, nearest, where, "InvalidArgument")


def refused(relation: Relation) -> error.InvalidArgument:
    """Make the error of a relation that does not hold."""
    return _ERRORS[relation.kind](
        relation.what, expected=str(relation.expected), found=str(relation.found), where=relation.where
    )


def _demand(what: str, found: Any, expected: Any, where: Any, kind: str) -> None:
    """Refuse what constants refute; what they do not decide is collected."""
    collected = _COLLECTED.get()
    f, e = as_int(found), as_int(expected)
    if f is not None and e is not None:
        least = most = f - e
    else:
        least, most = arith.Analyzer().const_int_bound(_int64(found) - _int64(expected))
    if least == most:
        if least:  # they differ by a number, whatever the variables are
            raise refused(Relation(what, as_expr(found), as_expr(expected), where, kind))
    elif collected is not None:
        collected.append(Relation(what, _int64(found), _int64(expected), where, kind))


def _int64(value: Any) -> PrimExpr:
    return cast("int64", as_expr(value))


def demand_equal(what: str, found: Dim, expected: Dim, where: Where = None, kind: str = "ShapeMismatch") -> None:
    """Demand that two scalars are equal.

    Parameters
    ----------
    what : str
        The operator and what is compared, such as ``"nn.conv2d: channels of 'data'"``.
    found, expected : PrimExpr or int
        The scalars.
    where : Span, optional
        The place of the call; a pass knows it anyway.
    kind : str
        The error's class: ``"ShapeMismatch"``, ``"InvalidArgument"`` or ``"IndexOutOfRange"``.

    Raises
    ------
    ShapeMismatch
        When they are numbers and differ.
    """
    _demand(what, found, expected, where, kind)


def demand_at_most(what: str, found: Dim, limit: Dim, where: Where = None, kind: str = "ShapeMismatch") -> None:
    """Demand ``found <= limit``; the message gives the limit as what was expected."""
    demand_between(f"{what} (at most)", found, None, limit, where, kind)


def demand_at_least(what: str, found: Dim, limit: Dim, where: Where = None, kind: str = "ShapeMismatch") -> None:
    """Demand ``found >= limit``; the message gives the limit as what was expected."""
    demand_between(f"{what} (at least)", found, limit, None, where, kind)


def demand_between(
    what: str, found: Dim, low: Dim | None, high: Dim | None, where: Where = None, kind: str = "ShapeMismatch"
) -> None:
    """Demand ``low <= found <= high``; the message gives the limit that was passed as what was expected."""
    nearest = _int64(found)
    if high is not None:
        nearest = min_(nearest, _int64(high))
    if low is not None:
        nearest = max_(nearest, _int64(low))
    _demand(what, found, nearest, where, kind)


def demand_divisible(what: str, found: Dim, divisor: Dim, where: Where = None) -> None:
    """Demand that `found` is a multiple of `divisor`; the message gives the next lower one as what was expected."""
    value = _int64(found)
    _demand(
        f"{what} (a multiple of {divisor})",
        found,
        value - floormod(value, max_(_int64(divisor), 1)),
        where,
        "ShapeMismatch",
    )


def demand_broadcast(what: str, a: Dim, b: Dim, where: Where = None) -> None:
    """Demand that two dimensions are equal, or one of them is 1."""
    one, other = as_int(a), as_int(b)
    if one == 1 or other == 1:
        return
    if one is not None and other is not None:
        _demand(what, a, b, where, "ShapeMismatch")
        return
    a, b = _int64(a), _int64(b)
    _demand(what, a, select(logical_or(equal(a, 1), equal(b, 1)), a, b), where, "ShapeMismatch")


def demand_broadcast_to(what: str, dim: Dim, target: Dim, where: Where = None) -> None:
    """Demand that a dimension is another one, or 1 and repeated."""
    known, wanted = as_int(dim), as_int(target)
    if known == 1:
        return
    if known is not None and wanted is not None and known != wanted:
        raise error.ShapeMismatch(what, expected=f"1 or {wanted}", found=str(known), where=where)
    wide = _int64(dim)
    expected = target if as_int(dim) is not None else select(equal(wide, 1), wide, _int64(target))
    _demand(what, dim, expected, where, "ShapeMismatch")


def demand_same_shape(
    what: str, found: Sequence[Any] | None, expected: Sequence[Any] | None, where: Where = None
) -> None:
    """Demand that two shapes are equal, dimension by dimension; those that are not known demand nothing."""
    if found is None or expected is None:
        return
    if len(found) != len(expected):
        raise error.ShapeMismatch(
            f"{what} has a wrong number of dimensions", expected=str(len(expected)), found=str(len(found)), where=where
        )
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        demand_equal(f"{what}, dimension {i}", f, e, where)


def demand_indices(what: str, indices: Expr, low: Dim, high: Dim, where: Where = None, but: int | None = None) -> None:
    """Demand that all elements of a tensor of integers lie in ``low <= index < high``, or are `but`."""
    demand_index_tuples(what, indices, ((low, high),), where, but)


def demand_index_tuples(
    what: str, indices: Expr, ranges: Sequence[tuple[Any, Any]], where: Where = None, but: int | None = None
) -> None:
    """Demand that the tuples of integers in the last dimension of a tensor lie in a range for each place."""
    collected = _COLLECTED.get()
    if collected is not None and ranges:
        limits = tuple((_int64(low), _int64(high)) for low, high in ranges)
        collected.append(IndexRange(what, indices, limits, where, but))
