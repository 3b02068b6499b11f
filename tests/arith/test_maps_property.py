"""Random index maps with and without predicates, equations and inequalities, against brute force."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arith.test_simplify_property import evaluate
from tests.pairs import part
from weft import arith
from weft.ir import EQ, GE, GT, LE, LT, NE, TRUE, Max, Min, Not, Range, Var, all_of, as_expr

V = [Var(n, "int64") for n in "xyz"]


@st.composite
def maps(draw):
    """Fuse and split iterators a few times; some parts are dropped, scaled or moved, some bounded by a predicate."""
    extents = [draw(st.integers(1, 6)) for _ in V]
    parts = list(zip(V, extents, strict=True))
    predicate = TRUE
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["fuse", "split", "drop", "guard", "swap"]))
        at = draw(st.integers(0, max(0, len(parts) - 1)))
        if kind == "fuse" and len(parts) > 1:
            (a, n), (b, m) = parts.pop(at), parts.pop(at % len(parts))
            parts.append((a * m + b, n * m))
        elif kind == "split" and parts:
            e, n = parts.pop(at)
            factor = draw(st.sampled_from([f for f in range(1, n + 1) if n % f == 0] * 3 + [2, 3]))
            parts += [(e // factor, -(-n // factor)), (e % factor, min(n, factor))]
        elif kind == "drop" and len(parts) > 1:
            parts.pop(at)
        elif kind == "guard" and parts:
            e, n = parts[at]
            limit = draw(st.integers(1, n))
            predicate = all_of(predicate, e < limit)
            parts[at] = (e, limit)
        elif kind == "swap":
            parts.reverse()
    indices = []
    for e, _ in parts:
        scale, shift = draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([0, 0, 3]))
        indices.append(e * scale + shift)
    return indices, dict(zip(V, extents, strict=True)), predicate


def points(extents):
    for values in itertools.product(*[range(n) for n in extents.values()]):
        yield dict(zip(extents, values, strict=True))


@settings(max_examples=part(250), deadline=None)
@given(maps(), st.sampled_from(["bijective", "surjective"]))
def test_index_maps(case, level):
    indices, extents, predicate = case
    ranges = {v: Range(0, as_expr(n, "int64")) for v, n in extents.items()}
    simple = arith.iter_map_simplify(indices, ranges, predicate)
    found = arith.detect_iter_map(indices, ranges, predicate, level)
    inside = [env for env in points(extents) if evaluate(predicate, env)]
    for env in inside:
        assert [evaluate(e, env) for e in simple] == [evaluate(e, env) for e in indices], (indices, env)
    if not found.indices:
        assert found.errors
        return
    images = []
    for env in inside:
        images.append(tuple(evaluate(e, env) for e in indices))
        assert tuple(evaluate(arith.normalize_iter_map_to_expr(s), env) for s in found.indices) == images[-1]
    if level == "bijective":
        assert len(set(images)) == len(inside), "two points have one image"
        outputs = [Var(f"o{i}", "int64") for i in range(len(indices))]
        inverse = arith.inverse_affine_iter_map(found.indices, outputs)
        for env, image in zip(inside, images, strict=True):
            back = dict(zip(outputs, image, strict=True))
            for v, n in extents.items():
                assert n == 1 or evaluate(inverse[v], back) == env[v], (indices, env)


@settings(max_examples=part(250), deadline=None)
@given(maps())
def test_what_is_said_to_cover_a_box_does(case):
    """Without a predicate each index takes, together with the others, every value that its sum of iterators says."""
    indices, extents, _ = case
    found = arith.detect_iter_map(indices, {v: Range(0, as_expr(n, "int64")) for v, n in extents.items()}).indices
    if not found:
        return
    an = arith.Analyzer()
    sets = []
    for total in found:
        values = [0]
        for s in total.args:
            scale, extent = an.simplify(s.scale).value, an.simplify(s.extent).value
            values = [v + scale * i for v in values for i in range(extent)]
        sets.append([v + an.simplify(total.base).value for v in values])
    images = {tuple(evaluate(e, env) for e in indices) for env in points(extents)}
    assert images == set(itertools.product(*sets)), indices


coefficients = st.integers(-4, 4)
linear = st.tuples(coefficients, coefficients, coefficients, st.integers(-9, 9)).map(
    lambda t: V[0] * t[0] + V[1] * t[1] + V[2] * t[2] + t[3]
)
BOX = [dict(zip(V, p, strict=True)) for p in itertools.product(range(-3, 4), repeat=3)]
RANGES = {v: Range(as_expr(-3, "int64"), as_expr(4, "int64")) for v in V}


@settings(max_examples=part(200), deadline=None)
@given(st.lists(st.tuples(linear, linear).map(lambda t: EQ(*t)), min_size=1, max_size=3), st.booleans())
def test_equations(equations, bounded):
    solved = arith.solve_linear_equations(equations, V, RANGES if bounded else None)
    holds = [env for env in BOX if all(evaluate(e, env) for e in equations)]
    if solved is None:
        assert not holds, equations
        return
    for env in holds:
        for v, e in solved.items():
            assert evaluate(e, env) == env[v], (equations, solved)


@settings(max_examples=part(200), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([LT, LE, GE, EQ]), linear, linear).map(lambda t: t[0](*t[1:])), min_size=1, max_size=4
    ),
    st.booleans(),
)
def test_inequalities(conditions, bounded):
    bounds = arith.solve_linear_inequalities(conditions, V, RANGES if bounded else None)
    for env in BOX:
        if not all(evaluate(c, env) for c in conditions):
            continue
        for v, (low, high) in bounds.items():
            assert low is None or evaluate(low, env) <= env[v], (conditions, v, low, env)
            assert high is None or env[v] <= evaluate(high, env), (conditions, v, high, env)


def _applied(kind, a, b):
    return kind(a, b)


extreme = st.builds(_applied, st.sampled_from([Min, Max]), linear, linear)
compared = st.builds(_applied, st.sampled_from([LT, LE, GT, GE, NE]), linear | extreme, linear | extreme)


@settings(max_examples=part(200), deadline=None)
@given(st.lists(compared | compared.map(Not), max_size=3))
def test_clip_bounds(conditions):
    found = arith.detect_clip_bound(all_of(*conditions, TRUE), V)
    for v, low, high in zip(V, found[::2], found[1::2], strict=False):
        for env in BOX:
            if all(evaluate(c, env) for c in conditions):
                assert not hasattr(low, "dtype") or evaluate(low, env) <= env[v], (conditions, low)
                assert not hasattr(high, "dtype") or env[v] <= evaluate(high, env), (conditions, high)


@settings(max_examples=part(200), deadline=None)
@given(st.sampled_from([LT, LE, GE]), linear, linear)
def test_deduced_bounds_are_sufficient(kind, a, b):
    condition = kind(a, b)
    others = {v: Range(as_expr(-3, "int64"), as_expr(4, "int64")) for v in V[1:]}
    found = arith.deduce_bound(V[0], condition, others, others)
    if found.is_nothing():
        return
    for env in BOX:
        low, high = found.min_value, found.max_value
        above = not hasattr(low, "dtype") or not _finite(low) or evaluate(low, env) <= env[V[0]]
        below = not hasattr(high, "dtype") or not _finite(high) or env[V[0]] <= evaluate(high, env)
        if above and below:
            assert evaluate(condition, env), (condition, found, env)


def _finite(e):
    return "inf" not in str(e)
