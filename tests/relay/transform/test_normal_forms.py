"""Graphs, blocks and names: what is computed, and how often, stays."""

from weft import ir, relay
from weft.relay.expr import let_chain, lets
from weft.relay.transform import ToANormalForm, ToBasicBlockNormalForm, ToGraphNormalForm
from weft.relay.walk import subexpressions

CELL = relay.TensorType((2,))


def run(make, body, *params):
    mod = make()(ir.IRModule({"main": relay.Function(params, body)}))
    assert make()(mod) is mod
    return mod["main"].body


def test_round_trip():
    x, c = relay.var("x", CELL), relay.var("c", "bool")
    shared = x + x
    body = relay.If(c, shared * shared, relay.Tuple([shared, relay.Function([x], x * shared)]))
    graph = run(ToGraphNormalForm, run(ToANormalForm, body, x, c), x, c)
    assert not any(type(e) is relay.Let for e in subexpressions(graph))
    ir.assert_structural_equal(relay.Function([x, c], graph), relay.Function([x, c], body))
    assert len(list(subexpressions(graph))) == len(list(subexpressions(body)))


def test_effects_keep_their_names():
    x, r, a, b, w = (relay.var(n, CELL) for n in "xrabw")
    body = lets([(r, relay.RefCreate(x)), (a, relay.RefRead(r)), (w, relay.RefWrite(r, x)), (b, a + a)], b)
    bindings, result = let_chain(run(ToGraphNormalForm, body, x))
    assert [v for v, _ in bindings] == [r, a, w] and type(result) is relay.Call


def test_functions_that_loop():
    n, f, x, w, y = relay.var("n", "int32"), relay.var("f"), relay.var("x", CELL), relay.var("w"), relay.var("y")
    loop = relay.Function([n], relay.If(n < 1, w, f(n - 1)))
    body = lets([(w, x * x), (f, loop), (y, f(3))], y)
    bindings, result = let_chain(run(ToGraphNormalForm, body, x))
    assert [v for v, _ in bindings] == [w, f] and result.op is f


def test_blocks():
    x, c = relay.var("x", CELL), relay.var("c", "bool")
    outer, inner = x + x, x * x
    choice = relay.If(c, relay.If(c, inner, inner), outer)
    bindings, result = let_chain(run(ToBasicBlockNormalForm, relay.Tuple([outer, choice]), x, c))
    assert [v for _, v in bindings] == [outer] and type(result) is relay.Tuple
    within, _ = let_chain(result.fields[1].true_branch)
    assert [v for _, v in within] == [inner]


def test_blocks_keep_the_order_of_effects():
    r, c = relay.var("r"), relay.var("c", "bool")
    read = relay.RefRead(r)
    body = relay.Tuple([relay.RefWrite(r, c), relay.If(c, read, read)])
    bindings, _ = let_chain(run(ToBasicBlockNormalForm, body, r, c))
    assert [type(v) for _, v in bindings] == [relay.RefWrite, relay.RefRead]


def test_long_chains():
    x = relay.var("x", CELL)
    variables = [relay.var("v", CELL) for _ in range(10_000)]
    bindings = [(v, w + w) for w, v in zip([x, *variables], variables, strict=False)]
    graph = run(ToGraphNormalForm, lets(bindings, variables[-1]), x)
    assert len(list(subexpressions(graph))) == 10_000 + 2
    assert run(ToBasicBlockNormalForm, graph, x) is graph
