"""Which values no clause of a match covers, compared with trying all values up to a depth."""

import itertools
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import error, ir, relay
from weft.relay import Clause, Match, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from weft.relay.analysis import UnmatchedWarning, unmatched_cases, warn_unmatched

MOD = ir.IRModule()
T, L, BOX = relay.GlobalTypeVar("T"), relay.GlobalTypeVar("L"), relay.GlobalTypeVar("Box")
A = relay.TypeVar("A")
ONE, TWO = relay.Constructor("One", (), T), relay.Constructor("Two", (T,), T)
NIL, CONS = relay.Constructor("Nil", (), L), relay.Constructor("Cons", (A, L(A)), L)
PAIR = relay.Constructor("Pair", (T(), L(T())), BOX)
MOD[T] = relay.TypeData(T, (), (ONE, TWO))
MOD[L] = relay.TypeData(L, (A,), (NIL, CONS))
MOD[BOX] = relay.TypeData(BOX, (), (PAIR,))
ANY = PatternWildcard()
V = relay.Var("v")


def match(*patterns, complete=True, span=None):
    return Match(V, tuple(Clause(p, relay.const(0)) for p in patterns), complete, span=span)


def pattern(c, *fields):
    return PatternConstructor(c, fields)


def test_empty_match():
    (case,) = unmatched_cases(match(), MOD)
    assert isinstance(case, PatternWildcard)


def test_trivial_matches():
    assert unmatched_cases(match(ANY), MOD) == []
    assert unmatched_cases(match(PatternVar(relay.Var("x"))), MOD) == []
    assert unmatched_cases(match(PatternTuple((ANY, ANY))), MOD) == []


def test_single_constructor_is_missing():
    (case,) = unmatched_cases(match(pattern(CONS, ANY, ANY)), MOD)
    assert isinstance(case, PatternConstructor)
    assert case.constructor == NIL


def test_missing_in_the_middle():
    """A list of two is missing."""
    m = match(
        pattern(CONS, ANY, pattern(NIL)), pattern(NIL), pattern(CONS, ANY, pattern(CONS, ANY, pattern(CONS, ANY, ANY)))
    )
    (case,) = unmatched_cases(m, MOD)
    assert case.constructor == CONS
    assert case.patterns[1].constructor == CONS
    assert case.patterns[1].patterns[1].constructor == NIL


def test_types_in_types():
    m = match(pattern(PAIR, pattern(ONE), ANY), pattern(PAIR, ANY, pattern(NIL)))
    (case,) = unmatched_cases(m, MOD)
    assert str(case) == "Pair(Two(_), Cons(_, _))"


def test_patterns_of_a_wrong_number_of_fields():
    assert len(unmatched_cases(match(pattern(CONS), pattern(NIL, ANY)), MOD)) == 0
    assert len(unmatched_cases(match(PatternTuple((pattern(NIL), ANY)), PatternTuple((pattern(CONS),))), MOD)) == 0


def test_unknown_type():
    stranger = relay.Constructor("S", (), relay.GlobalTypeVar("Stranger"))
    with pytest.raises(error.InvalidArgument, match="no data type 'Stranger'"):
        unmatched_cases(match(pattern(stranger)), MOD)


def test_many_missing_cases_are_not_all_listed():
    depth = ANY
    for _ in range(90):
        depth = pattern(CONS, ANY, depth)
    assert len(unmatched_cases(match(depth), MOD)) == 64


def values_t(depth):
    return [("One",)] + ([("Two", v) for v in values_t(depth - 1)] if depth else [])


def values_l(depth):
    rest = values_l(depth - 1) if depth else []
    return [("Nil",)] + [("Cons", h, r) for h in values_t(1) for r in rest]


VALUES = [("Pair", t, xs) for t, xs in itertools.product(values_t(3), values_l(3))]


def covers(p, value):
    if isinstance(p, (PatternWildcard, PatternVar)):
        return True
    return p.constructor.name_hint == value[0] and all(map(covers, p.patterns, value[1:]))


T_PATTERNS = st.recursive(
    st.sampled_from([ANY, pattern(ONE)]), lambda p: p.map(lambda q: pattern(TWO, q)), max_leaves=3
)
L_PATTERNS = st.recursive(
    st.sampled_from([ANY, pattern(NIL)]),
    lambda p: st.tuples(st.sampled_from([ANY, pattern(ONE), pattern(TWO, ANY)]), p).map(lambda q: pattern(CONS, *q)),
    max_leaves=3,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(T_PATTERNS, L_PATTERNS).map(lambda f: pattern(PAIR, *f)), max_size=6))
def test_what_is_listed_is_what_is_missed(patterns):
    cases = unmatched_cases(match(*patterns), MOD)
    for value in VALUES:
        covered = any(covers(p, value) for p in patterns)
        assert sum(covers(c, value) for c in cases) == (not covered), (value, patterns, cases)


def test_warning_names_the_constructor_and_the_place():
    m = match(pattern(CONS, ANY, ANY), span=ir.Span("net.rly", 3, column=5))
    with pytest.warns(UnmatchedWarning, match=r"does not cover `Nil`\n  --> net.rly:3:5") as caught:
        warn_unmatched([m], MOD)
    assert (caught[0].filename, caught[0].lineno) == ("net.rly", 3)


def test_a_match_that_may_be_partial_is_not_warned_of():
    with warnings.catch_warnings(record=True) as caught:
        warn_unmatched([match(pattern(CONS, ANY, ANY), complete=False)], MOD)
        warn_unmatched([match(pattern(CONS, ANY, ANY), ANY)], MOD)
        assert caught == []
        warn_unmatched([match(pattern(CONS, ANY, ANY))], MOD)
    assert len(caught) == 1


PARTIAL = """
type Option[A] { Some(A), None, }
def @main(%x: Option[int32]) {
  match (%x) {
    Some(%a) => %a,
  }
}
"""


@pytest.mark.filterwarnings("error")
def test_inference_warns_once():
    mod = relay.fromtext(PARTIAL)
    with pytest.warns(UnmatchedWarning, match="`None`"):
        done = relay.infer_type(mod)
    relay.infer_type(done)
    relay.infer_type(relay.transform.ToANormalForm()(done))
    relay.infer_type(relay.fromtext(PARTIAL.replace("match (", "match? (")))
    with pytest.warns(UnmatchedWarning, match=":4:3"):
        warn_unmatched(done)


def test_compilation_warns():
    mod = relay.fromtext(PARTIAL)
    with pytest.warns(UnmatchedWarning, match="`None`") as caught:
        relay.vm.compile(mod, "llvm")
    assert len(caught) == 1
    with pytest.warns(UnmatchedWarning, match="`None`"):
        done = relay.infer_type(relay.fromtext(PARTIAL))
    with pytest.warns(UnmatchedWarning, match="`None`"):
        relay.vm.compile(done, "llvm")
