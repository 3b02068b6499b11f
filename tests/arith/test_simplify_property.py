"""Random expressions against brute force: same value, idempotent, a new node only where something changed."""

import functools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pairs import part
from weft import arith, ir, tir

X, Y, Z = ir.Var("x", "int32"), ir.Var("y", "int32"), ir.Var("z", "int32")
N = ir.SizeVar("n", "int32")
_NUMBER = {
    ir.Add: lambda a, b: a + b,
    ir.Sub: lambda a, b: a - b,
    ir.Mul: lambda a, b: a * b,
    ir.FloorDiv: lambda a, b: a // b,
    ir.FloorMod: lambda a, b: a % b,
    ir.Min: min,
    ir.Max: max,
    ir.LT: lambda a, b: a < b,
    ir.LE: lambda a, b: a <= b,
    ir.GT: lambda a, b: a > b,
    ir.GE: lambda a, b: a >= b,
    ir.EQ: lambda a, b: a == b,
    ir.NE: lambda a, b: a != b,
    ir.And: lambda a, b: a and b,
    ir.Or: lambda a, b: a or b,
}


def evaluate(e, env):
    """Evaluate with Python's integers, which is what the simplifier's algebra is about."""
    kind = type(e)
    if isinstance(e, (ir.Var, tir.BufferLoad)):
        return env[e]
    if kind is ir.IntImm:
        return e.value
    if kind is ir.Not:
        return not evaluate(e.a, env)
    if kind is ir.Select:
        return evaluate(e.true_value if evaluate(e.condition, env) else e.false_value, env)
    if kind is ir.CallIntrin:
        return evaluate(e.args[1] if evaluate(e.args[0], env) else e.args[2], env)
    return _NUMBER[kind](evaluate(e.a, env), evaluate(e.b, env))


leaf = st.one_of(st.sampled_from([X, Y, Z, N]), st.integers(-9, 9).map(ir.as_expr))
positive = st.one_of(st.integers(1, 8).map(ir.as_expr), st.just(N))


def grow(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(st.sampled_from([ir.Add, ir.Sub, ir.Mul, ir.Min, ir.Max, ir.Add, ir.Sub]), pair).map(
            lambda t: t[0](*t[1])
        ),
        st.tuples(inner, st.integers(-6, 8)).map(lambda t: ir.Mul(t[0], ir.as_expr(t[1]))),
        st.tuples(st.sampled_from([ir.FloorDiv, ir.FloorMod]), inner, positive).map(lambda t: t[0](t[1], t[2])),
        st.tuples(st.sampled_from([ir.LT, ir.LE, ir.EQ, ir.NE]), pair, pair).map(
            lambda t: ir.Select(t[0](*t[1]), *t[2])
        ),
    )


ints = st.recursive(leaf, grow, max_leaves=9)
compare = st.tuples(st.sampled_from([ir.LT, ir.LE, ir.GT, ir.GE, ir.EQ, ir.NE]), ints, ints).map(
    lambda t: t[0](t[1], t[2])
)
bools = st.recursive(
    compare,
    lambda b: st.one_of(
        st.tuples(st.sampled_from([ir.And, ir.Or]), b, b).map(lambda t: t[0](t[1], t[2])), b.map(ir.Not)
    ),
    max_leaves=3,
)
DOMAIN = {X: (0, 5), Y: (-3, 4), N: (1, 6)}


def fresh():
    an = arith.Analyzer()
    for v, (lo, extent) in DOMAIN.items():
        an.bind(v, ir.Range.from_min_extent(ir.as_expr(lo), ir.as_expr(extent)))
    an.bind(Z, ir.Range.from_min_extent(ir.as_expr(0), N))
    return an


