"""Quantised weights and decoders' small operators of ``com.microsoft`` against ONNX Runtime on random inputs."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.arrays import floats, octets
from tests.frontend.onnx.test_microsoft import check, model
from weft.error import UnsupportedOperator
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(12)
f32, u8 = floats(RNG), octets(RNG)


def ints(limit: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, limit, shape)


@pytest.mark.parametrize(("bits", "zeros"), [(2, True), (4, False), (4, True), (8, True), (8, False)])
def test_rows_of_packed_tables(bits: int, zeros: bool) -> None:
    rows, width, block = 7, 64, 16
    given = [
        u8(rows, width * bits // 8),
        ints(2 * rows, 2, 3) - rows,
        abs(f32(rows, width // block)),
        u8(rows, width // block * bits // 8) if zeros else None,
    ]
    given[1][0, 0] = rows + 3  # outside: zeros
    check(
        "GatherBlockQuantized",
        given,
        (1,),
        (0, 2, 3) if zeros else (0, 2),
        bits=bits,
        block_size=block,
        quantize_axis=1,
        gather_axis=0,
    )


@pytest.mark.parametrize("gather_axis", [0, 1, 2])
def test_rows_of_four_bit_tables(gather_axis: int) -> None:
    data = helper.make_tensor("x0", TensorProto.INT4, (3, 33, 4), RNG.integers(-8, 8, 396).tolist())
    made = model(
        "GatherBlockQuantized",
        [np.int8(0), ints(3, 2), abs(f32(3, 3, 4))],
        (1,),
        (2,),
        block_size=16,
        quantize_axis=1,
        gather_axis=gather_axis,
    )
    made.graph.initializer.append(data)
    del made.graph.input[0]
    made.ir_version, made.opset_import[0].version = 10, 21
    indices = ints(3, 2)
    (want,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x1": indices})
    np.testing.assert_allclose(evaluate(from_onnx(made), indices)[0], want, rtol=1e-6)


@pytest.mark.parametrize("kind", [0, 1])
def test_products_with_tables_of_sixteen_numbers(kind: int) -> None:
    n, k, block = 7, 33, 16
    given = [f32(2, 3, k), u8((n * k + 1) // 2), abs(f32(-(-n * k // block)))]
    check("MatMulBnb4", given, (1,), (1, 2), K=k, N=n, block_size=block, quant_type=kind)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrence_with_quantised_weights(direction: str, per_channel: bool) -> None:
    """One step from states that bytes hold exactly: ONNX Runtime rounds inputs and states to bytes at each step."""
    batch, width, hidden, count = 3, 6, 5, 2 if direction == "bidirectional" else 1

    def exact(*shape: int) -> np.ndarray:
        places = RNG.integers(-128, 128, shape)
        places[..., :2] = -128, 127
        return (places / 64).astype(np.float32)

    shape = (count, 4 * hidden) if per_channel else (count,)
    zero = (RNG.integers(-9, 9, shape) * (not per_channel)).astype(np.int8)
    # seven bits: on machines without VNNI, ONNX Runtime's sums of products of bytes saturate
    w, r = (RNG.integers(-63, 64, (count, n, 4 * hidden)).astype(np.int8) for n in (width, hidden))
    scale = (abs(f32(*shape)) + 0.5) / 128
    given = [
        exact(1, batch, width),
        w,
        r,
        f32(count, 8 * hidden),
        None,
        exact(count, batch, hidden),
        f32(count, batch, hidden),
        None,
        scale,
        zero,
        scale,
        zero,
    ]
    check("DynamicQuantizeLSTM", given, (1, 1, 1), (1, 2, 3, 8, 9, 10, 11), direction=direction, hidden_size=hidden)


def test_quantised_embeddings() -> None:
    ids, segments = ints(9, 2, 4).astype(np.int32), ints(2, 2, 4).astype(np.int32)
    tables = [u8(9, 8), u8(6, 8), u8(2, 8), u8(8), u8(8)]
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    scales, zeros = [np.float32(0.01 * (i + 1)) for i in range(5)], [np.uint8(100 + i) for i in range(5)]
    check("QEmbedLayerNormalization", [ids, segments, *tables, mask, *scales, *zeros], (1, 1), epsilon=1e-6)


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_convolution(last: int) -> None:
    x = u8(1, 5, 7, 4) if last else u8(1, 4, 5, 7)
    scale, zero = np.float32(0.02), np.uint8(120)
    given = [x, scale, zero, u8(6, 4, 3, 3), scale, zero, np.float32(0.1), zero, ints(500, 6).astype(np.int32)]
    check("QLinearConv", given, (1,), (3, 8), steps=1, channels_last=last, pads=[1, 1, 1, 1], strides=[2, 1])


def test_gates_and_norms() -> None:
    x, gate = f32(2, 3, 8), f32(2, 3, 8)
    check("ScaledSiLU", [x], alpha=1.3)
    check("ScaledSiLU", [x, np.float32(0.7)])
    check("GatedAdd", [x, gate, f32(2, 3, 1)])
    for activation in ("silu", "sigmoid"):
        check("GatedRMSNorm", [x, f32(4), gate], activation=activation)
    check("BranchwiseRMSNorm", [x, f32(8)], num_branches=2, epsilon=1e-6)
    check("BranchwiseRMSNorm", [x, f32(3, 8)])
    check("BranchwiseRMSNorm", [x])


@pytest.mark.parametrize(("last", "dilation", "state"), [(0, 1, True), (0, 2, False), (1, 2, True), (1, 1, False)])
def test_causal_convolution(last: int, dilation: int, state: bool) -> None:
    channels, length, size = 6, 5, 4
    past = (size - 1) * dilation
    x = f32(2, length, channels) if last else f32(2, channels, length)
    before = f32(2, past, channels) if last else f32(2, channels, past)
    given = [x, f32(channels, 1, size), f32(channels), before if state else None]
    check("CausalConvWithState", given, (1, 1), activation="silu", dilation=dilation, channels_last=last)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    batch, length, heads, groups, size = 2, 5, 4, 2, 8
    key = f32(batch, length, groups, size)
    key = (key / np.linalg.norm(key, axis=-1, keepdims=True)).reshape(batch, length, -1)
    decay = -abs(f32(batch, length, groups)) if "gated" in rule else None
    beta = 1 / (1 + np.exp(-f32(batch, length, groups))) if "delta" in rule else None
    given = [
        f32(batch, length, heads * size),
        key,
        f32(batch, length, groups * size),
        f32(batch, groups, size, size),
        decay,
        beta,
    ]
    check("LinearAttention", given, (1, 1), update_rule=rule, q_num_heads=heads, kv_num_heads=groups)
    if decay is not None and beta is not None:
        check("LinearAttentionGate", [decay, f32(groups), f32(groups), beta], (1, 1))


def test_lookups_and_products() -> None:
    check("UnfoldTensor", [f32(3, 9, 2)], dim=1, size=4, step=2)
    check("UnfoldTensor", [ints(9, 7)], size=3)
    ids = np.array([[1, 2, 3, 1, 2], [5, 5, 5, 5, 5], [1, 2, 3, 4, 5]])
    for size in (1, 2, 3, 6):
        check("NGramRepeatBlock", [ids, f32(3, 7)], ngram_size=size)
    check("Unique", [ints(4, 12).astype(np.float32)], (1, 1, 1))
    short = [(ints(300, 3, 5) - 150).astype(np.int16), (ints(300, 5, 2) - 150).astype(np.int16)]
    check("MatMulInteger16", short)
    for metric in ("euclidean", "sqeuclidean"):
        check("CDist", [f32(4, 5), f32(3, 5)], metric=metric)


def test_what_is_not_known_is_refused() -> None:
    given = [u8(4, 16), ints(4, 2), abs(f32(4, 1))]
    with pytest.raises(UnsupportedOperator, match="the axis of packed bytes"):
        from_onnx(model("GatherBlockQuantized", given, (1,), (0, 2), gather_axis=1))
    with pytest.raises(UnsupportedOperator, match="CDist: an unknown metric"):
        from_onnx(model("CDist", [f32(2, 2), f32(2, 2)], (1,), metric="cosine"))
