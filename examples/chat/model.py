"""A decoder in Llama's form: RMS norms, rotary positions, grouped queries, gated MLPs; to be trained, and to be served.

Both forms have the same parameters. The one that is trained sees whole rows of text; the one that is served keeps keys
and values of any number of conversations in pages, reads weights of 4 bits and draws the next tokens itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft import relax
from weft.frontend import nn
from weft.frontend.nn import op, spec
from weft.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from weft.frontend.weights import Groups, bind_weights, quantize_matrix

__all__ = ["COLUMNS", "THETA", "Config", "Decoder", "compile_decoder", "training_module"]

THETA = 10000.0
COLUMNS = {
    "seed": "int64",
    "position": "int64",
    "temperature": "float32",
    "top_k": "int64",
    "top_p": "float64",
    "penalty": "float32",
}
"""What a draw has for each row, and its data type."""


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder.

    `window` is how many of the last tokens attention sees, 0 for all; `pages` what the cache holds.
    """

    vocabulary: int
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    groups: int = 2
    inner: int = 352
    window: int = 0
    pages: str = "float32"

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads


class _Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        self.c = c
        self.qkv = nn.Linear(c.hidden, (c.heads + 2 * c.groups) * c.head, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)

    def served(self, x: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        c, (b, s, _) = self.c, x.shape
        qkv = self.qkv(x).reshape(b, s, c.heads + 2 * c.groups, c.head)
        mixed = cache.attention_with_fused_qkv(layer, qkv, c.heads, c.head**-0.5)
        return self.out(mixed.reshape(b, s, c.hidden))

    def trained(self, x: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        c, (b, s, _) = self.c, x.shape
        qkv = op.permute_dims(self.qkv(x).reshape(b, s, c.heads + 2 * c.groups, c.head), [0, 2, 1, 3])
        q, k, v = op.split(qkv, [c.heads, c.heads + c.groups], axis=1)
        q, k = (_turned(t, cos, sin) for t in (q, k))
        k, v = (op.repeat(t, c.heads // c.groups, axis=1) for t in (k, v))
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) * c.head**-0.5 + mask
        mixed = op.permute_dims(op.matmul(op.softmax(scores), v), [0, 2, 1, 3])
        return self.out(mixed.reshape(b, s, c.hidden))


def _turned(x: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor) -> nn.Tensor:
    low, high = op.split(x, 2, axis=-1)
    return x * cos + op.concat([op.negative(high), low], -1) * sin


class _Layer(nn.Module):
    def __init__(self, c: Config) -> None:
        self.norm, self.norm2 = (nn.RMSNorm(c.hidden, -1, bias=False) for _ in range(2))
        self.attention = _Attention(c)
        self.gate, self.up = (nn.Linear(c.hidden, c.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(c.inner, c.hidden, bias=False)

    def mlp(self, x: nn.Tensor) -> nn.Tensor:
        y = self.norm2(x)
        return x + self.down(op.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """The decoder; tokens are numbers below ``config.vocabulary``."""

    def __init__(self, config: Config) -> None:
        self.c = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers: Any = nn.ModuleList([_Layer(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.hidden, -1, bias=False)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    def backbone(self, ids: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        """Return logits (b * s, vocabulary) of rows of text (b, s)."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer.mlp(x + layer.attention.trained(layer.norm(x), cos, sin, mask))
        return self.head(self.norm(x).reshape(-1, self.c.hidden))

    def step(
        self,
        ids: nn.Tensor,
        rows: nn.Tensor,
        seed: nn.Tensor,
        position: nn.Tensor,
        temperature: nn.Tensor,
        top_k: nn.Tensor,
        top_p: nn.Tensor,
        penalty: nn.Tensor,
        history: nn.Tensor,
        cache: PagedKVCache,
    ) -> tuple[nn.Tensor, PagedKVCache]:
        """Append tokens (1, n) of the sequences that the cache was told of; draw what follows those at `rows` (m,)."""
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            x = layer.mlp(x + layer.attention.served(layer.norm(x), cache, i))
        last = op.take(x.reshape(-1, self.c.hidden), rows, axis=0)
        logits = self.head(self.norm(last))
        number = op.uniform_at(seed, position)
        return op.sample_token(logits, number, temperature, top_k, top_p, penalty, history), cache

    def create_cache(self, sequences: Any, tokens: Any, chunk: Any, page: Any) -> TIRPagedKVCache:
        """Make the cache: the most sequences, tokens and tokens of a step, and tokens of a page."""
        c = self.c
        return TIRPagedKVCache(
            attn_kind="mha",
            max_batch_size=sequences,
            max_total_seq_len=tokens,
            prefill_chunk_size=chunk,
            page_size=page,
            support_sliding_window=int(c.window > 0),
            layer_partition=weft.ir.shape_expr([0, c.layers]),
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.groups,
            qk_head_dim=c.head,
            v_head_dim=c.head,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1,
            rope_theta=THETA,
            rope_scaling={},
            rope_ext_factors=weft.tir.IntImm("int64", 0),
            rotary_dim=c.head,
            enable_disaggregation=False,
            dtype="float32",
            target=weft.target.Target("llvm"),
            page_dtype=c.pages,
        )


def training_module(c: Config, batch: int, length: int) -> tuple[Any, list[tuple[str, tuple[int, ...]]]]:
    """Return the module that ``SetupTrainer`` takes, and names and shapes of the parameters."""
    tables = {name: spec.Tensor([length, c.head], "float32") for name in ("cos", "sin")}
    inputs = {"ids": spec.Tensor([batch, length], "int32"), **tables, "mask": spec.Tensor([length, length], "float32")}
    mod, params = Decoder(c).export_tvm({"backbone": {**inputs, "$": {"param_mode": "plain", "effect_mode": "none"}}})
    shapes = [(name, tuple(int(d) for d in p.shape)) for name, p in params]
    return mod.with_attrs({"param_num": len(shapes), "state_num": 0}), shapes


def compile_decoder(c: Config, weights: dict[str, np.ndarray], bits: int = 4) -> tuple[relax.VirtualMachine, int]:
    """Compile the decoder for serving; return its machine, and how many bytes of weights a token reads.

    Matrices of products have weights of `bits` bits in groups of 32, and rows that they multiply are rounded to bytes.
    """
    stored: dict[str, Any] = {}
    for name, value in weights.items():
        is_product = value.ndim == 2 and not name.startswith("embedding")
        stored[name] = quantize_matrix(value, bits) if bits < 16 and is_product else value
    plain = {"param_mode": "plain", "effect_mode": "none"}
    column = {name: spec.Tensor(["m", 1], dtype) for name, dtype in COLUMNS.items()}
    numbers = dict.fromkeys(("sequences", "tokens", "chunk", "page"), int)
    mod, _ = Decoder(c).export_tvm(
        {
            "step": {
                "ids": spec.Tensor([1, "n"], "int32"),
                "rows": spec.Tensor(["m"], "int64"),
                **column,
                "history": spec.Tensor(["m", "seen"], "int64"),
                "cache": spec.Object(PagedKVCache),
                "$": plain,
            },
            "create_cache": {**numbers, "$": {"param_mode": "none", "effect_mode": "none"}},
        }
    )
    bound = bind_weights(mod, stored, "step", rows="int8")
    size = sum(_bytes(w) for w in stored.values()) - weights["embedding.weight"].nbytes
    return relax.VirtualMachine(weft.compile(bound, "llvm"), weft.cpu()), size


def _bytes(weight: np.ndarray | Groups) -> int:
    return weight.nbytes if isinstance(weight, np.ndarray) else weight.q.size // 2 + weight.scale.size * 2
