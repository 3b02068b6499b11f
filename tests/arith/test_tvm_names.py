"""Names and forms of arithmetic that TVM's programs use."""

import pytest

from weft import arith, ir, te, tir


def test_update_with_bounds():
    an, x, y = arith.Analyzer(), te.var("x"), te.var("y")
    an.update(x, arith.ConstIntBound(-9, 11))
    an.update(y, arith.ConstIntBound(4, 10))
    assert tuple(an.const_int_bound(x + y)) == (-5, 21)
    assert tuple(an.const_int_bound(x * 2 - y)) == (-28, 18)
    an.update(x, arith.ConstIntBound(0, 1), override=True)
    assert tuple(an.const_int_bound(x)) == (0, 1)
    z = te.var("z")
    an.update(z, arith.ConstIntBound(3, arith.ConstIntBound.POS_INF))
    assert an.can_prove(z >= 3) and not an.can_prove(z <= 100)


def test_update_with_a_residue():
    an, x = arith.Analyzer(), te.var("x")
    an.update(x, arith.ModularSet(4, 3))
    assert an.can_prove_equal(tir.floormod(x, 4), 3)


def test_ranges_and_intervals_of_numbers():
    ir.assert_structural_equal(ir.Range(5), ir.Range.from_min_extent(0, 5))
    assert ir.Range.from_min_extent(0, 3).extent.value == 3
    x = te.var("x")
    s = arith.Analyzer().int_set(x + 1, {x: arith.IntervalSet(0, 10)})
    assert (s.min_value.value, s.max_value.value) == (1, 11)
    assert arith.Analyzer().can_prove_equal(arith.IntSet.vector(tir.Ramp(x, 2, 4)).max_value, x + 6)
    down = arith.IntSet.vector(tir.Ramp(x, -1, 4))
    assert arith.Analyzer().can_prove_equal(down.min_value, x - 3)
    assert arith.IntSet.single_point(x).is_single_point


@pytest.mark.parametrize("factor", [-3, -1, 1, 2, 5])
@pytest.mark.parametrize("compare", [tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ])
def test_deduce_bound(factor, compare):
    """The result holds for all values of the others, and no larger constant interval does."""
    a, b = te.var("a"), te.var("b")
    cond = compare(a * factor + b, tir.const(7, "int32"))
    found = arith.deduce_bound(a, cond, {}, {b: arith.IntervalSet(0, 3)})
    holds = {
        LT: f
        for LT, f in zip(
            (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ),
            (int.__lt__, int.__le__, int.__gt__, int.__ge__, int.__eq__),
            strict=True,
        )
    }[compare]
    if compare is tir.EQ:  # no value of `a` for all of `b`
        assert found.is_nothing()
        return
    good = {x for x in range(-40, 41) if all(holds(x * factor + y, 7) for y in range(4))}
    low = found.min_value.value if found.has_lower_bound else -40
    high = found.max_value.value if found.has_upper_bound else 40
    assert set(range(low, high + 1)) == good


def test_deduce_bound_keeps_other_variables():
    a, b, c = te.var("a"), te.var("b"), te.var("c")
    found = arith.deduce_bound(a, a + b < c, {b: arith.IntervalSet(0, 3), c: arith.IntervalSet(0, 9)}, {})
    assert arith.Analyzer().can_prove_equal(found.max_value, c - b - 1)
    assert arith.deduce_bound(a, a * b < 3, {}, {}).is_nothing()
    assert arith.deduce_bound(a, tir.Not(a < 3), {}, {}).is_nothing()


def test_iter_map_over_ranges_of_numbers():
    x, y = te.var("x"), te.var("y")
    found = arith.detect_iter_map([x * 4 + y], {x: ir.Range.from_min_extent(0, 3), y: ir.Range.from_min_extent(0, 4)})
    assert len(found.indices) == 1
    assert not arith.detect_iter_map(
        [x * 4 + y], {x: ir.Range.from_min_extent(0, 3), y: ir.Range.from_min_extent(0, 5)}
    ).indices


def test_deduce_bound_through_divisions():
    """Every value that is given meets the condition, and those beside it do not."""
    a = te.var("a")
    for divisor in (8, -8):
        for compare, holds in ((tir.LT, int.__lt__), (tir.LE, int.__le__), (tir.GT, int.__gt__), (tir.GE, int.__ge__)):
            found = arith.deduce_bound(a, compare(tir.FloorDiv(a * 3 + 1, divisor) + 2, -3), {}, {})
            good = {x for x in range(-90, 91) if holds((x * 3 + 1) // divisor + 2, -3)}
            low = found.min_value.value if found.has_lower_bound else -90
            high = found.max_value.value if found.has_upper_bound else 90
            assert set(range(low, high + 1)) == good
    assert arith.deduce_bound(a, tir.FloorDiv(8, a) >= 2, {}, {}).is_nothing()
    assert arith.deduce_bound(a, tir.FloorDiv(a, 8) + tir.FloorDiv(a, 8) >= 2, {}, {}).is_nothing()


RESIDUES = [
    (lambda a, b: tir.truncmod(a * 4, 4), 4),
    (lambda a, b: tir.truncmod(a * 6 + 3, 4), 1),
    (lambda a, b: tir.truncdiv(b * 8, 4), 2),
    (lambda a, b: tir.truncdiv(a * 4 + 2, 4), 1),
    (lambda a, b: (a * 16 + b * 4) & 31, 4),
    (lambda a, b: (a * 6 + 3) & 7, 2),
    (lambda a, b: (a * 6 + 3) & 6, 1),
    (lambda a, b: tir.floordiv(a * 12 + b * 8 + 2, 4), 1),
    (lambda a, b: tir.floormod(a * 6 + 4, 9), 3),
]


@pytest.mark.parametrize(("expr", "least"), RESIDUES)
def test_residues_hold(expr, least):
    """All values of an expression are in its residue class, which is as narrow as it can be."""
    a, b = te.var("a"), te.var("b")
    coeff, base = arith.Analyzer().modular_set(expr(a, b))
    assert coeff == least
    for x, y in ((x, y) for x in range(-9, 10) for y in range(-9, 10)):
        assert (int(expr(tir.const(x), tir.const(y))) - base) % coeff == 0


def test_residues_of_facts_meet():
    a, an = te.var("a"), arith.Analyzer()
    for mod in (tir.truncmod, tir.floormod):
        with an.constraint_scope(mod(a, 3).equal(2)), an.constraint_scope(mod(a, 5).equal(3)):
            with an.constraint_scope(mod(a, 7).equal(2)):
                assert an.modular_set(a) == (105, 23)
        assert an.modular_set(a) == (1, 0)
    assert an.modular_set(tir.Let(te.var("b"), a * 10, a * 5 + 1)) == (5, 1)
