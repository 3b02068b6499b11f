"""Operators that a program registers have the types that their relations say."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relay
from weft.relay.op import op as registry


def registered(name, n, *relation):
    registry.register(name, "an operator of a test")
    node = registry.get(name)
    node.set_num_inputs(n)
    node.add_argument("data", "Tensor", "what it takes")
    node.add_type_rel(*relation)
    node.set_support_level(1)
    registry.register_stateful(name, False)
    assert (node.num_inputs, node.support_level, node.get_attr("TOpIsStateful")) == (n, 1, False)
    return node


def type_of(node, *shapes):
    return relay.transform.InferTypeLocal(relay.Call(node, [relay.var("x", shape=s) for s in shapes]))


def test_relations():
    assert type_of(registered("test.same", 1, "Identity"), (3, 0)) == relay.TensorType((3, 0))
    assert type_of(registered("test.both", 2, "Broadcast"), (10, 4), (5, 10, 1)) == relay.TensorType((5, 10, 4))
    node = registered("test.own", 1, "own", lambda types, attrs: relay.TensorType(types[0].shape[1:], "int8"))
    assert type_of(node, (2, 3)) == relay.TensorType((3,), "int8")


def test_legalize_gives_them_meaning():
    node = registered("test.twice", 1, "Identity")
    registry.register_legalize("test.twice", lambda attrs, args, types: args[0] + args[0])
    x = relay.var("x", shape=(2,))
    mod = relay.transform.Legalize()(weft.IRModule.from_expr(relay.Function([x], relay.Call(node, [x]))))
    got = relay.create_executor("debug", mod=mod).evaluate()(np.ones(2, "float32"))
    np.testing.assert_array_equal(got.numpy(), [2, 2])


@pytest.mark.parametrize(
    ("name", "n", "relation", "match"),
    [
        ("test.bad1", 2, ("Identity",), "number of arguments"),
        ("test.bad2", 1, ("NoSuch",), "unknown type relation 'NoSuch'"),
        ("test.bad3", 1, ("own", lambda types, attrs: None), "gives no type"),
        ("test.bad4", 1, ("own", lambda types, attrs: types[7]), "its type relation failed"),
    ],
)
def test_mistakes(name, n, relation, match):
    refuses(error.TypeInferenceError, match, type_of, registered(name, n, *relation), (2,))


def test_a_name_is_registered_once():
    refuses(error.InvalidArgument, "registered already", registry.register, "nn.dense")
    registry.register("test.bare")
    refuses(error.TypeInferenceError, "no type relation", type_of, registry.get("test.bare"), (1,))
