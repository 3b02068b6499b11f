"""Constructors of the operators of explicit memory."""

import numpy as np

from weft import relay
from weft.relay.op.memory import alloc_storage, alloc_tensor


def test_constant_shapes_are_known():
    storage = relay.var("s", relay.infer_type(alloc_storage(relay.const(96, "int64"))).ty)
    call = alloc_tensor(storage, 64, relay.const(np.array([2, 4], np.int64)))
    assert relay.infer_type(call).checked_type == relay.TensorType((2, 4)) and call.attrs["offset"] == 64


def test_what_is_known_of_other_shapes():
    storage = relay.var("s", relay.infer_type(alloc_storage(relay.const(96, "int64"))).ty)
    shape = relay.var("shape", shape=(2,), dtype="int64")
    call = alloc_tensor(storage, 0, shape, "int8", assert_shape=(-1, 4))
    assert relay.infer_type(call).checked_type == relay.TensorType((relay.Any(), 4), "int8")
