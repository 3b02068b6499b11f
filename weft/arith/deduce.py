"""deduce_bound: for which values of a variable does a condition hold, whatever the others are."""

from collections.abc import Mapping

from weft import ir
from weft.arith.analyzer import Analyzer
from weft.arith.int_set import IntervalSet, neg_inf, pos_inf
from weft.arith.solve import detect_linear_equation

Domains = Mapping[ir.Var, IntervalSet] | Mapping[ir.Var, ir.Range]


def deduce_bound(var: ir.Var, cond: ir.PrimExpr, hint_map: Domains, relax_map: Domains) -> IntervalSet:
    """Return values of a variable for which a comparison holds.

    Parameters
    ----------
    cond : PrimExpr
        A comparison in which `var` occurs with a factor whose sign is known, inside divisions by numbers or not.
    hint_map, relax_map : mapping of Var to IntervalSet
        The values of other variables. The result holds for all of those in `relax_map`; those of `hint_map` stay in
        it as they are.

    Returns
    -------
    IntervalSet
        Nothing, ``[pos_inf, neg_inf]``, where no value is known for which the comparison holds.
    """
    analyzer = Analyzer()
    for v, domain in hint_map.items():
        if v not in relax_map:
            analyzer.bind(v, domain) if isinstance(domain, ir.Range) else analyzer.update(v, domain)
    if isinstance(cond, ir.EQ):
        below, above = (_at_least_zero(analyzer, var, d, relax_map) for d in (cond.b - cond.a, cond.a - cond.b))
        ends = [s.min_value if s.has_lower_bound else s.max_value for s in (below, above)]
        same = not (below.is_nothing() or above.is_nothing()) and analyzer.can_prove_equal(*ends)
        return IntervalSet.single_point(ends[0]) if same else IntervalSet.nothing()
    if isinstance(cond, (ir.LT, ir.LE)):
        difference = cond.b - cond.a - (1 if isinstance(cond, ir.LT) else 0)
    elif isinstance(cond, (ir.GT, ir.GE)):
        difference = cond.a - cond.b - (1 if isinstance(cond, ir.GT) else 0)
    else:
        return IntervalSet.nothing()
    return _at_least_zero(analyzer, var, difference, relax_map)


def _at_least_zero(analyzer: Analyzer, var: ir.Var, e: ir.PrimExpr, relax_map: Domains) -> IntervalSet:
    """Return values of a variable for which an expression is not negative."""
    inside = [d for d in ir.find(e, ir.FloorDiv) if isinstance(d.b, ir.IntImm) and _has(d.a, var)]
    if inside:  # solved for the outermost quotient first
        quotient = ir.Var("q", inside[0].dtype)
        e = ir.substitute(e, {inside[0]: quotient})
        found = IntervalSet.nothing() if _has(e, var) else _at_least_zero(analyzer, quotient, e, relax_map)
        return found if found.is_nothing() else _dividend(analyzer, var, inside[0], found, relax_map)
    parts = detect_linear_equation(e, [var])  # factor * var + rest >= 0
    factor = analyzer.simplify(parts[0]) if len(parts) == 2 else ir.const(0)
    relaxed = any(_has(factor, v) for v in relax_map)
    positive, negative = analyzer.can_prove(factor > 0), analyzer.can_prove(factor < 0)
    if relaxed or not (positive or negative):
        return IntervalSet.nothing()
    rest = analyzer.int_set(analyzer.simplify(parts[1]), dict(relax_map))
    if not rest.has_lower_bound:
        return IntervalSet.nothing()
    least = -rest.min_value
    quotient = Analyzer().simplify(ir.floordiv(least, factor))
    if negative:
        return IntervalSet(neg_inf(), quotient)
    whole = analyzer.can_prove(ir.floormod(least, factor).equal(0))
    if not whole:
        constant = isinstance(factor, ir.IntImm)
        quotient = ir.floordiv(least + (factor - 1), factor) if constant else quotient + 1
    return IntervalSet(Analyzer().simplify(quotient), pos_inf())


def _dividend(
    analyzer: Analyzer, var: ir.Var, quotient: ir.FloorDiv, found: IntervalSet, relax_map: Domains
) -> IntervalSet:
    """Return values of a variable for which a quotient by a number is in `found`, which has one end."""
    low, divisor = found.has_lower_bound, quotient.b
    end = found.min_value * divisor if low else (found.max_value + 1) * divisor
    least = low == ((ir.as_int(divisor) or 0) > 0)  # whether the dividend is no less than something, or no more
    strict = 0 if low else 1  # a quotient below the next number is one whose dividend has not reached its multiple
    difference = quotient.a - end - strict if least else end - quotient.a - strict
    return _at_least_zero(analyzer, var, difference, relax_map)


def _has(e: ir.PrimExpr, var: ir.Var) -> bool:
    return any(v is var for v in ir.walk(e))
