"""Iteration maps and linear solving against brute force over the iterators."""

import itertools

import pytest

from weft.arith import (
    Analyzer,
    detect_clip_bound,
    detect_iter_map,
    detect_linear_equation,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    solve_linear_equations,
    solve_linear_inequalities,
)
from weft.ir import TRUE, IntImm, Range, SizeVar, Var, all_of, as_expr, substitute

x, y, z = (Var(s, "int32") for s in "xyz")
n = SizeVar("n", "int32")
an = Analyzer()


def dom(**extents):
    names = {"x": x, "y": y, "z": z}
    return {names[k]: Range.from_min_extent(as_expr(0), as_expr(v)) for k, v in extents.items()}


def value(e, env):
    s = Analyzer().simplify(substitute(e, {v: as_expr(c) for v, c in env.items()}))
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
    found = detect_iter_map(indices, iters, TRUE, "bijective")
    if bijective:
        assert found.indices, found.errors
    if surjective is not None:
        assert bool(detect_iter_map(indices, iters, TRUE, "surjective").indices) == surjective
    if not found.indices:
        assert found.errors
        return
    outputs = [Var(f"o{i}", "int32") for i in range(len(indices))]
    inverse = inverse_affine_iter_map(found.indices, outputs)
    for point in itertools.product(*[range(d.extent.value) for d in iters.values()]):
        env = dict(zip(iters, point, strict=True))
        results = [value(i, env) for i in indices]
        assert [value(normalize_iter_map_to_expr(s), env) for s in found.indices] == results
        back = dict(zip(outputs, results, strict=True))
        assert {v: value(inverse[v], back) for v in iters} == env


def test_symbolic_and_predicated_maps():
    iters = {x: Range.from_min_extent(as_expr(0), n), y: Range.from_min_extent(as_expr(0), as_expr(8))}
    found = detect_iter_map([x * 8 + y], iters, TRUE, "bijective")
    assert found.indices
    iters = {x: Range.from_min_extent(as_expr(0), (n + 7) // 8), y: Range.from_min_extent(as_expr(0), as_expr(8))}
    found = detect_iter_map([x * 8 + y], iters, x * 8 + y < n, "bijective")
    assert found.indices and an.can_prove_equal(found.indices[0].args[0].extent, n)
    assert iter_map_simplify([(x * 8 + y) // 8, (x * 8 + y) % 8], iters) == [x, y]


def test_regions():
    iters = dom(x=3, y=4)
    region = [Range.from_min_extent(x * 4 + y, as_expr(1))]
    (s,) = estimate_region_strict_bound(region, iters, TRUE, Analyzer())
    assert (s.min_value.value, s.max_value.value) == (0, 11)
    assert estimate_region_strict_bound([Range.from_min_extent(x * 5 + y, as_expr(1))], iters, TRUE, Analyzer()) is None
    assert (
        estimate_region_strict_bound(
            [Range.from_min_extent(x, as_expr(1)), Range.from_min_extent(x, as_expr(1))], iters, TRUE, Analyzer()
        )
        is None
    )
    (s,) = estimate_region_upper_bound(region, iters, x * 4 + y < 10, Analyzer())
    assert s.max_value.value == 9
    (s,) = estimate_region_upper_bound([Range.from_min_extent(x * 5 + y, as_expr(2))], iters, TRUE, Analyzer())
    assert (s.min_value.value, s.max_value.value) == (0, 14)


def test_linear():
    a, b, base = detect_linear_equation(x * 3 + y * n + 7, [x, y])
    assert a.value == 3 and b is n and base.value == 7
    assert detect_linear_equation(x * y, [x, y]) == []
    assert detect_linear_equation(x // 2 + y, [x, y]) == []
    low, high = detect_clip_bound(all_of(x >= 2, x < n), [x])
    assert low.value == 2 and an.can_prove_equal(high, n - 1)
    solution = solve_linear_equations([(x + y).equal(10), (x - y).equal(as_expr(2) + n * 0)], [x, y])
    assert solution is not None and solution[x].value == 6 and solution[y].value == 4
    assert solve_linear_equations([(x * 2).equal(n * 2), x.equal(n + 1)], [x]) is None
    bounds = solve_linear_inequalities([x + y <= 5, x >= 1, y >= 2], [x, y])
    assert bounds[y][0].value == 2 and bounds[y][1].value == 4
