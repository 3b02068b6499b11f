"""Shapes that programs compute: from shapes of tensors, and from tensors of numbers."""

import numpy as np
import pytest

from tests import arrays
from tests.relay.lower.machine import calls, check, lowered
from weft import error, relax, relay

floats = arrays.floats(np.random.default_rng(8))


def program(body, params="%x: Tensor[(?, 4), float32]"):
    return f'#[version = "0.0.5"]\ndef @main({params}) {{ {body} }}'


FOLLOWED = [
    '%0 = shape_of(%x, dtype="int64"); dyn.reshape(%x, reverse(%0, axis=0))',
    '%0 = shape_of(%x, dtype="int64"); %1 = take(%0, 0i64); dyn.full(2f, %1, dtype="float32")',
    '%0 = shape_of(%x, dtype="int64"); exp(dyn.reshape(%x, prod(%0, axis=[0], keepdims=True)))',
    '%0 = shape_of(%x); %1 = expand_dims(take(%0, 0), axis=0); dyn.zeros(concatenate((%1, %1)), dtype="float32")',
    '%0 = shape_of(%x); %1 = strided_slice(%0, begin=[0], end=[1], strides=[1]); dyn.ones(%1, dtype="float32")',
]


@pytest.mark.parametrize("body", FOLLOWED)
def test_what_shapes_compute_needs_no_tensors(body):
    """One region, one shape function, no kernel for the shapes."""
    text = program(body)
    assert len(calls(lowered(text), "vm.bind_dims")) == 1
    check(text, (floats(3, 4),), (floats(1, 4),))


def test_elements_of_a_parameter_or_a_scalar_of_the_machine():
    text = program("exp(dyn.reshape(%x, %s))", "%x: Tensor[(?, 4), float32], %s: Tensor[(2), int64]")
    check(text, (floats(3, 4), np.array([2, 6])), (floats(3, 4), np.array([12, 1])))
    text = program('%0 = add(%n, 1); exp(dyn.full(3f, %0, dtype="float32"))', "%n: int32")
    check(text, (np.int32(4),), (np.int32(0),))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_elements_that_a_kernel_computes(dtype):
    text = program(
        '%0 = cast(round(%y), dtype="' + dtype + '"); tanh(dyn.broadcast_to(exp(%x), %0))',
        "%x: Tensor[(1, 4), float32], %y: Tensor[(2), float32]",
    )
    check(text, (floats(1, 4), np.array([3.1, 3.9], "float32")), (floats(1, 4), np.array([1, 4], "float32")))


def test_numbers_inside_kernels():
    x = relay.var("x", shape=(relay.Any(), 4))
    bounds = [relay.var(n, shape=(2,), dtype="int64") for n in "be"]
    part = relay.op.op_call("dyn.strided_slice", x, *bounds, relay.const(np.array([1, 1]), "int64"))
    arrays = [np.array(v) for v in ([1, 0], [4, 3])]
    check(relay.Function([x, *bounds], relay.tanh(part)), (floats(5, 4), *arrays), (floats(4, 4), *arrays))


def test_ranges():
    text = program('exp(cast(arange(0, add(%n, 1), 2, dtype="int32"), dtype="float32"))', "%n: int32")
    check(text, (np.int32(5),), (np.int32(0),))
    text = program('%0 = arange(0f, cast(%n, dtype="float32"), 1f, dtype="float32"); exp(%0)', "%n: int32")
    with pytest.raises(error.UnsupportedOperator, match="decides a shape"):
        lowered(text)
    assert relax.BlockBuilder.current() is None, "the function under construction was left"
