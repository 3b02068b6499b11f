"""Index expressions of two groups of iterators: the part of each index that either group decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft import ir
from weft.arith import iter_map
from weft.arith.analyzer import Analyzer


class _Mixed(Exception):
    """An index that the two groups decide together."""


def subspace_divide(
    bindings: Iterable[ir.PrimExpr],
    input_iters: Mapping[ir.Var, ir.Range],
    sub_iters: Sequence[ir.Var],
    predicate: ir.ExprLike = ir.TRUE,
    check_level: iter_map.IterMapLevel | str | None = iter_map.IterMapLevel.SURJECTIVE,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[list[iter_map.IterMark]]:
    """Write each index as ``outer * extent of inner + inner``, where the sub-iterators alone decide the inner part.

    Parameters
    ----------
    bindings : iterable of PrimExpr
        The indices.
    input_iters : mapping of Var to Range
        All iterators.
    sub_iters : sequence of Var
        Those that run inside.
    predicate, check_level, simplify_trivial_iterators, analyzer
        As those of :func:`detect_iter_map`.

    Returns
    -------
    list of [IterMark, IterMark]
        The outer and the inner part of each index, then a pair whose extents are the conditions on either group.
        Nothing where an index or a condition mixes the groups.
    """
    an = Analyzer() if analyzer is None else analyzer.clone()
    divided = _Divided(an, set(sub_iters), set(input_iters))
    condition = ir.as_expr(predicate)
    sums = iter_map.detect_iter_map(bindings, input_iters, condition, check_level, simplify_trivial_iterators, analyzer)
    for var, dom in input_iters.items():
        an.bind(var, dom, allow_override=True)
    try:
        return [*(list(divided.total(s)) for s in sums.indices), divided.condition(condition)] if len(sums) else []
    except _Mixed:
        return []


class _Divided:
    """Takes sums of splits apart; `inside` are the sub-iterators among `iterators`."""

    def __init__(self, an: Analyzer, inside: set[ir.Var], iterators: set[ir.Var]) -> None:
        self.an, self.inside, self.iterators = an, inside, iterators

    def total(self, total: iter_map.IterSumExpr) -> tuple[iter_map.IterMark, iter_map.IterMark]:
        """Divide a sum, whose smallest stride has to be 1 and whose strides have to follow one another."""
        outer: list[iter_map.IterSplitExpr] = []
        inner: list[iter_map.IterSplitExpr] = []
        reach = below = ir.const(1, total.base.dtype)
        for s in reversed(total.args):
            if not self.an.can_prove_equal(s.scale, reach):
                raise _Mixed
            high, low = self.split(s)
            if low is not None:
                if outer:
                    raise _Mixed  # what runs inside would decide more than what is around it
                inner.insert(0, _scaled(low, s.scale))
                below = self.an.simplify(s.scale * low.extent)
            if high is not None:
                stride = s.scale if low is None else s.scale * low.extent
                outer.insert(0, _scaled(high, self.an.simplify(ir.floordiv(stride, below))))
            reach = self.an.simplify(s.scale * s.extent)
        zero = ir.const(0, total.base.dtype)
        return (
            iter_map.IterMark(iter_map.IterSumExpr(tuple(outer), zero), self.an.simplify(ir.floordiv(reach, below))),
            iter_map.IterMark(iter_map.IterSumExpr(tuple(inner), total.base), below),
        )

    def split(self, s: iter_map.IterSplitExpr) -> tuple[iter_map.IterSplitExpr | None, iter_map.IterSplitExpr | None]:
        """Divide a part of a mark into what is decided outside and inside."""
        used = self.used(iter_map.normalize_iter_map_to_expr(s.source))
        if used <= self.inside:
            return None, s
        if used.isdisjoint(self.inside):
            return s, None
        assert isinstance(s.source.source, iter_map.IterSumExpr)
        high, low = self.total(s.source.source)
        size, low_factor, end = low.extent, s.lower_factor, s.lower_factor * s.extent
        one = ir.const(1, size.dtype)
        if not self.an.can_prove_equal(high.extent * size, s.source.extent):
            raise _Mixed
        if self.an.can_prove(end <= size):
            return None, iter_map.IterSplitExpr(low, low_factor, s.extent, one)
        if self.divides(size, low_factor):
            return iter_map.IterSplitExpr(high, self.an.simplify(ir.floordiv(low_factor, size)), s.extent, one), None
        if self.divides(low_factor, size) and self.divides(size, end):
            return (
                iter_map.IterSplitExpr(high, one, self.an.simplify(ir.floordiv(end, size)), one),
                iter_map.IterSplitExpr(low, low_factor, self.an.simplify(ir.floordiv(size, low_factor)), one),
            )
        raise _Mixed

    def divides(self, a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
        return self.an.can_prove_equal(ir.floormod(b, a), 0)

    def used(self, e: ir.PrimExpr) -> set[ir.PrimExpr]:
        return {n for n in ir.find(e, ir.Var) if n in self.iterators}

    def condition(self, predicate: ir.PrimExpr) -> list[iter_map.IterMark]:
        """Give each of the conditions to the group that decides it."""
        parts: list[ir.PrimExpr] = [ir.TRUE, ir.TRUE]
        pending = [predicate]
        while pending:
            c = pending.pop()
            if isinstance(c, ir.And):
                pending += [c.b, c.a]
                continue
            used = self.used(c)
            if used & self.inside and not used <= self.inside:
                raise _Mixed
            at = int(bool(used & self.inside))
            parts[at] = ir.logical_and(parts[at], c)
        nothing = iter_map.IterSumExpr((), ir.const(0, "int32"))
        return [iter_map.IterMark(nothing, p) for p in parts]


def _scaled(s: iter_map.IterSplitExpr, scale: ir.PrimExpr) -> iter_map.IterSplitExpr:
    return iter_map.IterSplitExpr(s.source, s.lower_factor, s.extent, scale)
