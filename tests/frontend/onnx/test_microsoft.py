"""Operators of ``com.microsoft`` against ONNX Runtime on random inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import weft
from tests.arrays import floats, octets
from tests.frontend.models import value_info
from tests.refusals import refuses
from tools.onnx_conformance import CONTRIB
from weft.error import ModelImportError, UnsupportedOperator
from weft.frontend.onnx import from_onnx, supported_operators
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(11)
f32, u8 = floats(RNG), octets(RNG)
onnxruntime.set_default_logger_severity(4)


def model(op: str, given: list[Any], outputs: Any, weights: tuple[int, ...] = (), **attrs: Any) -> onnx.ModelProto:
    """Make a model of one node; None is an input left out, and those in `weights` are constants."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(given)]
    made = [f"y{i}" if wanted else "" for i, wanted in enumerate(outputs)]
    domain = attrs.pop("domain", "com.microsoft")
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain=domain, **attrs)],
        "g",
        [value_info(f"x{i}", x) for i, x in enumerate(given) if x is not None and i not in weights],
        [helper.make_empty_tensor_value_info(n) for n in made if n],
        [numpy_helper.from_array(np.asarray(given[i]), f"x{i}") for i in weights],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(
    op: str,
    given: list[Any],
    outputs: Any = (1,),
    weights: tuple[int, ...] = (),
    tolerance: float = 2e-4,
    steps: int = 0,
    **attrs: Any,
) -> None:
    """Compare with ONNX Runtime; quantised results may differ by some steps."""
    given = [None if x is None else np.asarray(x) for x in given]
    made = model(op, given, outputs, weights, **attrs)
    feeds = {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in weights}
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    for got, want in zip(evaluate(from_onnx(made), *feeds.values()), expected, strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=steps or tolerance)


def test_activations() -> None:
    x = f32(3, 5, 8)
    check("Gelu", [x])
    check("BiasGelu", [x, f32(8)])
    check("FastGelu", [x])
    check("FastGelu", [x, f32(8)])
    check("QuickGelu", [x], alpha=1.3)


@pytest.mark.parametrize("bias", [False, True])
def test_skip_normalisations(bias: bool) -> None:
    x, skip, gamma, beta = f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8)
    last = f32(8) if bias else None
    for outputs in ((1, 0, 0, 1), (1, 1, 1), (1, 0, 1, 1)):
        check("SkipLayerNormalization", [x, skip, gamma, beta, last], outputs, epsilon=1e-5)
        check("SkipSimplifiedLayerNormalization", [x, skip, gamma, last], outputs, epsilon=1e-5)
    check("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-6)


def test_embeddings() -> None:
    ids, segments = RNG.integers(0, 9, (2, 4)).astype(np.int32), RNG.integers(0, 2, (2, 4)).astype(np.int32)
    tables = [f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8)]
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    check("EmbedLayerNormalization", [ids, segments, *tables, mask], (1, 1), epsilon=1e-6)
    check("EmbedLayerNormalization", [ids, segments, *tables], (1, 1))


