"""Continuation-passing style: the same values, and no call that returns to its caller."""

import numpy as np
import pytest

import weft
from weft import error, relay
from weft.relay.testing import run_infer_type
from weft.relay.transform import InferType, to_cps, un_cps


def round_trip(mod):
    mod = InferType()(mod)
    plain = relay.create_executor("debug", mod).evaluate()
    other = mod.copy()
    other["main"] = to_cps(other["main"], mod=other)
    other = InferType()(other)
    assert len(other["main"].params) == len(mod["main"].params) + 1
    other["main"] = un_cps(other["main"])
    return plain, relay.create_executor("debug", InferType()(other)).evaluate()


@pytest.mark.parametrize("n", [0, 1, 7])
def test_recursion_choices_matches_and_references(n):
    mod = weft.IRModule()
    relay.prelude.Prelude(mod)
    rlist, cons, nil = mod.get_type("List")
    x, rest = relay.var("x", "int32"), relay.var("rest")
    n_var, out = relay.var("n", "int32"), relay.GlobalVar("upto")
    mod[out] = relay.Function(
        [n_var],
        relay.If(relay.less(n_var, relay.const(1)), nil(), cons(n_var, relay.Call(out, [n_var - relay.const(1)]))),
        rlist(relay.scalar_type("int32")),
    )
    total, xs = relay.GlobalVar("total"), relay.var("xs", rlist(relay.scalar_type("int32")))
    clauses = [
        relay.Clause(relay.PatternConstructor(nil, []), relay.const(0)),
        relay.Clause(
            relay.PatternConstructor(cons, [relay.PatternVar(x), relay.PatternVar(rest)]), x + relay.Call(total, [rest])
        ),
    ]
    mod[total] = relay.Function([xs], relay.Match(xs, clauses), relay.scalar_type("int32"))
    m, cell, done = relay.var("m", "int32"), relay.var("cell"), relay.var("done")
    body = relay.Let(
        cell,
        relay.RefCreate(m),
        relay.Let(done, relay.RefWrite(cell, relay.Call(total, [relay.Call(out, [m])])), relay.RefRead(cell)),
    )
    mod["main"] = relay.Function([m], body)
    plain, other = round_trip(mod)
    assert plain(np.int32(n)).numpy() == other(np.int32(n)).numpy() == n * (n + 1) // 2


def test_functions_as_values():
    f, x = relay.var("f"), relay.var("x", shape=(2,))
    twice = relay.Function([y := relay.var("y", shape=(2,))], relay.Call(f, [relay.Call(f, [y])]))
    double = relay.Function([z := relay.var("z", shape=(2,))], z + z)
    main = relay.Function([x], relay.Let(f, double, relay.Call(twice, [x])))
    plain, other = round_trip(weft.IRModule.from_expr(main))
    data = np.array([1, 2], "float32")
    np.testing.assert_array_equal(plain(data).numpy(), other(data).numpy())


def test_no_continuation_is_an_error():
    func = run_infer_type(relay.Function([x := relay.var("x", shape=())], x))
    with pytest.raises(error.InvalidArgument, match="has no continuation"):
        un_cps(func)
