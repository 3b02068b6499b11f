"""Bounding an index over the loops around it: interval arithmetic on expressions."""

from __future__ import annotations

from collections.abc import Mapping

from weft import ir
from weft.tir.buffer import BufferLoad

Domains = Mapping[ir.Var, tuple[ir.PrimExpr, ir.PrimExpr] | None]
Interval = tuple[ir.PrimExpr, ir.PrimExpr]


def bound_over(expr: ir.PrimExpr, domains: Domains) -> Interval | None:
    """Return (least, greatest) of `expr` when each variable runs over its domain; other variables stay as they are.

    Parameters
    ----------
    domains : mapping of variable to (least, greatest), or to None where no bound is known
        The bounds may use variables outside of the mapping. What is read from memory has no bound.

    Returns
    -------
    pair of PrimExpr or None
        None where no bound is known.
    """
    if not any(type(v) is BufferLoad or v in domains for v in ir.find(expr, BufferLoad, ir.Var)):
        return expr, expr
    return _BOUND(expr, domains)


_BOUND = ir.Dispatch("bound of an index", (ir.PrimExpr,), default=lambda e, d: None)


@_BOUND.on(ir.Var)
def _var(e: ir.Var, d: Domains) -> Interval | None:
    domain = d[e]
    if domain is None:
        return None
    low, high = domain
    lo, hi = bound_over(low, d), bound_over(high, d)
    return (lo[0], hi[1]) if lo is not None and hi is not None else None


@_BOUND.on(ir.Add)
def _add(e: ir.Add, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (a[0] + b[0], a[1] + b[1]) if a is not None and b is not None else None


@_BOUND.on(ir.Sub)
def _sub(e: ir.Sub, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (a[0] - b[1], a[1] - b[0]) if a is not None and b is not None else None


@_BOUND.on(ir.Mul)
def _mul(e: ir.Mul, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    if a is None or b is None:
        return None
    if isinstance(e.a, ir.IntImm):
        a, b = b, a
    factor = b[0]
    if b[0] is not b[1] or not isinstance(factor, ir.IntImm):
        return None
    return (a[0] * factor, a[1] * factor) if factor.value >= 0 else (a[1] * factor, a[0] * factor)


@_BOUND.on(ir.FloorDiv)
def _floordiv(e: ir.FloorDiv, d: Domains) -> Interval | None:
    a = bound_over(e.a, d)
    if a is None or not isinstance(e.b, ir.IntImm) or e.b.value <= 0:
        return None
    return ir.floordiv(a[0], e.b), ir.floordiv(a[1], e.b)


@_BOUND.on(ir.FloorMod)
def _floormod(e: ir.FloorMod, d: Domains) -> Interval | None:
    if not isinstance(e.b, ir.IntImm) or e.b.value <= 0:
        return None
    a = bound_over(e.a, d)
    if (
        a is not None
        and isinstance(a[0], ir.IntImm)
        and isinstance(a[1], ir.IntImm)
        and a[0].value // e.b.value == a[1].value // e.b.value
    ):
        return ir.const(a[0].value % e.b.value, e.dtype), ir.const(a[1].value % e.b.value, e.dtype)
    return ir.const(0, e.dtype), ir.const(e.b.value - 1, e.dtype)


@_BOUND.on(ir.Min)
def _min(e: ir.Min, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (ir.min_(a[0], b[0]), ir.min_(a[1], b[1])) if a is not None and b is not None else None


@_BOUND.on(ir.Max)
def _max(e: ir.Max, d: Domains) -> Interval | None:
    a, b = bound_over(e.a, d), bound_over(e.b, d)
    return (ir.max_(a[0], b[0]), ir.max_(a[1], b[1])) if a is not None and b is not None else None


@_BOUND.on(ir.Cast)
def _cast(e: ir.Cast, d: Domains) -> Interval | None:
    a = bound_over(e.value, d)
    return (ir.cast(e.dtype, a[0]), ir.cast(e.dtype, a[1])) if a is not None else None


@_BOUND.on(ir.Select)
def _select(e: ir.Select, d: Domains) -> Interval | None:
    a, b = bound_over(e.true_value, d), bound_over(e.false_value, d)
    return (ir.min_(a[0], b[0]), ir.max_(a[1], b[1])) if a is not None and b is not None else None
