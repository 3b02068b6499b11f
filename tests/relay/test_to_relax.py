"""First-order Relay as Relax: built and run by Relax's own virtual machine, compared with the interpreter."""

import numpy as np
import pytest

import weft
from tests import arrays
from tests.relay.lower.machine import equal, typed, values
from weft import error, ir, relax, relay
from weft.relax.analysis import well_formed

floats = arrays.floats(np.random.default_rng(9))


def check(program, *inputs):
    mod = typed(program)
    converted = relay.to_relax(mod)
    assert well_formed(converted)
    vm = relax.VirtualMachine(relax.build(converted, "llvm"), weft.cpu())
    expected = relay.create_executor("debug", mod=mod).evaluate()
    for args in inputs:
        equal(values(vm["main"](*map(tensors, args))), values(expected(*args)), 1e-4, 1e-5)
    return converted


def tensors(value):
    return tuple(map(tensors, value)) if isinstance(value, tuple) else weft.runtime.tensor(np.asarray(value))


def test_functions_call_each_other_with_branches():
    text = """
    def @act(%x: Tensor[(3, 4), float32]) -> Tensor[(3, 4), float32] { nn.relu(%x) }
    def @main(%c: bool, %x: Tensor[(3, 4), float32], %w: Tensor[(4, 4), float32]) -> Tensor[(3, 4), float32] {
      %0 = @act(nn.dense(%x, %w));
      if (%c) { let %a = exp(%0); add(%a, %0) } else { @act(negative(%0)) }
    }
    """
    check(text, (True, floats(3, 4), floats(4, 4)), (False, floats(3, 4), floats(4, 4)))


def test_unknown_dimensions_are_variables_of_their_own():
    text = """
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      concatenate((exp(%x), add(%y, %x)), axis=0)
    }
    """
    mod = check(text, (floats(3, 4), floats(3, 4)), (floats(2, 4), floats(2, 4)))
    dims = [p.ty.shape[0] for p in mod["main"].params]
    assert all(isinstance(d, ir.Var) for d in dims) and dims[0] is not dims[1]


def test_tuples_and_shared_constants():
    text = """
    def @main(%p: (Tensor[(2, 4), float32], Tensor[(4), float32])) {
      %0 = split(add(%p.0, %p.1), indices_or_sections=2, axis=1);
      (%0.1, (%0.0, 2f))
    }
    """
    check(text, ((floats(2, 4), floats(4)),))
    x, data = relay.var("x", shape=(3,)), floats(3)
    weight = relay.const(data)
    made = relay.to_relax(typed(relay.Function([x], x * weight)))
    (constant,) = [n for n in ir.walk(made["main"]) if isinstance(n, ir.Constant)]
    assert constant.data is weight.data


def test_elements_become_dimensions():
    text = """
    def @main(%x: Tensor[(?, 4), float32], %s: Tensor[(2), int32]) { exp(dyn.reshape(%x, %s)) }
    """
    check(text, (floats(3, 4), np.array([2, 6], "int32")))


def test_a_long_chain_is_no_recursion():
    x = relay.var("x", shape=(2,))
    body = x
    for _ in range(3000):
        body = relay.tanh(body)
    mod = relay.transform.InferType()(ir.IRModule({"main": relay.Function([x], body)}))
    assert sum(len(b.bindings) for b in relay.to_relax(mod)["main"].body.blocks) == 3000


@pytest.mark.parametrize(
    "body",
    [
        "let %f = fn (%y: float32) { exp(%y) }; %f(%x)",
        "let %r = ref(%x); ref_read(%r)",
        "(fn (%y: float32) { %y }, %x)",
    ],
)
def test_what_is_not_of_first_order_is_refused(body):
    mod = typed(f'#[version = "0.0.5"]\ndef @main(%x: float32) {{ {body} }}')
    with pytest.raises((error.UnsupportedOperator, error.WeftError), match="no form in Relax|of first order|not bound"):
        relay.to_relax(mod)


def test_types_must_be_known():
    x = relay.var("x")
    with pytest.raises(error.UnsupportedOperator, match="no form in Relax") as e:
        relay.to_relax(relay.Function([x], relay.exp(x)))
    assert "infer types first" in str(e.value)


def test_the_translator_binds_parameters():
    mod, params = relay.testing.mlp.get_workload(batch_size=2)
    data = np.random.default_rng(0).random((2, 1, 28, 28)).astype("float32")
    expected = relay.create_executor("debug", mod=mod).evaluate()(data, **params).numpy()
    translator = weft.relax.testing.relay_translator
    for program, rest in ((mod["main"], None), (mod, params)):
        made = translator.from_relay(program, "llvm", rest)
        names = [p.name_hint for p in made["main"].params][1:]
        machine = relax.VirtualMachine(relax.build(made, "llvm"), weft.cpu())
        np.testing.assert_allclose(machine["main"](data, *[params[n] for n in names]).numpy(), expected, rtol=1e-5)
        assert bool(names) is (rest is None)
