"""What programs for TVM ask an analyzer and the iterator maps."""

import pytest

from weft import arith, ir


def test_a_clone_learns_on_its_own():
    x, y, an = ir.Var("x"), ir.Var("y"), arith.Analyzer()
    an.bind(x, ir.Range(0, 8))
    twin = an.clone()
    twin.bind(y, ir.Range(0, 4))
    assert twin.can_prove(x * 4 + y < 32) and not an.can_prove(x * 4 + y < 32)
    with an.constraint_scope(x > 5):
        assert an.can_prove(x >= 6) and not twin.can_prove(x >= 6)
        assert an.clone().can_prove(x >= 6)


def test_what_is_bound():
    x, y, an = ir.Var("x"), ir.Var("y"), arith.Analyzer()
    an.update(x, arith.ConstIntBound(-3, 5))
    assert an.const_int_bound_is_bound(x) and not an.const_int_bound_is_bound(y)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (lambda x, y: x + 1, lambda x, y: x + 1, arith.CompareResult.EQ),
        (lambda x, y: x, lambda x, y: x + 2, arith.CompareResult.LT),
        (lambda x, y: x + 2, lambda x, y: x, arith.CompareResult.GT),
        (lambda x, y: x, lambda x, y: y, arith.CompareResult.LE),
        (lambda x, y: y + 1, lambda x, y: x + 1, arith.CompareResult.GE),
        (lambda x, y: x * 2, lambda x, y: y * 2 + 1 - 2 * ir.Var("z"), arith.CompareResult.NE),
        (lambda x, y: x, lambda x, y: ir.Var("z"), arith.CompareResult.UNKNOWN),
    ],
)
def test_comparisons(left, right, expected):
    x, y, an = ir.Var("x"), ir.Var("y"), arith.Analyzer()
    with an.constraint_scope(x <= y):
        assert an.try_compare(left(x, y), right(x, y)) is expected


def test_proofs_take_a_strength():
    x = ir.Var("x")
    assert arith.Analyzer().can_prove(x < x + 1, arith.ProofStrength.SYMBOLIC_BOUND)


def test_iterator_maps_use_what_an_analyzer_knows():
    x, n, an = ir.Var("x"), ir.Var("n"), arith.Analyzer()
    an.bind(n, ir.Range(16, 1))
    assert arith.detect_iter_map([x // n], {x: ir.Range(0, 32)}, True, "surjective", True, an).indices
    assert [str(e) for e in arith.iter_map_simplify([x % n], {x: ir.Range(0, 8)}, analyzer=an)] == ["x"]
    assert arith.IterMapLevel.from_str("Bijective") is arith.IterMapLevel.Bijective


def test_sums_keep_in_their_base_what_is_no_iterator():
    x, y, z = ir.Var("x"), ir.Var("y"), ir.Var("z")
    found = arith.normalize_to_iter_sum(x + y * 16 + z + 3, {x: ir.Range(0, 16), y: ir.Range(0, 4)})
    assert [int(s.scale) for s in found.args] == [16, 1]
    assert arith.Analyzer().can_prove_equal(found.base, z + 3)
    odd = arith.normalize_to_iter_sum(x * x + y, {x: ir.Range(0, 16), y: ir.Range(0, 4)})
    assert len(odd.args) == 1
    assert arith.Analyzer().can_prove_equal(arith.normalize_iter_map_to_expr(odd), x * x + y)


def test_regions_without_an_analyzer():
    x = ir.Var("x")
    (dom,) = arith.estimate_region_lower_bound([ir.Range.from_min_extent(x * 4, 4)], {x: ir.Range(0, 8)}, True)
    assert (int(dom.min_value), int(dom.max_value)) == (0, 31)
