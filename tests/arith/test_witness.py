"""Witnesses refute what is false for some values, never what holds, and hold while facts come and go."""

import itertools
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import arith, ir
from weft.arith import prove
from weft.arith.form import poly_of
from weft.arith.witness import is_refuted


def refuted(an: arith.Analyzer, expr) -> bool:
    return is_refuted(an.context, poly_of(an.context, expr))


def test_a_guard_that_some_values_break_is_refuted():
    an, n, i, j = arith.Analyzer(), ir.SizeVar("n"), ir.Var("i"), ir.Var("j")
    an.bind(i, ir.Range.from_min_extent(0, ir.floordiv(n + 7, 8)))
    an.bind(j, ir.Range.from_min_extent(0, 8))
    assert refuted(an, n - 1 - i * 8 - j)
    assert refuted(an, i * 8 + j - n)
    assert not refuted(an, n + 7 - i * 8 - j)


def test_facts_in_scope_count_and_are_forgotten_after_it():
    an, n, i = arith.Analyzer(), ir.SizeVar("n"), ir.Var("i")
    an.bind(i, ir.Range.from_min_extent(0, 64))
    assert refuted(an, n - 1 - i)
    with an.constraint_scope(i < n):
        assert not refuted(an, n - 1 - i)
        with an.constraint_scope(i > 3):
            assert not refuted(an, i - 4)
            assert refuted(an, i - 60)
        assert refuted(an, i - 4)
    assert refuted(an, n - 1 - i)


def test_another_range_of_a_variable_is_seen():
    an, i = arith.Analyzer(), ir.Var("i")
    an.bind(i, ir.Range.from_min_extent(0, 4))
    assert not refuted(an, 3 - i)
    an.bind(i, ir.Range.from_min_extent(0, 9), allow_override=True)
    assert refuted(an, 3 - i)
    an.bind(i, 2, allow_override=True)
    assert not refuted(an, 3 - i)


def test_contradicting_facts_refute_nothing():
    an, i = arith.Analyzer(), ir.Var("i")
    an.bind(i, ir.Range.from_min_extent(0, 4))
    with an.constraint_scope(i > 9):
        assert not refuted(an, i - 100)
    assert refuted(an, i - 100)


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: ir.floordiv(i * 4 + j, 3),
        lambda i, j: ir.floormod(i - j, 5),
        lambda i, j: ir.min_(i, j) - 2,
        lambda i, j: ir.max_(i * j, 7) - i,
    ],
)
@given(bound=st.integers(-20, 20), i_end=st.integers(1, 9), j_end=st.integers(1, 9))
def test_what_holds_for_all_values_is_never_refuted(make, bound, i_end, j_end):
    an, i, j = arith.Analyzer(), ir.Var("i"), ir.Var("j")
    an.bind(i, ir.Range.from_min_extent(0, i_end))
    an.bind(j, ir.Range.from_min_extent(0, j_end))
    expr = make(i, j) + bound
    values = [int(an_at(x, y, make) + bound) for x, y in itertools.product(range(i_end), range(j_end))]
    if min(values) >= 0:
        assert not refuted(an, expr)
    if max(values) < 0:
        assert refuted(an, expr)


def an_at(x: int, y: int, make) -> int:
    an, i, j = arith.Analyzer(), ir.Var("i"), ir.Var("j")
    an.bind(i, x)
    an.bind(j, y)
    return int(an.simplify(make(i, j)))


def test_failed_searches_stand_until_more_is_known(monkeypatch):
    """What could not be proved is not searched for again where no fact tells more of what it is made of."""
    search = Mock(side_effect=prove._search)
    monkeypatch.setattr(prove, "_search", search)
    an, n = arith.Analyzer(), ir.SizeVar("n")
    i, j, k = (ir.Var(name) for name in "ijk")
    for v in (i, j, k):
        an.bind(v, ir.Range.from_min_extent(0, n))
    square = (i - j) * (i - j) >= 0  # true, and beyond what is searched
    assert not an.can_prove(square) and search.called
    search.reset_mock()
    with an.constraint_scope(k > 3):
        assert not an.can_prove(square) and not search.called
    with an.constraint_scope(i >= j):  # may tell more
        an.can_prove(square)
    assert search.called
