"""Runs of operators become calls of kernels: which ones, and what they compute."""

import numpy as np

from tests import arrays
from tests.refusals import refuses
from tests.relay.lower.machine import bindings, calls, check, kernels, lowered, run
from weft import error, ir, relay

floats = arrays.floats(np.random.default_rng(5))


CHAIN = """
def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3), float32]) {
  %0 = add(%x, %y);
  %1 = exp(%0);
  multiply(%1, %x)
}
"""


def test_a_chain_is_one_kernel():
    mod = check(CHAIN, (floats(2, 3), floats(3)))
    assert len(kernels(lowered(CHAIN))) == 1
    assert [type(f).__name__ for _, f in mod.items()].count("PrimFunc") == 1


def test_equal_kernels_are_one_function():
    text = """
    def @f(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { exp(add(%x, %x)) }
    def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { exp(add(@f(%x), @f(%x))) }
    """
    mod = lowered(text)
    assert len({*kernels(mod), *kernels(mod, name="f")}) == 2  # fused over one tensor, and over two
    check(text, (floats(4),))


def test_tuples_cross_the_border_of_a_region():
    """One of tensors, and one with a number of the machine inside."""
    text = """
    def @main(%p: (Tensor[(2, 4), float32], (Tensor[(2, 4), float32], Tensor[(4), float32])),
              %q: (Tensor[(2), float32], (Tensor[(2), float32], (int64,)))) {
      %0 = %p.1;
      %1 = add(%p.0, %0.1);
      %2 = split(%1, indices_or_sections=2, axis=1);
      %3 = concatenate((%2.1, %2.0), axis=1);
      %4 = %q.1;
      ((%2, tanh(%3), %0.0), (multiply(%q.0, %4.0), %4))
    }
    """
    x, y, z, v, w = floats(2, 4), floats(2, 4), floats(4), floats(2), floats(2)
    check(text, ((x, (y, z)), (v, (w, (np.int64(3),)))))


def test_weights_are_packed_and_epilogues_fused():
    x = relay.var("x", shape=(relay.Any(), 20))
    weight, bias = relay.const(floats(64, 20)), relay.const(floats(64))
    func = relay.Function([x], relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weight), bias)))
    (name,) = kernels(lowered(func))
    assert "matmul_packed" in name and "relu" in name
    check(func, (floats(5, 20),), (floats(0, 20),), (floats(1, 20),))


def test_scalars_of_the_machine_stay_operators():
    text = """
    def @main(%i: int32, %x: Tensor[(3), float32]) {
      %0 = add(%i, 1);
      %1 = less(%0, 10);
      (%1, multiply(%x, %x), %0)
    }
    """
    mod = lowered(text)
    assert len(calls(mod, "add")) == len(calls(mod, "less")) == len(kernels(mod)) == 1
    check(text, (np.int32(4), floats(3)))


def test_branches_have_regions_of_their_own():
    text = """
    def @main(%c: bool, %x: Tensor[(3), float32]) {
      %0 = add(%x, %x);
      %1 = if (%c) { exp(negative(%0)) } else { tanh(%0) };
      add(%1, %0)
    }
    """
    check(text, (True, floats(3)), (False, floats(3)))


def test_a_region_goes_on_behind_what_does_not_need_it():
    text = """
    def @f(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { exp(%x) }
    def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
      let %a = tanh(%x);
      let %b = @f(%x);
      let %c = add(%a, %b);
      %c
    }
    """
    assert len(kernels(lowered(text))) == 1
    check(text, (floats(4),))


def test_results_that_are_inputs_or_constants():
    text = """
    def @main(%x: Tensor[(2), float32]) { %0 = copy(%x); (%0, add(1f, 2f), %x) }
    """
    check(text, (floats(2),))


def test_dimensions_are_bound_once_a_region():
    text = """
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      %0 = exp(add(%x, %y));
      %1 = concatenate((%0, %x), axis=0);
      reshape(%1, newshape=[-1])
    }
    """
    mod = lowered(text)
    assert len(calls(mod, "vm.bind_dims")) == len(calls(mod, "vm.view")) == 1
    check(text, *((floats(n, 4), floats(m, 4)) for n, m in ((3, 3), (1, 5), (5, 1), (0, 0))))


def test_equal_regions_with_unknown_dimensions():
    text = """
    def @f(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32] { exp(add(%x, %y)) }
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      let %a = @f(%x, %y);
      let %b = exp(add(%y, %x));
      (%a, %b)
    }
    """
    mod = lowered(text)
    assert kernels(mod) == kernels(mod, name="f")
    check(text, *((floats(n, 4), floats(m, 4)) for n, m in ((3, 3), (1, 5), (5, 1))))


def test_large_constants_of_equal_structure_are_told_apart():
    x = relay.var("x", shape=(64,))
    c = relay.var("c", shape=(), dtype="bool")
    one, two = (relay.exp(x * relay.const(floats(64).repeat(64).reshape(64, 64))) for _ in range(2))
    check(relay.Function([c, x], relay.If(c, one, two)), (True, floats(64)), (False, floats(64)))


def test_what_does_not_broadcast_is_an_error_at_run_time():
    text = """
    def @main(%x: Tensor[(?), float32], %y: Tensor[(?), float32]) { add(%x, %y) }
    """
    for n, m in ((2, 3), (0, 2), (3, 0)):
        refuses(error.ShapeMismatch, "operands that broadcast", run, text, floats(n), floats(m))


def test_input_is_untouched_and_what_has_no_operators_is_the_same():
    text = '#[version = "0.0.5"] def @main(%x: Tensor[(2), float32]) { let %a = (%x, %x); let %b = %a.0; %b }'
    mod = lowered(text)
    assert len(bindings(mod)) == 2
    assert all(not isinstance(f, ir.Function) or isinstance(f, relay.Function) for _, f in mod.items())
