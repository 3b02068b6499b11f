"""Patterns: what matches, what rewriting makes of it, and functions made of matches."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, ir, relax, relay
from weft.relay.dataflow_pattern import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_dtype,
    has_shape,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)
from weft.relay.transform import InferType, MergeComposite

x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
ANY = wildcard()


def conv_relu(bias=True):
    data, weight, b = relay.var("data"), relay.var("weight"), relay.var("b")
    conv = relay.nn.conv2d(data, weight)
    return relay.nn.relu(relay.nn.bias_add(conv, b) if bias else conv), (data, weight, b)


@pytest.mark.parametrize(
    ("pattern", "matches", "refused"),
    [
        (is_op("add")(is_var("x"), is_var("y")), y + x, x - y),
        (is_op("subtract")(is_var("x"), is_var("y")), x - y, y - x),
        (wildcard()(None), relay.exp(x), x),
        (is_op("add") | is_op("subtract"), ir.Op.get("subtract"), ir.Op.get("divide")),
        (is_constant() + is_var(), relay.const(1.0) + x, x + y),
        (is_expr(relay.const(2.0)), relay.const(2.0), relay.const(3.0)),
        (is_tuple([is_var("x"), wildcard()]), relay.Tuple([x, y]), relay.Tuple([y, x])),
        (is_tuple(None), relay.Tuple([x, y, x]), x),
        (
            is_tuple_get_item(wildcard(), 1),
            relay.TupleGetItem(relay.Tuple([x, y]), 1),
            relay.TupleGetItem(relay.Tuple([x, y]), 0),
        ),
        (
            is_if(wildcard(), is_var("x"), is_var("y")),
            relay.If(relay.const(True), x, y),
            relay.If(relay.const(True), y, x),
        ),
        (
            is_let(is_var("v"), is_op("exp")(wildcard()), wildcard()),
            relay.Let(relay.var("v"), relay.exp(x), y),
            relay.Let(relay.var("v"), relay.tanh(x), y),
        ),
        (FunctionPattern(None, is_op("exp")(wildcard())), relay.Function([x], relay.exp(x)), relay.Function([x], x)),
        (has_dtype("float32"), x, relay.var("n", shape=(), dtype="int32")),
        (has_shape((2, 3)), relay.exp(x), relay.sum(x)),
        (wildcard().has_type(relay.TensorType((2, 3))), x * y, relay.sum(x)),
        (is_op("add").has_attr({"TOpPattern": 1}), ir.Op.get("add"), None),
        (is_op("transpose")(wildcard()).has_attr({"axes": [1, 0]}), relay.transpose(x, [1, 0]), relay.transpose(x)),
        (is_op("multiply")(ANY, ANY), x * x, x * y),
    ],
)
def test_matches(pattern, matches, refused):
    assert pattern.match(matches)
    assert refused is None or not pattern.match(refused)


def test_operators_that_there_are_not():
    for named in (is_op, relax.dpl.is_op):
        refuses(error.UnsupportedOperator, "no operator 'nn.rellu'", named, "nn.rellu")


def test_optional_parts():
    pattern = is_op("nn.relu")(
        is_op("nn.conv2d")(wildcard(), wildcard()).optional(lambda c: is_op("nn.bias_add")(c, wildcard()))
    )
    assert pattern.match(conv_relu(bias=True)[0]) and pattern.match(conv_relu(bias=False)[0])


def test_products_and_quotients_regroup():
    a, b, c = is_var("a"), is_var("b"), is_var("c")
    va, vb, vc = (relay.var(n) for n in "abc")
    assert ((a * b) / c).match(va * (vb / vc)) and (a * (b / c)).match((va * vb) / vc)


def test_dominators():
    elementwise = is_op("exp")(wildcard()) | is_op("add")(wildcard(), wildcard())
    pattern = dominates(is_op("nn.relu")(wildcard()), elementwise, is_op("add")(wildcard(), wildcard()))
    relu = relay.nn.relu(x)
    assert pattern.match(relay.exp(relu) + relu)
    assert not pattern.match(relay.tanh(relu) + relu) and not pattern.match(relay.exp(relu) + y)


class _Simplify(DFPatternCallback):
    def __init__(self):
        super().__init__()
        self.value = wildcard()
        self.pattern = self.value + is_expr(relay.const(0.0))

    def callback(self, pre, post, node_map):
        return node_map[self.value][0]


class _Grow(DFPatternCallback):
    def __init__(self, **options):
        super().__init__(**options)
        self.pattern = is_op("exp")(wildcard())

    def callback(self, pre, post, node_map):
        return relay.exp(post.args[0] + relay.const(1.0))


def test_rewriting_goes_on_until_nothing_changes():
    zero = relay.const(0.0)
    assert _Simplify().rewrite((x + zero) + zero) is x
    func = rewrite([_Simplify()], relay.Function([x], relay.exp(x + zero)))
    assert ir.structural_equal(func, relay.Function([x], relay.exp(x)))


def test_rewriting_once_and_without_end():
    assert ir.structural_equal(_Grow(rewrite_once=True).rewrite(relay.exp(x)), relay.exp(x + relay.const(1.0)))
    refuses(error.InvalidArgument, "after 100 rounds", _Grow().rewrite, relay.exp(x))


def test_partition():
    out, inputs = conv_relu()
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard()))
    call = pattern.partition(out, {"Library": "mine"})
    assert call.args == inputs
    assert call.op.attrs["PartitionedFromPattern"] == "nn.conv2d_nn.bias_add_nn.relu_"
    assert call.op.attrs["Library"] == "mine" and ir.structural_equal(call.op.body, conv_relu()[0], map_free_vars=True)
    assert pattern.partition(out, check=lambda e: False) is out


def test_a_value_that_is_used_elsewhere_is_no_part_of_a_match():
    inner = relay.exp(x)
    pattern = is_op("tanh")(is_op("exp")(wildcard()))
    both = relay.Tuple([relay.tanh(inner), inner])
    assert pattern.partition(both) is both


def test_merge_composite_keeps_the_meaning():
    table = [("mine.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]
    mod = InferType()(ir.IRModule({"main": relay.Function([x, y], relay.nn.relu(x + y) - y)}))
    merged = MergeComposite(table)(mod)
    (group,) = [n for n in ir.walk(merged["main"].body) if isinstance(n, relay.Function)]
    assert group.attrs["Composite"] == "mine.add_relu" and group.ret_type == relay.TensorType((2, 3))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, 3)).astype("float32") for _ in range(2))
    for kind in ("debug", "vm"):
        got = relay.create_executor(kind, merged).evaluate()(a, b).numpy()
        np.testing.assert_allclose(got, np.maximum(a + b, 0) - b, rtol=1e-6)
