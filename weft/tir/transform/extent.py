"""Bounding an index over the loops around it: interval arithmetic on expressions."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir import (
    Add,
    Cast,
    Dispatch,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    cast,
    const,
    floordiv,
    max_,
    min_,
    walk,
)
from weft.tir.buffer import BufferLoad

__all__ = ["bound_over"]

Domains = Mapping[int, tuple[PrimExpr, PrimExpr] | None]
Interval = tuple[PrimExpr, PrimExpr]


def bound_over(expr: PrimExpr, domains: Domains) -> Interval | None:
    """Return (least, greatest) of `expr` when each variable runs over its domain; other variables stay as they are.

    Parameters
    ----------
    domains : mapping of ``id(variable)`` to (least, greatest), or to None where no bound is known
        The bounds may use variables outside of the mapping. What is read from memory has no bound.

    Returns
    -------
    pair of PrimExpr or None
        None where no bound is known.
    """
    if not any(isinstance(v, BufferLoad) or (isinstance(v, Var) and id(v) in domains) for v in walk(expr)):
        return expr, expr
    return _BOUND(expr, domains)


_BOUND = Dispatch("bound of an index", (PrimExpr,), default=lambda e, d: None)


@_BOUND.on(Var)
def _var(e: Var, d: Domains) -> Interval | None:
    domain = d[id(e)]
    if domain is None:
        return None
    low, high = domain
    lo, hi = bound_over(low, d), bound_over(high, d)
    return (lo[0], hi[1]) if lo is not None and hi is not None else None


@_BOUND.on(Add)
def _add(e: Add, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (a[0] + b[0], a[1] + b[1]) if a is not None and b is not None else None


@_BOUND.on(Sub)
def _sub(e: Sub, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (a[0] - b[1], a[1] - b[0]) if a is not None and b is not None else None


@_BOUND.on(Mul)
def _mul(e: Mul, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    if a is None or b is None:
        return None
    if isinstance(e.a, IntImm):
        a, b = b, a
    factor = b[0]
    if b[0] is not b[1] or not isinstance(factor, IntImm):
        return None
    return (a[0] * factor, a[1] * factor) if factor.value >= 0 else (a[1] * factor, a[0] * factor)


@_BOUND.on(FloorDiv)
def _floordiv(e: FloorDiv, d: Domains) -> Interval | None:
    a = bound_over(e.a, d)
    if a is None or not isinstance(e.b, IntImm) or e.b.value <= 0:
        return None
    return floordiv(a[0], e.b), floordiv(a[1], e.b)


@_BOUND.on(FloorMod)
def _floormod(e: FloorMod, d: Domains) -> Interval | None:
    if not isinstance(e.b, IntImm) or e.b.value <= 0:
        return None
    a = bound_over(e.a, d)
    if (
        a is not None
        and isinstance(a[0], IntImm)
        and isinstance(a[1], IntImm)
        and a[0].value // e.b.value == a[1].value // e.b.value
    ):
        return const(a[0].value % e.b.value, e.dtype), const(a[1].value % e.b.value, e.dtype)
    return const(0, e.dtype), const(e.b.value - 1, e.dtype)


@_BOUND.on(Min)
def _min(e: Min, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (min_(a[0], b[0]), min_(a[1], b[1])) if a is not None and b is not None else None


@_BOUND.on(Max)
def _max(e: Max, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (max_(a[0], b[0]), max_(a[1], b[1])) if a is not None and b is not None else None


@_BOUND.on(Cast)
def _cast(e: Cast, d: Domains) -> Interval | None:
    a = bound_over(e.value, d)
    return (cast(e.dtype, a[0]), cast(e.dtype, a[1])) if a is not None else None


@_BOUND.on(Select)
def _select(e: Select, d: Domains) -> Interval | None:
    a, b = bound_over(e.true_value, d), bound_over(e.false_value, d)
    return (min_(a[0], b[0]), max_(a[1], b[1])) if a is not None and b is not None else None
