"""What is computed twice is computed once, where both uses see it."""

from weft import ir, relay
from weft.relay.expr import lets
from weft.relay.op.registry import op_call
from weft.relay.transform import EliminateCommonSubexpr
from weft.relay.walk import subexpressions

CELL = relay.TensorType((2,))


def merge(body, *params, **options):
    mod = EliminateCommonSubexpr(**options)(ir.IRModule({"main": relay.Function(params, body)}))
    assert EliminateCommonSubexpr(**options)(mod) is mod
    return mod["main"].body


def calls(expr):
    return sum(type(e) is relay.Call for e in subexpressions(expr))


def test_graphs():
    x = relay.var("x", CELL)
    one, two = op_call("nn.relu", x) + relay.const(1.0), op_call("nn.relu", x) + relay.const(1.0)
    assert calls(merge(one + two, x)) == 3
    assert calls(merge(one + two, x, fskip=lambda e: type(e) is relay.Call and e.op.name == "add")) == 4
    assert calls(merge(op_call("sum", x, axis=0) + op_call("sum", x, axis=1), x)) == 3
    split = op_call("split", x, indices_or_sections=2)
    result = merge(relay.Tuple([relay.TupleGetItem(split, i) for i in (0, 0, 1)]), x)
    assert result.fields[0] is result.fields[1] and result.fields[1] is not result.fields[2]


def test_lets():
    x, a, b, c = (relay.var(n, CELL) for n in "xabc")
    body = lets([(a, x + x), (b, x + x), (c, b * (x + x))], c - b)
    expected = lets([(a, x + x), (c, a * a)], c - a)
    ir.assert_structural_equal(relay.Function([x], merge(body, x)), relay.Function([x], expected))


def test_scopes():
    x, c, a, b = relay.var("x", CELL), relay.var("c", "bool"), relay.var("a", CELL), relay.var("b", CELL)
    beside = relay.If(c, x + x, (x + x) * x)
    merged = merge(beside, x, c)
    assert calls(merged) == calls(beside) == 3 and merged.ty == CELL
    assert calls(merge(relay.Tuple([x + x, beside]), x, c)) == 2
    within = lets([(a, x + x)], relay.If(c, lets([(b, x + x)], b * b), a))
    expected = lets([(a, x + x)], relay.If(c, a * a, a))
    ir.assert_structural_equal(relay.Function([x, c], merge(within, x, c)), relay.Function([x, c], expected))


def test_shared_lets_do_not_see_names_around_one_use():
    x, a, b = relay.var("x", CELL), relay.var("a"), relay.var("b")
    shared = lets([(b, x + x)], b * b)
    body = relay.Tuple([lets([(a, x + x)], a - shared), shared])
    assert [type(e) for e in merge(body, x).fields] == [relay.Let, relay.Let]


def test_effects_stay():
    x = relay.var("x")
    body = relay.Tuple([relay.RefRead(x), relay.RefRead(x), x(), x(), relay.RefCreate(x), relay.RefCreate(x)])
    assert merge(body, x) is body


def test_long_chains():
    x = relay.var("x", CELL)
    variables = [relay.var("v", CELL) for _ in range(10_000)]
    bindings = [(v, w + w) for w, v in zip([x, x, *variables], variables, strict=False)]
    assert calls(merge(lets(bindings, variables[-1]), x)) == 5_000
