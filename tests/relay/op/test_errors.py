"""What operators refuse, with what was expected and what was found."""

from typing import Any

import pytest

from tests.refusals import refuses
from weft import error, relay
from weft.relay.op import infer_call


def t(*shape: Any, dtype: str = "float32") -> relay.Var:
    return relay.var("x", shape=shape, dtype=dtype)


def i(*shape: int) -> relay.Var:
    return t(*shape, dtype="int32")


nn, image = relay.nn, relay.image

# A call, and words of the message: what is wrong, what was expected, what was found.
WRONG: list[tuple[Any, tuple[str, ...]]] = [
    (lambda: relay.add(t(2, 3), t(4)), ("add", "do not broadcast", "(2, 3) and (4)")),
    (lambda: relay.add(t(2), i(2)), ("add", "different data types", "float32 and int32")),
    (lambda: relay.exp(i(2)), ("exp", "floating-point", "int32")),
    (lambda: relay.bitwise_not(t(2)), ("bitwise_not", "integer", "float32")),
    (lambda: nn.dense(t(2, 3), t(4, 5)), ("nn.dense", "inner dimensions differ", "3", "5")),
    (lambda: nn.dense(t(2, 3), t(4, 3), units=5), ("nn.dense", "units", "expected 4", "found 5")),
    (lambda: nn.dense(t(2, 3), t(4)), ("nn.dense", "weight", "expected 2 dimensions", "found 1")),
    (lambda: nn.batch_matmul(t(2, 3), t(1, 4, 3)), ("nn.batch_matmul", "tensor_a", "expected 3 dimensions")),
    (lambda: nn.bias_add(t(2, 3), t(4)), ("nn.bias_add", "bias", "expected 3 elements", "found 4")),
    (lambda: nn.bias_add(t(2, 3), t(3), axis=2), ("nn.bias_add", "axis out of range", "found 2")),
    (lambda: nn.conv2d(t(1, 3, 8, 8), t(4, 2, 3, 3)), ("nn.conv2d", "channels", "expected 2", "found 3")),
    (lambda: nn.conv2d(t(1, 3, 8, 8), t(4, 3, 3, 3), channels=5), ("nn.conv2d", "channels", "expected 4", "found 5")),
    (lambda: nn.conv2d(t(1, 3, 8, 8), t(4, 3, 3, 3), kernel_size=(5, 5)), ("kernel_size", "expected 3", "found 5")),
    (lambda: nn.conv2d(t(1, 3, 8, 8), t(4, 3, 3, 3), data_layout="NCXY"), ("nn.conv2d", "unknown layout 'NCXY'")),
    (lambda: nn.conv2d(t(3, 8, 8), t(4, 3, 3, 3)), ("nn.conv2d", "data", "expected 4 dimensions", "found 3")),
    (lambda: nn.max_pool2d(t(1, 3, 8)), ("nn.max_pool2d", "data", "expected 4 dimensions", "found 3")),
    (lambda: nn.batch_norm(t(2, 3), t(4), t(3), t(3), t(3))[0].tuple_value, ("gamma", "expected 3 elements", "4")),
    (lambda: nn.layer_norm(t(2, 3), t(3), t(2)), ("nn.layer_norm", "beta", "expected 3 elements", "found 2")),
    (lambda: nn.softmax(i(2, 3)), ("nn.softmax", "floating-point", "int32")),
    (lambda: nn.softmax(t(2, 3), axis=2), ("nn.softmax", "axis out of range", "expected -2..1", "found 2")),
    (lambda: nn.pad(t(2, 3), ((1, 1),)), ("nn.pad", "expected 4", "found 2")),
    (lambda: nn.mirror_pad(t(2, 3), ((1, 1), (0, 0)), "ROUND"), ("unknown mode 'ROUND'", "SYMMETRIC or REFLECT")),
    (lambda: relay.reshape(t(2, 3), (4, 2)), ("reshape", "number of elements", "expected 6", "found 8")),
    (lambda: relay.reshape(t(2, 3), (-1, -1)), ("reshape", "more than one dimension is -1")),
    (lambda: relay.reshape(t(2, 3), (0, 0, 0)), ("reshape", "no dimension left", "found 2")),
    (lambda: relay.reshape(t(2, 3), (-4, 2)), ("reshape", "followed by two")),
    (lambda: relay.reshape(t(6), (-4, 4, 2)), ("reshape", "expected 6", "found 4 * 2")),
    (lambda: relay.reshape(t(6), (-5,)), ("reshape", "unknown code -5")),
    (lambda: relay.transpose(t(2, 3), (0, 0)), ("transpose",)),
    (lambda: relay.squeeze(t(2, 3), (0,)), ("squeeze", "2")),
    (lambda: relay.squeeze(t(relay.Any(), 3)), ("squeeze", "'axis' must be given")),
    (lambda: relay.concatenate([t(2, 3), t(2)], 0), ("concat", "ranks differ", "expected 1", "found 2")),
    (lambda: relay.concatenate([t(2, 3), t(3, 4)], 0), ("concat", "dimension 1 of tensor 1", "expected 3", "found 4")),
    (lambda: relay.concatenate([t(2, 3), i(2, 3)], 0), ("concat", "different data types", "float32 and int32")),
    (lambda: relay.split(t(7), 3)[0].tuple_value, ("split", "7")),
    (lambda: relay.broadcast_to(t(2, 3), (2, 4)), ("broadcast_to", "expected 1 or 4", "found 3")),
    (lambda: relay.take(t(2, 3), t(4), axis=0), ("take", "must be integers", "float32")),
    (lambda: relay.take(t(2, 3), i(4), axis=0, mode="round"), ("take", "unknown mode 'round'", "clip, wrap or fast")),
    (lambda: relay.gather_nd(t(2, 3), i(3, 4)), ("gather_nd", "at most 2", "found 3")),
    (lambda: relay.scatter_nd(t(2, 3), i(3, 4), t(4)), ("scatter_nd", "at most 2", "found 3")),
    (lambda: relay.scatter_elements(t(2, 3), i(2), t(2)), ("scatter_elements", "ranks differ", "2", "1")),
    (lambda: relay.strided_slice(t(2), (0, 0), (1, 1)), ("strided_slice", "at most 1", "found 2")),
    (lambda: relay.strided_slice(t(2), (0,), (1,), (0,)), ("strided_slice", "stride is 0")),
    (lambda: relay.topk(t(2, 3), 4)[0].tuple_value, ("topk", "at most 3", "found 4")),
    (lambda: relay.where(t(2), t(2), t(3)), ("where", "do not broadcast")),
    (lambda: relay.sum(t(2, 3), axis=(0, 0)), ("sum", "repeated")),
    (lambda: relay.collapse_sum_to(t(2, 3), (2, 2)), ("collapse_sum", "1 or 3", "found 2")),
    (lambda: relay.sequence_mask(t(4, 2), i(3)), ("sequence_mask", "valid_length", "expected 2 elements", "found 3")),
    (lambda: relay.one_hot(t(3), 1.0, 0.0, 4), ("one_hot", "integers", "float32")),
    (lambda: image.resize2d(t(1, 3, 4, 4), (2, 2), method="area"), ("image.resize2d", "unknown method 'area'")),
    (lambda: image.resize2d(t(3, 4, 4), (2, 2)), ("image.resize2d", "expected 4 dimensions", "found 3")),
    (lambda: nn.space_to_depth(t(1, 3, 5, 4), 2), ("space_to_depth", "multiple of 2", "found 5")),
    (lambda: nn.dilate(t(2, 3), (2,)), ("nn.dilate", "expected 2", "found 1")),
    (lambda: relay.unravel_index(t(3), relay.const([2, 3])), ("unravel_index", "integer", "float32")),
    (lambda: relay.meshgrid([t(2), t(2, 3)])[0].tuple_value, ("meshgrid", "expected 1 dimensions", "found 2")),
    (lambda: relay.einsum([t(2, 3), t(4, 2)], "ij,jk->ik"), ("einsum", "j", "3", "4")),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_messages(make: Any, words: tuple[str, ...]) -> None:
    call = make()
    message = str(refuses(error.WeftError, "", infer_call, call))
    assert all(w in message for w in words), message
    assert call.op.name.removeprefix("nn.").removeprefix("image.") in message or call.op.name in message, message
