"""Scopes of variables."""

from weft import ir, relay
from weft.relay.analysis import scope_errors, well_formed

INT = relay.scalar_type("int32")


def texts(program):
    return [text for _, text in scope_errors(program)]


def test_bound_twice():
    x = relay.Var("x", INT)
    chain = relay.Let(x, relay.const(1), relay.Let(x, relay.const(2), x))
    assert texts(chain) == ["variable '%x' is bound twice"]
    assert not scope_errors(chain, once=False)
    assert not well_formed(relay.Tuple((relay.Function((x,), x), relay.Function((x,), x))))


def test_a_shared_expression_binds_once():
    x = relay.Var("x", INT)
    let = relay.Let(x, relay.const(1), x)
    assert well_formed(relay.Tuple((let, let)))


def test_used_outside():
    x, y = relay.Var("x", INT), relay.Var("y", INT)
    let = relay.Let(x, relay.const(1), x)
    assert texts(let + x) == ["variable '%x' is used where it is not bound"]
    assert well_formed(let + y), "a free variable of an expression is its input"
    assert texts(relay.Function((), y)) == ["variable '%y' is used where it is not bound"]
    assert texts(ir.IRModule({"main": relay.Function((x,), relay.Let(y, y, x))})) == [
        "variable '%y' is used where it is not bound"
    ]


def test_a_function_may_refer_to_itself():
    f, x = relay.Var("f"), relay.Var("x", INT)
    assert well_formed(relay.Let(f, relay.Function((x,), f(x)), f))
    assert not well_formed(relay.Function((), relay.Let(f, f(relay.const(1)), f)))


def test_patterns_bind_in_their_clause():
    x, y = relay.Var("x", INT), relay.Var("y", INT)
    clauses = (relay.Clause(relay.PatternVar(x), x), relay.Clause(relay.PatternWildcard(), x))
    assert texts(relay.Function((y,), relay.Match(y, clauses))) == ["variable '%x' is used where it is not bound"]
