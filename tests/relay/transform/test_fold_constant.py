"""What is known is computed at compile time; what has effects, fails or is large is not."""

import numpy as np
import pytest

from weft import ir, relay
from weft.relay.expr import lets
from weft.relay.op.registry import op_call
from weft.relay.transform import FoldConstant, InferType

CELL = relay.TensorType((2,))


def fold(body, *params):
    mod = FoldConstant()(ir.IRModule({"main": relay.Function(params, body)}))
    assert FoldConstant()(mod) is mod
    return mod["main"].body


def check(body, expected, *params):
    ir.assert_structural_equal(relay.Function(params, fold(body, *params)), relay.Function(params, expected))


def test_lets_and_operators():
    x, a, b, c = (relay.var(n, CELL) for n in "xabc")
    data = relay.const([1.0, 2.0])
    check(lets([(a, data), (b, a + a), (c, b + x)], c), lets([(c, relay.const([2.0, 4.0]) + x)], c), x)


def test_tuples():
    x, t = relay.var("x", CELL), relay.var("t")
    data = relay.const([1.0, 2.0])
    y = relay.Tuple([x, data])
    check(y[1] + data + y[0], relay.const([2.0, 4.0]) + x, x)
    items = [relay.TupleGetItem(t, i) for i in range(2)]
    check(lets([(t, y)], items[1] + data + items[0]), lets([(t, y)], relay.const([2.0, 4.0]) + x), x)
    effect = relay.Tuple([relay.RefRead(x), data])
    check(effect[1], effect[1], x)


def test_operators_with_several_results():
    parts = op_call("split", relay.const([1.0, 2.0, 3.0, 4.0]), indices_or_sections=2, axis=0)
    ir.assert_structural_equal(fold(relay.TupleGetItem(parts, 1)), relay.const([3.0, 4.0]))


def test_choices():
    x = relay.var("x", CELL)
    check(relay.If(relay.const(1) < relay.const(2), x + x, x), x + x, x)
    check(relay.If(relay.const(False), x, relay.If(relay.const(True), x * x, x)), x * x, x)


def test_matches():
    nat = relay.GlobalTypeVar("nat")
    z, s = relay.Constructor("Z", (), nat), relay.Constructor("S", (relay.TypeCall(nat),), nat)
    relay.TypeData(nat, (), (z, s))
    x, n, p = relay.var("x", CELL), relay.var("n"), relay.var("p")

    def match(data):
        return relay.Match(
            data,
            (
                relay.Clause(relay.PatternConstructor(z), x + x),
                relay.Clause(relay.PatternConstructor(s, (relay.PatternVar(p),)), relay.Tuple([p, x])),
            ),
        )

    check(match(z()), x + x, x)
    check(match(s(n)), lets([(p, n)], relay.Tuple([p, x])), x, n)
    check(match(s(n(x))), match(s(n(x))), x, n)
    q = relay.var("q")
    check(lets([(q, s(n))], match(q)), lets([(q, s(n)), (p, n)], relay.Tuple([p, x])), x, n)
    check(match(n), match(n), x, n)


def test_what_stays():
    x = relay.const(np.ones((2, 3), "float32"))
    full = op_call("full", relay.const(1.0), shape=(4, 5), dtype="float32")
    zeros = op_call("zeros", shape=(4, 5), dtype="float32")
    large = op_call("repeat", op_call("repeat", x, repeats=3000, axis=0), repeats=500, axis=1)
    wrong = op_call("reshape", x, newshape=(5,))
    for e in (full, zeros, wrong):
        check(e, e)
    assert isinstance(fold(large), relay.Call)


@pytest.mark.parametrize("shape", [(3, 4), (0, 2), ()])
def test_shapes(shape):
    x = relay.var("x", shape=shape)
    mod = InferType()(ir.IRModule({"main": relay.Function([x], op_call("shape_of", x, dtype="int64"))}))
    assert FoldConstant()(mod)["main"].body.data.numpy().tolist() == list(shape)
    x = relay.var("x", shape=(3, relay.Any()))
    mod = InferType()(ir.IRModule({"main": relay.Function([x], op_call("shape_of", x, dtype="int64"))}))
    assert FoldConstant()(mod) is mod


def test_long_chains():
    variables = [relay.var("v", CELL) for _ in range(10_000)]
    values = [relay.const([1.0, 0.0]), *(v + v for v in variables)]
    result = fold(lets(list(zip(variables, values, strict=False)), variables[-1]))
    assert np.isinf(result.data.numpy()[0])


def test_quantized_operators_are_folded_where_asked_and_a_dropout_never():
    x = relay.var("x", shape=(3,), dtype="int8")
    data = relay.qnn.op.quantize(relay.const([1.0, -2.0, 80.0]), relay.const(0.5), relay.const(1))
    check(x + data, x + data, x)
    folded = relay.transform.FoldConstantExpr(x + data, ir.IRModule(), fold_qnn=True)
    ir.assert_structural_equal(folded, x + relay.const(np.array([3, -3, 127], "int8")))
    dropped = relay.nn.dropout(relay.const([1.0]))
    check(dropped, dropped)
