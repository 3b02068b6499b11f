"""Counts of operators, and bodies that share nothing but names."""

from tests.refusals import refuses
from weft import error, ir, relay


def test_bodies_share_nothing_but_names():
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    shared = relay.add(x, x)
    func = relay.Function([x, c], relay.If(c, relay.multiply(shared, shared), relay.negative(shared)))
    refuses(error.InvalidArgument, "several bodies share", relay.analysis.check_basic_block_normal_form, func)
    mod = relay.transform.ToBasicBlockNormalForm()(ir.IRModule.from_expr(func))
    relay.analysis.check_basic_block_normal_form(mod["main"])
    relay.analysis.check_basic_block_normal_form(relay.add(shared, shared))


def test_operators_are_counted():
    x = relay.var("x", shape=(4,))
    y = relay.exp(relay.add(relay.add(x, x), x))
    mod = relay.transform.InferType()(ir.IRModule.from_expr(relay.Function([x], y)))
    assert relay.analysis.list_op_freqs(mod) == {"add": 2, "exp": 1}
