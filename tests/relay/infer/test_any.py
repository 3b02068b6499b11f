"""Dimensions that only run time knows."""

import numpy as np
import pytest

from tests.texts import named
from weft import error, relay
from weft.relay.op import op_call


def t(*shape, dtype="float32"):
    return relay.TensorType(tuple(relay.Any() if d is None else d for d in shape), dtype)


def typed(name, *args, **attrs):
    inputs = [relay.Var(f"x{i}", a) if isinstance(a, relay.TensorType) else a for i, a in enumerate(args)]
    return relay.infer_type(op_call(name, *inputs, **attrs)).ty


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ((None,), (None,), (None,)),
        ((None,), (3,), (3,)),
        ((None,), (1,), (None,)),
        ((None, 4), (4,), (None, 4)),
        ((None, 1), (None,), (None, None)),
        ((2, None), (2, None), (2, None)),
    ],
)
def test_broadcast(a, b, out):
    assert typed("add", t(*a), t(*b)) == t(*out)
    assert typed("less", t(*b), t(*a)) == t(*out, dtype="bool")


def test_one_variable_in_both_places():
    x = relay.Var("x", t(None, 3))
    assert relay.infer_type(x + x).ty == t(None, 3)


def test_dense():
    assert typed("nn.dense", t(None, 8), t(16, 8)) == t(None, 16)
    assert typed("nn.dense", t(None, None), t(16, 8)) == t(None, 16)
    with pytest.raises(error.TypeInferenceError, match="inner dimensions"):
        typed("nn.dense", t(None, 9), t(16, 8))


def test_concatenate():
    x, y = relay.Var("x", t(None, 3)), relay.Var("y", t(2, 3))
    assert relay.infer_type(op_call("concatenate", relay.Tuple((x, y)), axis=0)).ty == t(None, 3)
    assert relay.infer_type(op_call("concatenate", relay.Tuple((x, x)), axis=0)).ty == t(None, 3)
    assert relay.infer_type(op_call("concatenate", relay.Tuple((x, x)), axis=1)).ty == t(None, 6)


def test_reshape():
    assert typed("reshape", t(None, 4), newshape=(-1,)) == t(None)
    assert typed("reshape", t(None, 4), newshape=(-1, 2, 2)) == t(None, 2, 2)
    assert typed("reshape", t(6, 4), newshape=(-1, 8)) == t(3, 8)


def test_a_known_length_passes_where_any_is_asked_for():
    mod = relay.fromtext("""
def @f(%x: Tensor[(?, 2), float32]) -> Tensor[(?, 2), float32] { %x }
def @main(%a: Tensor[(3, 2), float32], %b: Tensor[(?, 2), float32]) {
  (@f(%a), @f(%b), @g(%b))
}
def @g(%x: Tensor[(3, 2), float32]) { %x }
""")
    assert relay.infer_type(mod)["main"].ret_type == relay.TupleType((t(None, 2), t(None, 2), t(3, 2)))


def test_another_rank_or_type_does_not_pass():
    f = "def @f(%x: Tensor[(?, 2), float32]) { %x }\n"
    for wrong in ("Tensor[(2), float32]", "Tensor[(2, 2), float64]", "Tensor[(?, 3), float32]"):
        with pytest.raises(error.TypeInferenceError, match="argument 1 of '@f'"):
            relay.infer_type(relay.fromtext(f + f"def @main(%a: {wrong}) {{ @f(%a) }}"))


def test_branches_join():
    mod = relay.fromtext("""
def @one(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(?), float32]) { if (%c) { %x } else { %y } }
def @annotated(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(4), float32]) -> Tensor[(?), float32] {
  let %z = exp(%x);
  if (%c) { if (%c) { %y } else { %z } } else { %y }
}
def @bound(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(4), float32]) {
  let %z: Tensor[(?), float32] = if (%c) { %x } else { %y };
  exp(%z)
}
""")
    assert [f.ret_type for f in relay.infer_type(mod).functions.values()] == [t(None)] * 3


PROGRAMS = named("""
# a parameter's type is found from its first use; the second is wider, and so is what follows from it
def @main(%a: Tensor[(3), float32], %b: Tensor[(?), float32]) {
  let %f = fn (%x) { exp(%x) };
  (%f(%a), %f(%b))
}
# recursion over a growing tensor
def @grow(%i: int32, %x: Tensor[(?, 2), float32]) -> Tensor[(?, 2), float32] {
  if (less(%i, 1)) { %x } else { @grow(subtract(%i, 1), concatenate((%x, %x))) }
}
def @main(%x: Tensor[(1, 2), float32]) { @grow(3, %x) }
# a reference to tensors of any length
def @main(%x: Tensor[(3), float32], %y: Tensor[(?), float32]) {
  let %r = ref(%x);
  let %before = ref_read(%r);
  let %u = ref_write(%r, %y);
  (%before, exp(ref_read(%r)))
}
""")
PAIR = relay.TupleType((t(None), t(None)))


@pytest.mark.parametrize(("name", "expected"), zip(PROGRAMS, [PAIR, t(None, 2), PAIR], strict=True))
def test_what_was_known_is_forgotten_where_it_must_be(name, expected):
    assert relay.infer_type(relay.fromtext(PROGRAMS[name]))["main"].ret_type == expected


@pytest.mark.parametrize("value", [3, np.int64(3), 2.5, np.float64(2.5), [1, 2]])
def test_numbers_of_64_bits_become_constants_of_32(value):
    assert relay.const(value).ty.dtype in ("int32", "float32")
    assert relay.const(value, "float64").ty.dtype == "float64"
    assert relay.const(np.array(value, "int64")).ty.dtype == "int64"


def test_constants_are_dimensions():
    x = relay.Var("x", t(None, 4))
    shape = relay.const(np.array([2, 6], "int64"))
    assert relay.infer_type(op_call("dyn.reshape", x, shape)).ty == t(2, 6)
    assert relay.infer_type(op_call("dyn.reshape", x, relay.Var("s", t(2, dtype="int64")))).ty == t(None, None)
