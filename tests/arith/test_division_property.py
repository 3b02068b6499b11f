"""Divisions of every kind by numbers of either sign, and choices, against brute force."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arith import test_simplify_property as base
from tests.arith.test_simplify_property import X, Y
from tests.pairs import part
from weft import arith, ir

M = ir.Var("m", "int32")
"""A variable that is below zero."""
DOMAIN = {X: (0, 6), Y: (-5, 9), M: (-3, 3)}
POINTS = [{X: x, Y: y, M: m} for x in range(6) for y in range(-5, 4) for m in (-3, -2, -1)]


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


base._NUMBER[ir.Div] = truncated
base._NUMBER[ir.Mod] = lambda a, b: a - b * truncated(a, b)

numbers = st.integers(-9, 9).map(ir.as_expr)
divisors = st.one_of(st.integers(-7, 7).filter(bool).map(ir.as_expr), st.just(M))
leaf = st.one_of(st.sampled_from([X, Y, M]), numbers)


def grow(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(st.sampled_from([ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod]), inner, divisors).map(
            lambda t: t[0](t[1], t[2])
        ),
        st.tuples(st.sampled_from([ir.Add, ir.Sub, ir.Min, ir.Max]), pair).map(lambda t: t[0](*t[1])),
        st.tuples(inner, numbers).map(lambda t: ir.Mul(*t)),
        st.tuples(st.sampled_from([ir.LT, ir.LE, ir.GE, ir.EQ]), pair, pair).map(
            lambda t: ir.Select(t[0](*t[1]), *t[2])
        ),
        st.tuples(st.sampled_from([ir.LT, ir.GE]), pair, pair).map(lambda t: ir.if_then_else(t[0](*t[1]), *t[2])),
    )


ints = st.recursive(leaf, grow, max_leaves=8)


def fresh():
    an = arith.Analyzer()
    for v, (low, extent) in DOMAIN.items():
        an.bind(v, ir.Range.from_min_extent(ir.as_expr(low), ir.as_expr(extent)))
    return an


@settings(max_examples=part(300), deadline=None)
@given(ints)
def test_values_bounds_and_residues(e):
    an = fresh()
    s, c, r = an.simplify(e), an.canonical_simplify(e), an.rewrite_simplify(e)
    low, high = an.const_int_bound(e)
    coeff, rest = an.modular_set(e)
    for env in POINTS:
        value = base.evaluate(e, env)
        for other in (s, c, r):
            assert base.evaluate(other, env) == value, (e, other, env)
        assert low <= value <= high, (e, env, low, high)
        assert value == rest if coeff == 0 else (value - rest) % coeff == 0, (e, env)


@settings(max_examples=part(200), deadline=None)
@given(st.sampled_from([ir.LT, ir.LE, ir.GE, ir.EQ]), ints, ints)
def test_what_is_proven_holds(kind, a, b):
    an = fresh()
    condition = kind(a, b)
    proven, equal = an.can_prove(condition), an.can_prove_equal(a, b)
    for env in POINTS:
        assert not proven or base.evaluate(condition, env), (condition, env)
        assert not equal or base.evaluate(a, env) == base.evaluate(b, env), (a, b, env)


@settings(max_examples=part(200), deadline=None)
@given(ints)
def test_sets_hold_all_values(e):
    domain = {v: ir.Range.from_min_extent(ir.as_expr(low), ir.as_expr(extent)) for v, (low, extent) in DOMAIN.items()}
    found = arith.Analyzer().int_set(e, domain)
    low, high = (arith.Analyzer().simplify(x) if hasattr(x, "dtype") else x for x in (found.min_value, found.max_value))
    for env in POINTS:
        value = base.evaluate(e, env)
        assert not hasattr(low, "value") or low.value <= value, (e, env, low)
        assert not hasattr(high, "value") or value <= high.value, (e, env, high)
