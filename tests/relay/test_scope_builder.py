"""Expressions built statement by statement."""

import pytest

from tests.refusals import refuses
from weft import error, ir, relay


def test_choices_and_lets():
    x, c = relay.var("x", "float32"), relay.var("c", "bool")
    sb = relay.ScopeBuilder()
    with sb.if_scope(c):
        one = sb.let("a", x + x)
        two = sb.let(("b", relay.scalar_type("float32")), one * one)
        sb.ret(two)
    with sb.else_scope():
        sb.ret(x)
    a, b = relay.var("a"), relay.var("b", "float32")
    expected = relay.If(c, relay.Let(a, x + x, relay.Let(b, a * a, b)), x)
    ir.assert_structural_equal(sb.get(), expected, map_free_vars=True)
    assert one.type_annotation is None and two.type_annotation.dtype == "float32"


def test_nested_choices_and_types():
    x, c = relay.var("x", "float32"), relay.var("c", "bool")
    sb = relay.scope_builder.ScopeBuilder()
    assert sb.type_of(x) is x.type_annotation
    y = sb.let(relay.var("y"), x)
    with sb.if_scope(c):
        with sb.if_scope(c):
            sb.ret(y)
        with sb.else_scope():
            sb.ret((y, x))
    with sb.else_scope():
        sb.ret(1)
    built = sb.get()
    assert built.var is y and built.body.true_branch.false_branch.fields == (y, x)
    assert isinstance(relay.ScopeBuilder().type_of(x + x), relay.IncompleteType)


def test_mistakes():
    sb, c = relay.ScopeBuilder(), relay.var("c", "bool")
    refuses(error.EvaluationError, "no result", sb.get)
    with pytest.raises(error.EvaluationError, match="must follow"), sb.else_scope():
        pass
    with sb.if_scope(c):
        sb.ret(c)
        refuses(error.EvaluationError, "behind the result", sb.ret, c)
        refuses(error.EvaluationError, "outside of all", sb.get)
    refuses(error.EvaluationError, "no result", sb.get)
    refuses(error.InvalidArgument, "", sb.let, ("a", None, 3), c)
