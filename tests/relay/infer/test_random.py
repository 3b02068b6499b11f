"""Random well-typed programs: types are found, found again where annotations are taken away, and wrong ones refused."""

import warnings

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.relay.programs.draw import programs
from weft import error, relay
from weft.ir.spec import verify
from weft.relay.expr import Function, Let, Var
from weft.relay.types import types_equal
from weft.relay.walk import bound_by, parts, rewrite, subexpressions

relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=15)


def infer(mod):
    with warnings.catch_warnings(action="ignore", category=relay.analysis.UnmatchedWarning):
        return relay.transform.InferType()(mod)


@relaxed
@given(programs())
def test_types_are_found_once(drawn):
    typed = infer(drawn[0])
    verify(typed, "relay.typed")
    assert infer(typed) is typed


def without_annotations(func, chosen):
    """A function in which the variables of `chosen` have no annotation."""
    new = {v: Var(v.name_hint, span=v.span) for v in chosen}

    def rule(e):
        if isinstance(e, Let) and e.var in new:
            return Let(new[e.var], e.value, e.body)
        if isinstance(e, Function):
            return e.replace(params=tuple(new.get(p, p) for p in e.params), ty=None)
        return e

    return rewrite(func, rule, pre=lambda e: new.get(e) if isinstance(e, Var) else None)


@relaxed
@given(programs(), st.randoms(use_true_random=False))
def test_annotations_that_are_taken_away_are_found_again(drawn, random):
    typed = infer(drawn[0])
    functions = {}
    for v, f in typed.items():
        bound = {p for e in subexpressions(f.body) if isinstance(e, (Let, Function)) for p in bound_by(e)}
        functions[v] = without_annotations(f, [p for p in sorted(bound, key=str) if random.random() < 0.5])
    try:
        again = infer(typed.with_functions(functions))
    except error.TypeInferenceError as e:
        assert "cannot be inferred" in str(e) or "?" in str(e) or "fn [" in str(e), e
        return
    for v, f in typed.items():
        assert types_equal(again[v.name_hint].ty, f.ty)


@relaxed
@given(programs(), st.randoms(use_true_random=False))
def test_what_is_put_in_a_wrong_place_is_refused_or_fits(drawn, random):
    typed = infer(drawn[0])
    main = typed["main"]
    inside = [e for e in subexpressions(main.body) if isinstance(e, relay.Expr) and not isinstance(e, (Let, Function))]
    victim, other = random.choice(inside), random.choice(inside)
    swapped = rewrite(main.body, lambda e: e, pre=lambda e: other if e is victim else None)
    if other is not victim and any(e is victim for p in parts(other) for e in subexpressions(p)):
        return
    wrong = typed.with_functions({**typed.functions, "main": main.replace(body=swapped, ret_type=None, ty=None)})
    try:
        done = relay.infer_type(wrong)
    except error.TypeInferenceError as e:
        assert str(e)
        return
    try:
        again = infer(done)
    except error.ErrorGroup as e:  # the variable that went there is not bound there
        assert "used where it is not bound" in str(e)
        assert not relay.analysis.well_formed(done)
    else:
        assert again is done