def points():
    for x in (0, 1, 3, 4):
        for y in (-3, -1, 0):
            for size in (1, 2, 5, 6):
                for z in {0, size // 2, size - 1}:
                    yield {X: x, Y: y, Z: z, N: size}


POINTS = list(points())


def check(e):
    an = fresh()
    s = an.simplify(e)
    for env in POINTS:
        assert evaluate(s, env) == evaluate(e, env), (e, s, env)
    again = fresh().simplify(s)
    assert again is s, (s, again)
    return an, s


@settings(max_examples=part(300), deadline=None)
@given(ints)
def test_integers_keep_their_value_and_bounds(e):
    an, _ = check(e)
    lo, hi = an.const_int_bound(e)
    coeff, base = an.modular_set(e)
    for env in POINTS:
        v = evaluate(e, env)
        assert lo <= v <= hi
        assert v == base if coeff == 0 else (v - base) % coeff == 0


large = st.sampled_from([3, 2**16, 2**30, 2**31 - 1, -(2**31)]).map(ir.as_expr)
shifted = st.builds(tir.shift_left, st.sampled_from([X, Y]), st.integers(0, 31).map(ir.as_expr))


@settings(max_examples=part(200), deadline=None)
@given(st.recursive(leaf | large | shifted, grow, max_leaves=9))
def test_numbers_stay_in_their_type(e):
    assert tir.analysis.verify_well_formed(tir.PrimFunc([X, Y, Z, N], tir.Evaluate(fresh().simplify(e))))


@settings(max_examples=part(200), deadline=None)
@given(bools)
def test_conditions_keep_their_value(e):
    check(e)


@settings(max_examples=part(150), deadline=None)
@given(bools, ints)
def test_constraints_are_only_used_where_they_hold(condition, e):
    an = fresh()
    with an.constraint_scope(condition):
        s = an.simplify(e)
        lo, hi = an.const_int_bound(e)
    for env in POINTS:
        if evaluate(condition, env):
            assert evaluate(s, env) == evaluate(e, env), (condition, e, s, env)
            assert lo <= evaluate(e, env) <= hi


@settings(max_examples=part(150), deadline=None)
@given(ints)
def test_intervals_hold_all_values(e):
    an = arith.Analyzer()
    an.bind(N, ir.Range.from_min_extent(ir.as_expr(1), ir.as_expr(6)))
    dom = {
        v: ir.Range.from_min_extent(ir.as_expr(lo), ir.as_expr(extent))
        for v, (lo, extent) in DOMAIN.items()
        if v is not N
    }
    dom[Z] = ir.Range.from_min_extent(ir.as_expr(0), N)
    s = an.int_set(e, dom)
    for env in POINTS:
        if s.has_lower_bound:
            assert evaluate(s.min_value, env) <= evaluate(e, env)
        if s.has_upper_bound:
            assert evaluate(e, env) <= evaluate(s.max_value, env)


W, M = tir.BufferLoad(tir.decl_buffer((1,), "int64"), (ir.int64(0),)), ir.SizeVar("m", "int64")
near = st.builds(lambda a, b: a + b, st.sampled_from([0, 2**63 - 9, -(2**63) + 9, 2**61, -(2**60)]), st.integers(-8, 8))
far = st.recursive(
    st.one_of(st.just(W), near.map(ir.int64)),
    lambda inner: st.one_of(
        st.builds(lambda kind, a, b: kind(a, b), st.sampled_from([ir.Add, ir.Sub, ir.Min, ir.Max]), inner, inner),
        st.builds(
            lambda kind, a, c: kind(a, ir.int64(c)),
            st.sampled_from([ir.Mul, ir.FloorDiv, ir.FloorMod]),
            inner,
            st.sampled_from([2, 3, 8, 2**20]),
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=part(400), deadline=None)
@given(st.sampled_from([ir.LT, ir.LE, ir.GT, ir.GE, ir.EQ, ir.NE]), far, near, st.lists(near, min_size=20, max_size=20))
def test_comparisons_hold_at_the_ends_of_a_type(kind, e, limit, values):
    s = arith.Analyzer().simplify(kind(e, ir.int64(limit)))
    parts = [n for n in ir.walk(e) if isinstance(n, ir.BinaryOp)]
    for env in ({W: v} for v in values):
        if all(-(2**63) <= evaluate(n, env) < 2**63 for n in parts):
            assert evaluate(s, env) == _NUMBER[kind](evaluate(e, env), limit), (e, limit, s, env)


steps = st.tuples(st.sampled_from([ir.Max, ir.Min, ir.Add, ir.Sub]), st.sampled_from([M, ir.int64(7), ir.Min(M, W)]))


@settings(max_examples=part(400), deadline=None)
@given(st.lists(steps, min_size=2, max_size=5), st.lists(near, min_size=20, max_size=20))
def test_limited_data_stay_limited(taken, values):
    e = functools.reduce(lambda x, step: step[0](x, step[1]), taken, W)
    s = arith.Analyzer().simplify(e)
    for env in ({W: v, M: size} for v in values for size in (0, 3)):
        if all(-(2**63) <= evaluate(n, env) < 2**63 for n in ir.walk(e) if isinstance(n, ir.BinaryOp)):
            with np.errstate(over="ignore"):  # sums that wrap, and wrap back
                assert evaluate(s, {x: np.int64(v) for x, v in env.items()}) == evaluate(e, env), (e, s, env)