def test_products() -> None:
    check("FusedMatMul", [f32(2, 3, 4), f32(2, 5, 4)], transB=1, alpha=0.5)
    check("FusedMatMul", [f32(2, 4, 3), f32(2, 4, 5)], transA=1)
    check("FusedMatMul", [f32(3, 2, 4), f32(3, 2, 4)], transBatchA=1, transBatchB=1, transB=1)
    for activation, params in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {})):
        check("FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], transB=1, alpha=0.7, activation=activation, **params)
    x, w, b = f32(1, 4, 7, 6), f32(6, 4, 3, 3), f32(6)
    check("FusedConv", [x, w, b], pads=[1, 1, 1, 1], activation="Relu")
    check("FusedConv", [x, w, b, f32(1, 6, 7, 6)], pads=[1, 1, 1, 1], activation="Relu")
    check("FusedConv", [x, w, b], activation="Clip", activation_params=[-0.5, 0.5])


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_four_bits(zeros: bool) -> None:
    k, n, block = 70, 5, 32
    blocks = -(-k // block)
    b, scales = u8(n, blocks, block // 2), f32(n * blocks)
    packed = u8(n * -(-blocks // 2)) if zeros else None
    weights = (1, 2, 3) if zeros else (1, 2)
    sizes = {"K": k, "N": n, "bits": 4, "block_size": block}
    check("MatMulNBits", [f32(3, k), b, scales, packed], weights=weights, **sizes, tolerance=1e-3)


@pytest.mark.parametrize("given", [(1, 2, 4), ()])
@pytest.mark.parametrize("kind", ["in turn", "in any order", "of unequal size"])
def test_columns_of_blocks_in_any_order(kind: str, given: tuple[int, ...]) -> None:
    k, n, block = 70, 5, 32
    belongs = np.arange(k) // block
    belongs = belongs if kind == "in turn" else RNG.permutation(belongs) if "order" in kind else belongs * 0 + 2
    inputs = [f32(2, 3, k), u8(n, 3, block // 2), f32(n, 3), None, belongs.astype(np.int32)]
    check("MatMulNBits", inputs, weights=given, K=k, N=n, block_size=block, tolerance=1e-3)
    if given:  # with zero points, which ONNX Runtime 1.32 reads for other columns
        zeros = u8(n, 2)
        packed = model("MatMulNBits", [*inputs[:3], zeros, inputs[4]], (1,), (1, 2, 3, 4), K=k, N=n, block_size=block)
        q, z = (np.stack([x & 15, x >> 4], -1).reshape(n, -1).astype(float) for x in (inputs[1], zeros))
        real = (q[:, :k] - z[:, belongs]) * inputs[2].astype(float)[:, belongs]
        np.testing.assert_allclose(evaluate(from_onnx(packed), inputs[0])[0], inputs[0] @ real.T, rtol=1e-4, atol=1e-3)


def test_integer_products() -> None:
    a, b = u8(3, 8), RNG.integers(-64, 64, (8, 4)).astype(np.int8)  # pairs saturate there where a machine lacks VNNI
    scale, one = np.array(0.02, np.float32), np.array(0.01, np.float32)
    check("MatMulIntegerToFloat", [a, b, scale, one, np.uint8(3), np.int8(-2), f32(4)])
    check("MatMulIntegerToFloat", [a, b, scale, np.abs(f32(4)), np.uint8(3)])
    check("DynamicQuantizeMatMul", [f32(3, 8), b, one, np.int8(1), f32(4)], tolerance=1e-3)


QUANTS = (np.array(0.05, np.float32), np.uint8(120))


def test_quantised_operators() -> None:
    a, b = u8(2, 3, 6, 5), u8(2, 3, 6, 5)
    other = (np.array(0.03, np.float32), np.uint8(90))
    check("QLinearAdd", [a, *QUANTS, b, *other, *QUANTS], steps=1)
    check("QLinearMul", [a, *QUANTS, b, *other, *QUANTS], steps=1)
    check("QLinearSigmoid", [a, *QUANTS, np.array(1 / 256, np.float32), np.uint8(0)], weights=(1, 2, 3, 4), steps=1)
    check("QLinearLeakyRelu", [a, *QUANTS, *other], weights=(1, 2, 3, 4), alpha=0.1, steps=1)
    check("QLinearGlobalAveragePool", [a, *QUANTS, *other], steps=1)
    check("QLinearAveragePool", [a, *QUANTS, *other], kernel_shape=[2, 2], strides=[2, 1], steps=1)
    check("QLinearConcat", [*QUANTS, a, *QUANTS, b, *other], weights=(0, 1, 3, 4, 6, 7), axis=1, steps=1)
    check(
        "QLinearSoftmax",
        [a, *QUANTS, np.array(1 / 256, np.float32), np.uint8(0)],
        weights=(1, 2, 3, 4),
        opset=13,
        axis=-1,
        steps=2,
    )
    for attrs in ({"opset": 12, "axis": 1}, {"opset": 11}):
        check("QLinearSoftmax", [a, *QUANTS, np.array(1 / 256, np.float32), np.uint8(0)], steps=2, **attrs)
    check("QGemm", [u8(3, 4), *QUANTS, u8(4, 5), *other, RNG.integers(-99, 99, 5).astype(np.int32), *QUANTS], steps=1)
    check("QGemm", [u8(3, 4), *QUANTS, u8(4, 5), *other], tolerance=1e-3)


B, S, N, H = 2, 5, 4, 8


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(unidirectional: int) -> None:
    x, w, b = f32(B, S, N * H), f32(N * H, 3 * N * H) * 0.2, f32(3 * N * H)
    attrs = {"num_heads": N, "unidirectional": unidirectional}
    check("Attention", [x, w, b], **attrs)
    check("Attention", [x, w, b, np.array([3, 5], np.int32)], **attrs)
    mask = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]], np.int32)
    if not unidirectional:
        check("Attention", [x, w, b, mask], **attrs)
        check("Attention", [x, w, b, np.ascontiguousarray(np.repeat(mask[:, None], S, 1))], **attrs)
        check("Attention", [x, w, b, None, None, f32(B, N, S, S)], **attrs)
    check("Attention", [x, w, b, None, f32(2, B, N, 3, H)], (1, 1), **attrs)


def test_quantised_attention() -> None:
    # 7 bits: ONNX Runtime adds two products of 8 bits in 16, which saturate, where the processor has no better
    x, w = u8(B, S, N * H), RNG.integers(-64, 64, (N * H, 3 * N * H)).astype(np.int8)
    scales = [np.array(0.01, np.float32), np.array(0.005, np.float32)]
    check(
        "QAttention",
        [x, w, f32(3 * N * H), *scales, None, np.uint8(120), np.int8(0)],
        weights=(1,),
        num_heads=N,
        tolerance=1e-3,
    )


def test_multi_head_attention() -> None:
    q, k, v = f32(B, S, N * H), f32(B, 7, N * H), f32(B, 7, N * H)
    check("MultiHeadAttention", [q, k, v], num_heads=N)
    check("MultiHeadAttention", [q, k, v, f32(3 * N * H)], num_heads=N, scale=0.3)
    mask = RNG.integers(0, 2, (B, 7)).astype(np.int32) | np.eye(B, 7, dtype=np.int32)
    check("MultiHeadAttention", [q, k, v, None, mask], num_heads=N)
    check("MultiHeadAttention", [q, k, v, None, None, f32(B, N, S, 7)], num_heads=N)
    for bias in (None, f32(3 * N * H)):
        check("MultiHeadAttention", [q, f32(B, N, 7, H), f32(B, N, 7, H), bias], num_heads=N)
    begins = np.array([4, 7, *range(0, 3 * S, S), *range(0, 21, 7)], np.int32)
    check("MultiHeadAttention", [q, k, v, None, begins], num_heads=N)
    with pytest.raises(ModelImportError, match="keys of causal attention"):  # ONNX Runtime masks all rows but the last
        check("MultiHeadAttention", [q, k, v], num_heads=N, unidirectional=1)
    past = [f32(B, N, 3, H), f32(B, N, 3, H)]
    new = [f32(B, S, N * H), f32(B, S, N * H)]
    check("MultiHeadAttention", [q, *new, None, None, None, *past], (1, 1, 1), num_heads=N)
    check("MultiHeadAttention", [q, *new, None, None, None, *past], (1, 1, 1), num_heads=N, unidirectional=1)


def rotation(places: int, size: int) -> list[np.ndarray]:
    angles = np.outer(np.arange(places), 1 / 100 ** (np.arange(size // 2) / (size // 2)))
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation(interleaved: int) -> None:
    tables = rotation(16, H)
    places = np.array([[0, 3, 5, 7, 2], [1, 2, 3, 4, 5]])
    check("RotaryEmbedding", [f32(B, S, N * H), places, *tables], interleaved=interleaved)
    check("RotaryEmbedding", [f32(B, N, S, H), np.array([4]), *tables], interleaved=interleaved, scale=2.0)


@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("rotary", [0, 1])
def test_grouped_queries(rotary: int, window: int) -> None:
    groups, held = 2, 6
    tables = rotation(32, 16) if rotary else []
    attrs = {"num_heads": N, "kv_num_heads": groups, "do_rotary": rotary, "local_window_size": window}
    q, k, v = f32(B, S, N * 16), f32(B, S, groups * 16), f32(B, S, groups * 16)
    whole = [np.full((B,), S - 1, np.int32), np.array(S, np.int32)]
    check("GroupQueryAttention", [q, k, v, None, None, *whole, *tables], (1, 1, 1), **attrs)
    one = [x[:, :1].copy() for x in (q, k, v)]
    past = [f32(B, groups, held, 16), f32(B, groups, held, 16)]
    after = [np.full((B,), held, np.int32), np.array(held + 1, np.int32)]
    check("GroupQueryAttention", [*one, *past, *after, *tables], (1, 1, 1), **attrs)
    packed = np.concatenate([one[0], one[1], one[2]], -1)
    check("GroupQueryAttention", [packed, None, None, *past, *after, *tables], (1, 1, 1), **attrs)
    if window < 0:
        check("GroupQueryAttention", [q, k, v, None, None, *whole, *tables], (1, 1, 1), causal=0, **attrs)


@pytest.mark.parametrize("sink", [{"smooth_softmax": 1}, {}, None])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_grouped_queries_beside_a_sink(sink: dict[str, int] | None, softcap: float) -> None:
    attrs = {"num_heads": N, "kv_num_heads": 2, "softcap": softcap, **(sink or {})}
    more = [None] * 3 + ([None, f32(N)] if sink == {} else [f32(1, N, S, S)])
    lengths = [np.array([S - 1, S - 1], np.int32), np.array(S, np.int32)]
    qkv = [f32(B, S, N * 16), f32(B, S, 32), f32(B, S, 32)]
    check("GroupQueryAttention", [*qkv, None, None, *lengths, *more], (1, 1, 1), **attrs)
    for shown in (1, 2):
        check("GroupQueryAttention", [*qkv, None, None, *lengths, *more], (1, 1, 1, 1), qk_output=shown, **attrs)
    longer = [f32(B, 2, 9, 16), f32(B, 2, 9, 16)]  # a cache of more places than the bias has
    got, want = (
        evaluate(from_onnx(model("GroupQueryAttention", x, (1, 1, 1), **attrs)), *(a for a in x if a is not None))
        for x in ([*qkv, *past, *lengths, *more] for past in (longer, [None, None]))
    )
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_softmax_with_bias_and_others() -> None:
    for n, lead in ((4, (2,)), (1, (3, 2)), (9, ())):
        check("Inverse", [f32(*lead, n, n) + n * np.eye(n, dtype=np.float32)], tolerance=1e-3)
    refuses(RuntimeError, "a matrix has none", check, "Inverse", [np.ones((2, 3, 3), np.float32)])
    check("Trilu", [f32(3, 4)], upper=0)
    check("GatherND", [f32(3, 4), np.int32([[0, 1], [-1, 2]])])
    check("NhwcMaxPool", [u8(1, 6, 5, 3)], kernel_shape=[2, 2])


TOKENS = (
    {"separators": [" "]},
    {"separators": [""]},
    {"separators": ["[ ]+", "-"]},
    {"separators": ["a*"]},
    {"separators": ["a|ab", " "]},
    {"tokenexp": "."},
    {"tokenexp": "[a-zA-Z0-9_]+"},
    {"tokenexp": "a|ab|abab"},
    {"tokenexp": "(a?)(ab)?"},
    {"tokenexp": r"\b\w\w+\b"},
)


@pytest.mark.parametrize("attrs", TOKENS, ids=str)
def test_tokens(attrs: dict[str, Any]) -> None:
    """Of any characters, at separators or where an expression matches, as long as it can."""
    texts = ["Hello World", "I love  science !", "", "abab a-b_c.d", "été naïve日本 語", "(a|ab)bcd", "  lead trail "]
    for x in (texts, ["  ", ""], [texts]):
        for mark, least in ((0, 1), (1, 1), (1, 2)):
            if least == 1 or not {"", "."} & {*attrs.get("separators", []), attrs.get("tokenexp", " ")}:
                given = np.array(x, object)
                made = model("Tokenizer", [given], (1,), mark=mark, mincharnum=least, pad_value="#", **attrs)
                (want,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": given})
                np.testing.assert_array_equal(np.asarray(weft.Session(made).run({"x0": given})[0], object), want)


def test_tokens_are_asked_for_in_one_way() -> None:
    for wrong in ({"separators": [" "], "tokenexp": "a"}, {}, {"tokenexp": ".", "mincharnum": 2}):
        with pytest.raises(ModelImportError, match="Tokenizer"):
            from_onnx(model("Tokenizer", [np.array(["a"], object)], (1,), mark=0, pad_value="", **wrong))


def test_optimised_images_come_in_blocks_of_channels(tmp_path: Path) -> None:
    """What ONNX Runtime saves of convolutions at its highest level, for the processor at hand."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 3, 14, 12] x) => (float[N, C, H, W] y, float[N, D, 1, 1] z) {
      a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, wa, ba)
      b = Relu(a)
      c = Conv<group = 24, pads = [1, 1, 1, 1]>(b, wc)
      d = HardSigmoid<alpha = 0.2>(c)
      e = Conv(d, we, be)
      f = Add(e, d)
      h = Relu(f)
      i = MaxPool<kernel_shape = [2, 2], strides = [1, 1], pads = [0, 0, 1, 1]>(h)
      j = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(h)
      k = Concat<axis = 1>(i, j)
      l = Conv<group = 2>(k, wl)
      m = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(l, , scales)
      y = Conv(m, wy)
      n = GlobalAveragePool(l)
      o = GlobalMaxPool(l)
      z = Concat<axis = 1>(n, o)
    }""")
    weights = {"wa": f32(24, 3, 3, 3), "ba": f32(24), "wc": f32(24, 1, 3, 3), "we": f32(24, 24, 1, 1), "be": f32(24)}
    weights |= {"wl": f32(32, 24, 1, 1), "wy": f32(5, 32, 1, 1), "scales": np.array([1, 1, 2, 2], np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    saved = onnx.load(tmp_path / "saved.onnx")
    there = {n.op_type for n in saved.graph.node if n.domain == "com.microsoft.nchwc"}
    assert {"Conv", "ReorderOutput"} <= there <= set(supported_operators("com.microsoft.nchwc"))
    x = f32(2, 3, 14, 12)
    for got, want in zip(evaluate(from_onnx(saved), x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_what_is_not_known_is_refused() -> None:
    refuses(UnsupportedOperator, "its attribute 'theta'", from_onnx, model("QuickGelu", [f32(3)], (1,), theta=1.0))
    refuses(ModelImportError, "wrong number of inputs", from_onnx, model("FusedMatMul", [f32(3, 3)], (1,)))
    refuses(UnsupportedOperator, "PagedAttention", from_onnx, model("PagedAttention", [f32(3)], (1,)))


def test_each_operator_of_the_runtime_is_here_or_has_its_reason() -> None:
    kernels = onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def()
    there, plain = (
        {k.op_name for k in kernels if (k.domain, k.provider) == (domain, "CPUExecutionProvider")}
        for domain in ("com.microsoft", "")
    )
    for name in plain - set(supported_operators()):
        assert onnx.defs.get_schema(name).has_function or onnx.defs.get_schema(name).has_context_dependent_function
    reasons = {name for names in CONTRIB for name in names.split()}
    assert there - set(supported_operators("com.microsoft")) == reasons
