"""deduce_bound: for which values of a variable does a condition hold, whatever the others are."""

from __future__ import annotations

from collections.abc import Mapping

from weft.arith.analyzer import Analyzer
from weft.arith.int_set import IntervalSet, neg_inf, pos_inf
from weft.arith.solve import detect_linear_equation
from weft.ir import EQ, GE, GT, LE, LT, IntImm, PrimExpr, Var, floordiv


def deduce_bound(
    var: Var, cond: PrimExpr, hint_map: Mapping[Var, IntervalSet], relax_map: Mapping[Var, IntervalSet]
) -> IntervalSet:
    """Return values of a variable for which a comparison holds.

    Parameters
    ----------
    cond : PrimExpr
        A comparison in which `var` occurs with a constant factor.
    hint_map, relax_map : mapping of Var to IntervalSet
        The values of other variables. The result holds for all of those in `relax_map`; those of `hint_map` stay in
        it as they are.

    Returns
    -------
    IntervalSet
        Everything where nothing can be said.
    """
    everything = IntervalSet(neg_inf(), pos_inf())
    if isinstance(cond, EQ):
        below = deduce_bound(var, LE(cond.a, cond.b), hint_map, relax_map)
        above = deduce_bound(var, GE(cond.a, cond.b), hint_map, relax_map)
        return IntervalSet(above.min_value if above.has_lower_bound else below.min_value,
                           below.max_value if below.has_upper_bound else above.max_value)  # fmt: skip
    if isinstance(cond, (LT, LE)):
        difference = cond.b - cond.a - (1 if isinstance(cond, LT) else 0)
    elif isinstance(cond, (GT, GE)):
        difference = cond.a - cond.b - (1 if isinstance(cond, GT) else 0)
    else:
        return everything
    parts = detect_linear_equation(difference, [var])  # factor * var + rest >= 0
    analyzer = Analyzer()
    factor = analyzer.simplify(parts[0]) if len(parts) == 2 else None
    if not isinstance(factor, IntImm) or factor.value == 0:
        return everything
    rest = analyzer.int_set(analyzer.simplify(parts[1]), dict(relax_map))
    if not rest.has_lower_bound:
        return everything
    least = rest.min_value
    if factor.value > 0:  # var >= ceil(-least / factor)
        return IntervalSet(analyzer.simplify(floordiv(-least + (factor.value - 1), factor.value)), pos_inf())
    return IntervalSet(neg_inf(), analyzer.simplify(floordiv(least, -factor.value)))
