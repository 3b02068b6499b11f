"""Iteration maps and linear solving against brute force over the iterators."""

import itertools
import random

import pytest

from weft import arith, ir
from weft.ir import TRUE, IntImm, Min, Not, Range, SizeVar, Var, all_of, as_expr, substitute

x, y, z = (Var(s, "int32") for s in "xyz")
n = SizeVar("n", "int32")
an = arith.Analyzer()


def dom(**extents):
    names = {"x": x, "y": y, "z": z}
    return {names[k]: Range.from_min_extent(as_expr(0), as_expr(v)) for k, v in extents.items()}


def value(e, env):
    s = arith.Analyzer().simplify(substitute(e, {v: as_expr(c) for v, c in env.items()}))
    assert isinstance(s, IntImm), s
    return s.value


CASES = [
    ([x * 4 + y], dom(x=3, y=4), True, True),
    ([(x * 4 + y) // 2, (x * 4 + y) % 2], dom(x=3, y=4), True, True),
    ([x // 4, x % 4], dom(x=12), True, True),
    ([x % 4], dom(x=12), False, True),
    ([x // 4, x // 4], dom(x=12), False, False),
    ([x * 5 + y], dom(x=3, y=4), False, None),
    ([(x * 4 + y) // 8, (x * 4 + y) % 8 + 3], dom(x=4, y=4), True, True),
    ([y, x], dom(x=3, y=4), True, True),
    ([x], dom(x=3, y=4), False, True),
    ([(x * 6 + y * 2 + z) // 4, (x * 6 + y * 2 + z) % 4], dom(x=2, y=3, z=2), True, True),
    ([x + y], dom(x=3, y=4), False, False),
    ([x * y], dom(x=3, y=4), False, False),
]


@pytest.mark.parametrize(("indices", "iters", "bijective", "surjective"), CASES)
def test_detect_and_invert(indices, iters, bijective, surjective):
    found = arith.detect_iter_map(indices, iters, TRUE, "bijective")
    if bijective:
        assert found.indices, found.errors
    if surjective is not None:
        assert bool(arith.detect_iter_map(indices, iters, TRUE, "surjective").indices) == surjective
    if not found.indices:
        assert found.errors
        return
    outputs = [Var(f"o{i}", "int32") for i in range(len(indices))]
    inverse = arith.inverse_affine_iter_map(found.indices, outputs)
    for point in itertools.product(*[range(d.extent.value) for d in iters.values()]):
        env = dict(zip(iters, point, strict=True))
        results = [value(i, env) for i in indices]
        assert [value(arith.normalize_iter_map_to_expr(s), env) for s in found.indices] == results
        back = dict(zip(outputs, results, strict=True))
        assert {v: value(inverse[v], back) for v in iters} == env


def test_symbolic_and_predicated_maps():
    iters = {x: Range.from_min_extent(as_expr(0), n), y: Range.from_min_extent(as_expr(0), as_expr(8))}
    found = arith.detect_iter_map([x * 8 + y], iters, TRUE, "bijective")
    assert found.indices
    iters = {x: Range.from_min_extent(as_expr(0), (n + 7) // 8), y: Range.from_min_extent(as_expr(0), as_expr(8))}
    found = arith.detect_iter_map([x * 8 + y], iters, x * 8 + y < n, "bijective")
    assert found.indices and an.can_prove_equal(found.indices[0].args[0].extent, n)
    assert arith.iter_map_simplify([(x * 8 + y) // 8, (x * 8 + y) % 8], iters) == [x, y]


def test_regions():
    iters = dom(x=3, y=4)
    region = [Range.from_min_extent(x * 4 + y, as_expr(1))]
    (s,) = arith.estimate_region_strict_bound(region, iters, TRUE, arith.Analyzer())
    assert (s.min_value.value, s.max_value.value) == (0, 11)
    for starts in ([x * 5 + y], [x, x]):
        region = [Range.from_min_extent(e, as_expr(1)) for e in starts]
        assert arith.estimate_region_strict_bound(region, iters, TRUE, arith.Analyzer()) is None
    region = [Range.from_min_extent(x * 4 + y, as_expr(1))]
    (s,) = arith.estimate_region_upper_bound(region, iters, x * 4 + y < 10, arith.Analyzer())
    assert s.max_value.value == 9
    (s,) = arith.estimate_region_upper_bound(
        [Range.from_min_extent(x * 5 + y, as_expr(2))], iters, TRUE, arith.Analyzer()
    )
    assert (s.min_value.value, s.max_value.value) == (0, 14)


def test_linear():
    a, b, base = arith.detect_linear_equation(x * 3 + y * n + 7, [x, y])
    assert a.value == 3 and b is n and base.value == 7
    assert arith.detect_linear_equation(x * y, [x, y]) == []
    assert arith.detect_linear_equation(x // 2 + y, [x, y]) == []
    low, high = arith.detect_clip_bound(all_of(x >= 2, x < n), [x])
    assert low.value == 2 and an.can_prove_equal(high, n - 1)
    low, high, other, _ = arith.detect_clip_bound(all_of(Not(x > n), Min(x, y) > 3), [x, y])
    assert low.value == 4 and high is n and other.value == 4
    solution = arith.solve_linear_equations([(x + y).equal(10), (x - y).equal(as_expr(2) + n * 0)], [x, y])
    assert solution is not None and solution[x].value == 6 and solution[y].value == 4
    assert arith.solve_linear_equations([(x * 2).equal(n * 2), x.equal(n + 1)], [x]) is None
    bounds = arith.solve_linear_inequalities([x + y <= 5, x >= 1, y >= 2], [x, y])
    assert bounds[y][0].value == 2 and bounds[y][1].value == 4


def test_a_stride_that_may_be_zero_is_no_bijection():
    i, j, n = (Var(name, "int32") for name in "ijn")

    def fits(e, level="bijective", **extents):
        domain = {v: Range(0, extents[v.name]) for v in (i, j) if v.name in extents}
        return bool(arith.detect_iter_map([e], domain, True, level).indices)

    assert not fits(i * (n - n), i=4) and not fits(i * n, i=4) and not fits(i * n, "surjective", i=4)
    assert fits(i * 3, i=4) and fits(i * n + j, i=4, j=n) and fits(i * n, i=n) and fits(i * n, "nocheck", i=4)
    assert not fits(i * (n - n) + j, i=4, j=5) and fits(i * (n - n) + j, i=1, j=5)


@pytest.mark.parametrize("seed", range(60))
def test_what_regions_cover_under_conditions(seed):
    r = random.Random(seed)
    iters = dom(x=r.randint(1, 5), y=r.randint(1, 4), z=2)
    inner = r.choice([x, x * 4 + y, y - x, x * 2 - y * 8])
    start, extent = inner * r.choice([-4, -1, 1, 3]) + r.randint(-9, 9), r.randint(1, 9)
    about = r.choice([inner, inner, inner * 3, x + y, y, z])
    conditions = [about < r.randint(-2, 12), 1 - about <= r.randint(0, 6)][: r.randint(0, 2)]
    predicate = all_of(*conditions) if conditions else TRUE
    found = arith.estimate_region_lower_bound([Range.from_min_extent(start, as_expr(extent))], iters, predicate)
    if found is None:
        return
    points = [
        {v: k for v, k in zip(iters, at, strict=True)}
        for at in itertools.product(*(range(d.extent.value) for d in iters.values()))
    ]
    covered = {value(start, p) + k for p in points if value(predicate, p) for k in range(extent)}
    low, high = value(found[0].min_value, {}), value(found[0].max_value, {})
    assert covered == set(range(low, high + 1)), (start, extent, predicate)


def test_most_conditions_on_what_runs_are_followed():
    h = Var("h", "int32")
    start = h * 8 + x * 5 + y
    iters, region = dom(x=2, y=5), [Range.from_min_extent(start, as_expr(1))]
    (s,) = arith.estimate_region_lower_bound(region, iters, all_of(start >= 1, start < 224))
    assert [value(e, {h: 0}) for e in (s.min_value, s.max_value)] == [1, 9]
    assert [value(e, {h: 27}) for e in (s.min_value, s.max_value)] == [216, 223]
    assert arith.estimate_region_lower_bound(region, iters, h * 8 + y * 2 + x < 224) is None


def test_loops_whose_length_is_a_choice_of_choices_are_used_whole():
    """Broadcast lengths, of which simplifying writes another form."""
    t, k = SizeVar("t", "int64"), Var("k", "int64")

    def chosen(size, other):
        return ir.Select(ir.equal(size, ir.int64(1)), other, size)

    inner = chosen(t - ir.min_(ir.int64(1), t) + 1, ir.min_(t, ir.int64(512)))
    length, analyzer = chosen(inner, t), arith.Analyzer()
    assert analyzer.can_prove_equal(analyzer.simplify(length), length)
    assert arith.detect_iter_map([k], {k: Range.from_min_extent(ir.int64(0), length)}, True, "bijective").indices
