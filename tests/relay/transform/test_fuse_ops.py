"""Groups of operators become functions that stand for one kernel."""

import numpy as np

from tests import arrays
from tests.relay.lower.machine import check, kernels, lowered, typed
from weft import ir, relay
from weft.relay.transform import FuseOps, InferType, ToANormalForm

floats = arrays.floats(np.random.default_rng(7))
PROGRAM = """
def @main(%x: Tensor[(4, 4), float32], %w: Tensor[(4, 4), float32]) {
  %0 = tanh(exp(add(%x, 1f)));
  %1 = nn.relu(nn.dense(%0, %w));
  %2 = split(%1, indices_or_sections=2);
  %3 = concatenate((%2.0, exp(%2.1)));
  (%3, tanh(%3), %0)
}
"""


def groups(mod):
    """The names of the operators of each primitive function, in order."""
    found = [n for n in ir.walk(mod["main"].body) if isinstance(n, relay.Function) and n.attrs.get("Primitive")]
    return [sorted(c.op.name for c in ir.walk(f.body) if isinstance(c, ir.Call)) for f in found]


def fused(text, **options):
    return InferType()(FuseOps(**options)(typed(text)))


def test_groups():
    assert sorted(groups(fused(PROGRAM))) == [
        ["add", "exp", "tanh"],
        ["concatenate", "exp", "split"],
        ["nn.dense", "nn.relu"],
        ["tanh"],
    ]


def test_graphs_stay_graphs_and_lets_stay_lets():
    assert not any(isinstance(n, relay.Let) for n in ir.walk(fused(PROGRAM)["main"].body))
    named = InferType()(FuseOps()(ir.Sequential([ToANormalForm(), InferType()])(typed(PROGRAM))))
    assert isinstance(named["main"].body, relay.Let)
    assert all(len(g) == 1 for g in groups(named))  # what has a name exists by itself


def test_what_only_moves_elements_is_marked():
    x = relay.var("x", shape=(2, 6))
    mod = fused(relay.Function([x], relay.squeeze(relay.reshape(x, (1, 3, 4)))))
    (call,) = [n for n in ir.walk(mod["main"].body) if isinstance(n, ir.Call) and isinstance(n.op, relay.Function)]
    assert call.op.attrs["relay.reshape_only"] == 1
    check(mod, (floats(2, 6),))


def test_fields_join_what_reads_the_tuple():
    x = relay.var("x", shape=(2, 3))
    both = relay.concatenate((relay.exp(x), relay.tanh(x)), axis=1)
    mod = fused(relay.Function([x], relay.add(both, relay.const(1.0))))
    assert groups(mod) == [["add", "concatenate", "exp", "tanh"]]
    check(mod, (floats(2, 3),))


def test_an_anchor_takes_what_follows_and_no_other_anchor():
    x, w = relay.var("x", shape=(4, 4)), relay.var("w", shape=(4, 4))
    out = relay.nn.relu(relay.nn.dense(relay.exp(x), w))
    mod = fused(relay.Function([x, w], relay.nn.dense(out, w)))
    assert sorted(groups(mod)) == [["exp"], ["nn.dense"], ["nn.dense", "nn.relu"]]
    check(mod, (floats(4, 4), floats(4, 4)))


def test_patterns_can_be_asked_for_and_registered():
    assert relay.op.get("add").get_attr("TOpPattern") == relay.op.OpPattern.BROADCAST
    relay.op.register_pattern("tests.some_operator", relay.op.OpPattern.INJECTIVE)
    assert ir.Op.get("tests.some_operator").get_attr("TOpPattern") == 2


def test_expected_function():
    text = """
    def @main(%x: Tensor[(2, 3), float32]) { exp(add(%x, 1f)) }
    """
    p = relay.var("p", shape=(2, 3))
    group = relay.Function([p], relay.exp(relay.add(p, relay.const(1.0))), attrs={"Primitive": 1})
    x = relay.var("x", shape=(2, 3))
    wanted = InferType()(ir.IRModule({"main": relay.Function([x], relay.Call(group, [x]))}))
    assert ir.structural_equal(fused(text)["main"], wanted["main"])


def test_levels():
    assert all(len(g) == 1 for g in groups(fused(PROGRAM, fuse_opt_level=0)))
    with ir.PassContext(opt_level=0):
        assert all(len(g) == 1 for g in groups(fused(PROGRAM)))
    with ir.PassContext(config={"relay.FuseOps.max_depth": 2}):
        assert max(map(len, groups(fused(PROGRAM)))) == 2


def test_constants_that_are_no_scalars_are_arguments():
    x = relay.var("x", shape=(3,))
    weight = relay.const(floats(3))
    mod = fused(relay.Function([x], relay.exp(x * weight)))
    (call,) = [n for n in ir.walk(mod["main"].body) if isinstance(n, ir.Call) and isinstance(n.op, relay.Function)]
    assert [type(a) for a in call.args] == [relay.Var, relay.Constant] and call.args[1].data is weight.data


def test_a_function_of_groups_runs():
    mod = fused(PROGRAM)
    assert len(kernels(lowered(mod))) == 6
    check(mod, (floats(4, 4), floats(4, 4)))


def test_fused_twice_is_fused_once():
    once = fused(PROGRAM)
    assert ir.structural_equal(fused(once)["main"], once["main"])


def test_branches_and_dynamic_shapes():
    text = """
    def @main(%c: bool, %x: Tensor[(?, 4), float32]) {
      %0 = exp(add(%x, %x));
      if (%c) { tanh(negative(%0)) } else { %0 }
    }
    """
    check(fused(text), (True, floats(3, 4)), (False, floats(0, 4)))


def test_nothing_is_fused_across_stop_fusion():
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], relay.exp(relay.op.op_call("annotation.stop_fusion", relay.add(x, x))))
    assert groups(fused(func)) == [["exp"], ["add"]]
    assert len(kernels(lowered(func))) == 2
    check(func, (floats(2),))
