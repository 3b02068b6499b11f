"""Bindings that nothing uses go away; effects stay."""

import pytest

from weft import ir, relay
from weft.relay.expr import let_chain, lets
from weft.relay.transform import DeadCodeElimination, RemoveUnusedFunctions
from weft.relay.transform.effects import Effects

CELL = relay.TensorType((2,))


def names(body, *params, functions=None, **options):
    mod = DeadCodeElimination(**options)(ir.IRModule({"main": relay.Function(params, body), **(functions or {})}))
    assert DeadCodeElimination(**options)(mod) is mod
    return [v.name_hint for v, _ in let_chain(mod["main"].body)[0]]


def test_chains_of_unused_values():
    x, a, b, c = (relay.var(n, CELL) for n in "xabc")
    body = lets([(a, x + x), (b, a * x), (c, relay.Call(ir.Op.get("negative"), (x,)))], c)
    assert names(body, x) == ["c"]


def test_references_stay():
    x, r, w, u, v = (relay.var(n) for n in "xrwuv")
    body = lets([(r, relay.RefCreate(x)), (w, relay.RefWrite(r, x + x)), (u, relay.RefRead(r)), (v, x * x)], x)
    assert names(body, x) == ["r", "w", "u"]
    assert names(body, x, ignore_impurity=True) == []


def test_calls_of_functions():
    x, y, f, g, a, b, c, r = (relay.var(n) for n in "xyfgabcr")
    pure = relay.Function([a], relay.If(relay.const(True), a, f(a)))
    writes = relay.Function([r], relay.If(relay.const(True), relay.RefRead(r), g(r)))
    body = lets([(f, pure), (g, writes), (a, f(x)), (b, g(x)), (c, y(x))], x)
    assert names(body, x, y) == ["g", "b", "c"]
    even, odd = relay.GlobalVar("even"), relay.GlobalVar("odd")
    functions = {even: relay.Function([a], odd(a)), odd: relay.Function([b], even(b) + b)}
    assert names(lets([(c, even(x))], x), x, functions=functions) == []
    functions[odd] = relay.Function([b], relay.Tuple([even(b), relay.RefCreate(b)]))
    assert names(lets([(c, even(x))], x), x, functions=functions) == ["c"]


def test_matches_that_may_fail_stay():
    x, a = relay.var("x", CELL), relay.var("a")
    clauses = (relay.Clause(relay.PatternWildcard(), x),)
    for complete in (True, False):
        body = lets([(a, relay.Match(x, clauses, complete))], x)
        assert names(body, x) == ([] if complete else ["a"])


def test_unused_recursive_functions():
    n, f = relay.var("n", "int32"), relay.var("f")
    assert names(lets([(f, relay.Function([n], f(n)))], relay.const(1))) == []


def test_inline_once():
    x, a, b, c, f, y = (relay.var(n, CELL) for n in "xabcfy")
    body = lets([(a, x + x), (b, a * a), (c, relay.Call(ir.Op.get("negative"), (b,)))], c + x)
    assert names(body, x, inline_once=True) == ["a"]
    loop = lets([(a, x + x), (f, relay.Function([y], y + a))], f(f(x)))
    assert names(loop, x, inline_once=True) == ["a", "f"]
    n, unused = relay.var("n"), relay.var("unused")
    again = lets([(f, relay.Function([n], lets([(unused, f(n))], n)))], f(x))
    assert names(again, x, inline_once=True) == []
    effect = lets([(a, relay.RefRead(x)), (b, relay.RefWrite(x, y))], a)
    assert names(effect, x, y, inline_once=True) == ["a", "b"]


@pytest.mark.parametrize("inline_once", [False, True])
def test_long_chains(inline_once):
    x = relay.var("x", CELL)
    variables = [relay.var("v", CELL) for _ in range(10_000)]
    bindings = [(v, relay.Call(ir.Op.get("add"), (w, x))) for w, v in zip([x, *variables], variables, strict=False)]
    assert len(names(lets(bindings, variables[-1]), x, inline_once=inline_once)) == (0 if inline_once else 10_000)
    assert len(names(lets(bindings, variables[5]), x)) == 6


def test_effects_of_graphs():
    x = wide = relay.var("x", CELL)
    for _ in range(100):
        wide = wide + wide
    effects = Effects(ir.IRModule())
    assert not effects.any(wide) and effects.any(relay.Tuple([wide, relay.RefRead(x)]))
    assert not effects.any(relay.Function([x], relay.RefRead(x)))


def test_unused_functions():
    x, main, helper = relay.var("x", CELL), relay.GlobalVar("main"), relay.GlobalVar("helper")
    functions = {main: relay.Function([x], helper(x)), helper: relay.Function([x], main(x)), "other": main(x)}
    functions["other"] = relay.Function([x], helper(x))
    mod = ir.IRModule(functions)
    assert [v.name_hint for v in RemoveUnusedFunctions()(mod)] == ["main", "helper"]
    assert RemoveUnusedFunctions(entry_functions=["other"])(mod) is mod
