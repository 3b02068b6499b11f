"""Intervals with symbolic ends: what an expression covers while loop variables run over their domains.

Works on polynomials: variables that run are eliminated one after another by the end of their domain that the sign of
their factor asks for, so affine indices with symbolic extents stay exact. Quotients, remainders, minima and choices
become variables with intervals of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from weft.arith.bounds import bound_of
from weft.arith.context import NEG_INF, POS_INF, Context
from weft.arith.form import conjuncts, held, mentions, poly_of, to_expr
from weft.arith.linear import Poly, add, atoms_of, coefficient_of, constant, content, key, mul, scale
from weft.arith.prove import prove_nonneg
from weft.arith.simplify import simplify
from weft.arith.terms import floordiv, minimum
from weft.ir import GE, GT, LE, LT, TRUE, And, Broadcast, IterVar, Node, PrimExpr, Ramp, Range, Var, as_expr, as_int
from weft.spelling import also_called

_POS, _NEG = Var("pos_inf", "handle"), Var("neg_inf", "handle")


def pos_inf() -> Var:
    """Return what stands for no upper end."""
    return _POS


def neg_inf() -> Var:
    """Return what stands for no lower end."""
    return _NEG


class IntervalSet(Node):
    """All integers from `min_value` to `max_value`, both included; ``neg_inf()`` and ``pos_inf()`` are open ends."""

    min_value: PrimExpr
    max_value: PrimExpr

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        for name in ("min_value", "max_value"):
            value = getattr(self, name)
            if not isinstance(value, PrimExpr):
                msgspec.structs.force_setattr(self, name, as_expr(value))

    @staticmethod
    @also_called(vec="values")
    def vector(values: PrimExpr) -> IntervalSet:
        """Return the set of the lanes of a ramp or broadcast."""
        if isinstance(values, Ramp):
            ends = (values.base, values.base + values.stride * (values.lanes - 1))
            step = as_int(values.stride)
            return IntervalSet(*(reversed(ends) if step is not None and step < 0 else ends))
        return IntervalSet.single_point(values.value if isinstance(values, Broadcast) else values)

    @staticmethod
    def everything() -> IntervalSet:
        """Return the set of all integers."""
        return IntervalSet(_NEG, _POS)

    @staticmethod
    def nothing() -> IntervalSet:
        """Return the empty set."""
        return IntervalSet(_POS, _NEG)

    @staticmethod
    @also_called(point="value")
    def single_point(value: PrimExpr) -> IntervalSet:
        """Return the set of one value."""
        return IntervalSet(value, value)

    @property
    def has_lower_bound(self) -> bool:
        """Whether there is a least value."""
        return self.min_value is not _NEG

    @property
    def has_upper_bound(self) -> bool:
        """Whether there is a largest value."""
        return self.max_value is not _POS

    @property
    def is_single_point(self) -> bool:
        """Whether both ends are one expression."""
        return self.min_value is self.max_value

    def is_everything(self) -> bool:
        """Whether nothing is known."""
        return not self.has_lower_bound and not self.has_upper_bound

    def is_nothing(self) -> bool:
        """Whether the set is :meth:`nothing`, or the ends are constants in the wrong order."""
        if self.min_value is _POS or self.max_value is _NEG:
            return True
        lo, hi = getattr(self.min_value, "value", None), getattr(self.max_value, "value", None)
        return lo is not None and hi is not None and lo > hi

    def to_range(self) -> Range:
        """Return the interval as a range; both ends must be known."""
        return Range.from_min_extent(self.min_value, self.max_value - self.min_value + 1)


Ends = tuple["Poly | None", "Poly | None"]


class _Running:
    """The ends of the variables that run, and of the atoms made of them."""

    def __init__(self, cx: Context, dom_map: Mapping[Any, Any]) -> None:
        self.cx = cx
        self.ends: dict[int, Ends] = {}
        self._depends: dict[int, bool] = {}
        self._resolved: dict[int, Ends] = {}
        for var, dom in dom_map.items():
            v = var.var if isinstance(var, IterVar) else var
            self.ends[cx.var_atom(v)] = self._ends_of_domain(dom)

    def _ends_of_domain(self, dom: Any) -> Ends:
        cx = self.cx
        if isinstance(dom, IntervalSet):
            return (
                poly_of(cx, dom.min_value) if dom.has_lower_bound else None,
                poly_of(cx, dom.max_value) if dom.has_upper_bound else None,
            )
        first, extent = poly_of(cx, dom.min), poly_of(cx, dom.extent)
        if first is None or extent is None:
            return None, None
        return first, add(add(first, extent), constant(-1))

    def depends(self, atom: int) -> bool:
        """Whether the value of an atom changes while the variables run."""
        known = self._depends.get(atom)
        if known is None:
            info = self.cx.atoms[atom]
            known = atom in self.ends
            known = known or any(self.depends(a) for p in info.args if isinstance(p, dict) for a in atoms_of(p))
            known = known or (info.kind in ("opaque", "select") and mentions(self.cx, info.node, self.ends))
            self._depends[atom] = known
        return known

    def of(self, p: Poly) -> Ends:
        """Return both ends of a polynomial."""
        moving = [a for a in atoms_of(p) if self.depends(a)]
        if not moving:
            return p, p
        atom = max(moving, key=lambda a: (self.cx.rank(a), a))
        split = coefficient_of(p, atom)
        if split is None:
            return self._constant_ends(p)
        factor, rest = split
        rest_lo, rest_hi = self.of(rest)
        lo, hi = self._times(factor, self.atom(atom))
        return _sum(rest_lo, lo), _sum(rest_hi, hi)

    def _times(self, factor: Poly, ends: Ends) -> Ends:
        cx = self.cx
        if any(self.depends(a) for a in atoms_of(factor)):
            flo, fhi = self.of(factor)
            lo, hi = ends
            if flo is not None and lo is not None and prove_nonneg(cx, flo) and prove_nonneg(cx, lo):
                return mul(flo, lo), mul(fhi, hi) if fhi is not None and hi is not None else None
            return None, None
        if prove_nonneg(cx, factor):
            return tuple(None if e is None else mul(factor, e) for e in ends)  # type: ignore[return-value]
        if prove_nonneg(cx, scale(factor, -1)):
            return tuple(None if e is None else mul(factor, e) for e in reversed(ends))  # type: ignore[return-value]
        return None, None

    def atom(self, atom: int) -> Ends:
        """Return both ends of an atom."""
        ends = self._resolved.get(atom)
        if ends is None:
            self._resolved[atom] = (None, None)  # what a domain that names itself gives
            low, high = self.ends[atom] if atom in self.ends else self._atom(atom)
            ends = (None if low is None else self.of(low)[0], None if high is None else self.of(high)[1])
            self._resolved[atom] = ends
        return ends

    def _atom(self, atom: int) -> Ends:
        info, cx = self.cx.atoms[atom], self.cx
        if info.kind in ("div", "mod"):
            num, den = info.args
            if not any(self.depends(a) for a in atoms_of(den)) and bound_of(cx, den)[0] >= 0:
                lo, hi = self.of(num)
                if info.kind == "div":
                    return (
                        None if lo is None else floordiv(cx, lo, den, info.dtype),
                        None if hi is None else floordiv(cx, hi, den, info.dtype),
                    )
                top = add(den, constant(-1))
                if lo is not None and hi is not None:
                    whole = floordiv(cx, lo, den, info.dtype)
                    if key(whole) == key(floordiv(cx, hi, den, info.dtype)):
                        offset = mul(whole, den)
                        return add(lo, offset, -1), add(hi, offset, -1)
                    if hi and prove_nonneg(cx, lo):
                        top = minimum(cx, "min", top, hi, info.dtype)
                return {}, top
        if info.kind in ("min", "max", "select"):
            chosen = info.kind == "select"
            parts = [self.of(p) for p in (info.args[1:] if chosen else info.args)]
            low, high = ("min", "max") if chosen else (info.kind, info.kind)
            lo = self._combine(low, [p[0] for p in parts], info.dtype, drop_open=info.kind == "max")
            hi = self._combine(high, [p[1] for p in parts], info.dtype, drop_open=info.kind == "min")
            return lo, hi
        return self._constant_ends({(atom,): 1})

    def _combine(self, kind: str, parts: list[Poly | None], dtype: str, drop_open: bool = False) -> Poly | None:
        known = [p for p in parts if p is not None]
        if not known or (len(known) < len(parts) and not drop_open):
            return None
        result = known[0]
        for p in known[1:]:
            result = minimum(self.cx, kind, result, p, dtype)
        return result

    def _constant_ends(self, p: Poly) -> Ends:
        lo, hi = bound_of(self.cx, p)
        return (None if lo == NEG_INF else constant(lo)), (None if hi == POS_INF else constant(hi))


def _sum(a: Poly | None, b: Poly | None) -> Poly | None:
    return None if a is None or b is None else add(a, b)


def _interval(cx: Context, ends: Ends, dtype: str) -> IntervalSet:
    lo, hi = ends
    low, high = (None if p is None else held(to_expr, cx, p, dtype) for p in ends)
    if low is not None and lo is not None and hi is not None and key(lo) == key(hi):
        return IntervalSet(low, low)
    return IntervalSet(_NEG if low is None else low, _POS if high is None else high)


def eval_interval(expr: PrimExpr, dom_map: Mapping[Any, Any], analyzer: Knowledge) -> IntervalSet:
    """Return the interval that `expr` covers while variables run over `dom_map` (ranges or intervals)."""
    cx = analyzer.context
    running = _Running(cx, dom_map)
    p = poly_of(cx, analyzer.simplify(expr))
    return IntervalSet.everything() if p is None else _interval(cx, running.of(p), expr.dtype)


def eval_range(dom: Range, dom_map: Mapping[Any, Any], analyzer: Knowledge) -> IntervalSet:
    """Return the interval that a range covers while variables run over `dom_map`."""
    low = eval_interval(dom.min, dom_map, analyzer)
    high = eval_interval(dom.min + dom.extent - 1, dom_map, analyzer)
    return IntervalSet(low.min_value, high.max_value)


def union(sets: Sequence[IntervalSet], analyzer: Knowledge) -> IntervalSet:
    """Return the smallest interval that holds all of `sets`."""
    lows = [s.min_value for s in sets]
    highs = [s.max_value for s in sets]
    return IntervalSet(
        _NEG if any(x is _NEG for x in lows) else _fold(lows, analyzer, "min", _NEG),
        _POS if any(x is _POS for x in highs) else _fold(highs, analyzer, "max", _POS),
    )


def union_lower_bound(sets: Sequence[IntervalSet], analyzer: Knowledge | None = None) -> IntervalSet:
    """Return an interval all of which `sets` cover together: theirs as one where they meet, else one of them.

    The empty interval, from ``pos_inf`` to ``neg_inf``, adds nothing.
    """
    analyzer = _analyzer(analyzer)
    least: Any = None
    for s in sets:
        if (s.min_value is _POS and s.max_value is _NEG) or s.is_nothing():
            continue
        if least is None or (_meet(least, s, analyzer) and _meet(s, least, analyzer)):
            least = s if least is None else union([least, s], analyzer)
    return IntervalSet(_POS, _NEG) if least is None else least


def _meet(a: IntervalSet, b: IntervalSet, analyzer: Knowledge) -> bool:
    """Whether `a` begins no later than right after the end of `b`."""
    if not a.has_lower_bound or not b.has_upper_bound:
        return True
    cx: Context = analyzer.context
    first, last = poly_of(cx, a.min_value), poly_of(cx, b.max_value + 1)
    return first is not None and last is not None and prove_nonneg(cx, add(last, first, -1))


def intersect(sets: Sequence[IntervalSet], analyzer: Knowledge) -> IntervalSet:
    """Return the common part of `sets`."""
    closed_low = [s.min_value for s in sets if s.has_lower_bound]
    closed_high = [s.max_value for s in sets if s.has_upper_bound]
    return IntervalSet(
        _fold(closed_low, analyzer, "max") if closed_low else _NEG,
        _fold(closed_high, analyzer, "min") if closed_high else _POS,
    )


def _fold(values: Iterable[PrimExpr], analyzer: Knowledge, kind: str, unknown: PrimExpr | None = None) -> PrimExpr:
    """The least or greatest of ends; `unknown`, or the ones before, where that is no number of their type."""
    values = list(values)
    cx: Context = analyzer.context
    result = values[0]
    for v in values[1:]:
        if v is result:
            continue
        a, b = poly_of(cx, result), poly_of(cx, v)
        assert a is not None and b is not None
        found = held(to_expr, cx, minimum(cx, kind, a, b, result.dtype), result.dtype)
        if found is None and unknown is not None:
            return unknown
        result = result if found is None else found
    return result


class Knowledge(Protocol):
    """An analyzer, or what stands for one: what is known of variables, and a simplifier that uses it."""

    context: Context

    def simplify(self, expr: PrimExpr, /) -> PrimExpr:
        """Return a simpler equal expression."""
        ...


class _Knowing:
    """Stands for an analyzer that was told nothing: its context is what these functions read."""

    def __init__(self) -> None:
        self.context = Context()

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """Return a simpler equal expression."""
        return simplify(self, expr)


def _analyzer(given: Knowledge | None) -> Knowledge:
    return _Knowing() if given is None else given


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: PrimExpr = TRUE, analyzer: Knowledge | None = None
) -> list[IntervalSet]:
    """Return intervals that hold all of `region` while variables run over `var_dom` where `predicate` holds."""
    analyzer, predicate = _analyzer(analyzer), as_expr(predicate)
    result = []
    for dom in region:
        interval = eval_range(dom, var_dom, analyzer)
        result.append(_cut(interval, dom, predicate, var_dom, analyzer))
    return result


def _cut(
    interval: IntervalSet, dom: Range, predicate: PrimExpr, var_dom: Mapping[Var, Range], analyzer: Knowledge
) -> IntervalSet:
    """Narrow an interval by the parts of the predicate that bound the range itself."""
    cx: Context = analyzer.context
    running = _Running(cx, var_dom)
    first, last = poly_of(cx, dom.min), poly_of(cx, dom.min + dom.extent - 1)
    if first is None or last is None:
        return interval
    sets = [interval]
    for d in inequalities(cx, predicate):
        # d >= 0; where d + last does not move, last <= d + last
        for end, is_high in ((last, True), (first, False)):
            limit = add(d, end) if is_high else add(end, d, -1)
            if not any(running.depends(a) for a in atoms_of(limit)):
                low, high = (None, limit) if is_high else (limit, None)
                sets.append(_interval(cx, (low, high), dom.min.dtype))
    return intersect(sets, analyzer) if len(sets) > 1 else interval


def inequalities(cx: Context, predicate: PrimExpr) -> list[Poly]:
    """Return polynomials that a conjunction of comparisons says are nonnegative."""
    if isinstance(predicate, And):
        return inequalities(cx, predicate.a) + inequalities(cx, predicate.b)
    if isinstance(predicate, (LT, LE, GT, GE)):
        a, b = poly_of(cx, predicate.a), poly_of(cx, predicate.b)
        if a is None or b is None:
            return []
        d = add(b, a, -1) if isinstance(predicate, (LT, LE)) else add(a, b, -1)
        return [add(d, constant(-1)) if isinstance(predicate, (LT, GT)) else d]
    return []


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: PrimExpr = TRUE, analyzer: Knowledge | None = None
) -> list[IntervalSet] | None:
    """Return intervals all of which `region` covers, or None where that is not known."""
    return estimate_region_strict_bound(region, var_dom, predicate, analyzer)


def estimate_region_strict_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: PrimExpr = TRUE, analyzer: Knowledge | None = None
) -> list[IntervalSet] | None:
    """Return the intervals that `region` covers exactly; None where it may leave holes or tie dimensions.

    Each comparison of `predicate` holds throughout, or bounds what runs in one of the ranges; else nothing is known.
    """
    cx: Context = _analyzer(analyzer).context
    running = _Running(cx, var_dom)
    conditions: list[Poly] = []
    for part in conjuncts(as_expr(predicate)):
        known = inequalities(cx, part)
        if not known:
            return None
        lows = [running.of(d)[0] for d in known]
        conditions += [d for d, low in zip(known, lows, strict=True) if low is None or not prove_nonneg(cx, low)]
    result: list[IntervalSet] = []
    used: set[int] = set()
    for dom in region:
        p, extent = poly_of(cx, dom.min), poly_of(cx, dom.extent)
        if p is None or extent is None or any(running.depends(a) for a in atoms_of(extent)):
            return None
        atoms = {cx.var_atom(v) for v in var_dom} & atoms_of(p)
        own = [d for d in conditions if atoms & atoms_of(d)]
        interval = _covered(running, (p, extent, dom.min.dtype), var_dom, own)
        if interval is None or atoms & used:
            return None
        conditions = [d for d in conditions if not any(d is o for o in own)]
        used |= atoms
        result.append(_interval(cx, interval, dom.min.dtype))
    return None if conditions else result


def _covered(
    running: _Running, dom: tuple[Poly, Poly, str], var_dom: Mapping[Var, Range], conditions: list[Poly]
) -> Ends | None:
    """Return the ends of what a range (start, extent, dtype) covers where the conditions, each >= 0, hold.

    None where they may leave holes, or where a condition is about something else than what moves `p`.
    """
    (p, extent, dtype), cx = dom, running.cx
    moving = _moving(running, p)
    step = content(moving) or 1
    t = {m: c // step for m, c in moving.items()}
    low, high = running.of(t)
    dense = _is_dense(running, p, var_dom, extent)
    if conditions:  # then `t` takes each value between its ends
        dense = _is_dense(running, t, var_dom, constant(1)) and prove_nonneg(cx, add(extent, constant(-step)))
    if not dense or low is None or high is None:
        return None
    for d in conditions:
        part = _moving(running, d)
        q = next((part[m] // c for m, c in t.items() if m in part), 0)
        if key(scale(t, q)) != key(part):
            return None
        rest = add(d, part, -1)
        if q > 0:
            low = minimum(cx, "max", low, floordiv(cx, add(constant(q - 1), rest, -1), constant(q), dtype), dtype)
        else:
            high = minimum(cx, "min", high, floordiv(cx, rest, constant(-q), dtype), dtype)
    if conditions and key(extent) != key(constant(1)) and not prove_nonneg(cx, add(high, low, -1)):
        return None  # perhaps the conditions never hold
    base = add(p, moving, -1)
    return add(base, scale(low, step)), add(add(add(base, scale(high, step)), extent), constant(-1))


def _moving(running: _Running, p: Poly) -> Poly:
    """Return the terms of a polynomial that change while the variables run."""
    return {m: c for m, c in p.items() if any(running.depends(a) for a in m)}


def _is_dense(running: _Running, p: Poly, var_dom: Mapping[Var, Range], covered: Poly) -> bool:
    """Whether `covered` elements from `p` on, while the variables run, leave no holes."""
    cx = running.cx
    steps = []
    for var, d in var_dom.items():
        atom = cx.var_atom(var)
        if atom not in atoms_of(p):
            continue
        split = coefficient_of(p, atom)
        size = poly_of(cx, d.extent)
        if split is None or size is None:
            return False
        factor = scale(split[0], -1) if prove_nonneg(cx, scale(split[0], -1)) else split[0]
        steps.append((factor, size))
        p = split[1]
    if _moving(running, p):
        return False
    while steps:
        ready = next((s for s in steps if prove_nonneg(cx, s[0]) and prove_nonneg(cx, add(covered, s[0], -1))), None)
        if ready is None:
            return False
        steps.remove(ready)
        covered = add(covered, mul(ready[0], add(ready[1], constant(-1))))
    return True
