"""A decoder with a paged cache, exported, compiled and run: every step agrees with attention over all tokens."""

import numpy as np
import pytest
from tvm_ffi import Shape

import weft
from weft.frontend import nn
from weft.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

HIDDEN, HEADS, KV_HEADS, SIZE, LAYERS, VOCABULARY = 24, 6, 2, 8, 2, 11


class Block(nn.Module):
    """One layer: attention over the cache, and what was there before it."""

    def __init__(self):
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, HIDDEN, bias=False)

    def forward(self, x, cache: PagedKVCache, layer: int):
        b, s, _ = x.shape
        qkv = self.qkv(x).reshape(b, s, HEADS + 2 * KV_HEADS, SIZE)
        attended = cache.attention_with_fused_qkv(layer, qkv, HEADS, *([SIZE**-0.5] if layer else []))
        return x + self.out(attended.reshape(b, s, HEADS * SIZE))


class Decoder(nn.Module):
    """Tokens to logits of the next ones."""

    def __init__(self):
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def run(self, ids, cache: PagedKVCache):
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, cache, i)
        return self.head(x), cache

    prefill = decode = run

    def create_cache(self, sequences, tokens, step, page_size):
        return TIRPagedKVCache(
            max_batch_size=sequences,
            max_total_seq_len=tokens,
            prefill_chunk_size=step,
            page_size=page_size,
            support_sliding_window=0,
            layer_partition=weft.relax.ShapeExpr([0, LAYERS]),
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=SIZE,
            rope_mode=RopeMode.NORMAL,
            rope_scale=1,
            rope_theta=10000,
            rope_scaling={},
            rope_ext_factors=weft.tir.IntImm("int64", 0),
            rotary_dim=SIZE,
            dtype="float32",
            target=weft.target.Target("llvm"),
        )


def reference(weights, ids):
    """Logits of every position of one sequence, in float64, without a cache."""
    x = weights["embedding.weight"][ids]
    n = len(ids)
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, SIZE, 2) / SIZE)
    cos, sin = (np.concatenate([f(angles)] * 2, axis=-1)[:, None] for f in (np.cos, np.sin))

    def turned(x):
        return x * cos + np.concatenate([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], axis=-1) * sin

    for i in range(LAYERS):
        qkv = (x @ weights[f"layers.{i}.qkv.weight"].T).reshape(n, -1, SIZE)
        q, k = turned(qkv[:, :HEADS]), turned(qkv[:, HEADS : HEADS + KV_HEADS])
        k, v = (np.repeat(t, HEADS // KV_HEADS, axis=1) for t in (k, qkv[:, HEADS + KV_HEADS :]))
        scores = np.einsum("qhd,khd->hqk", q, k) * SIZE**-0.5
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hqk,khd->qhd", weight / weight.sum(-1, keepdims=True), v)
        x = x + attended.reshape(n, -1) @ weights[f"layers.{i}.out.weight"].T
    return x @ weights["head.weight"].T


@pytest.fixture(scope="module")
def decoder():
    """The compiled decoder and its weights."""
    ids = {"ids": nn.spec.Tensor([1, "n"], "int32"), "cache": nn.spec.Object(PagedKVCache)}
    packed = {"param_mode": "packed", "effect_mode": "none"}
    numbers = dict.fromkeys(("sequences", "tokens", "step", "page_size"), int)
    mod, params = Decoder().export_tvm(
        {
            "prefill": {**ids, "$": packed},
            "decode": {**ids, "ids": nn.spec.Tensor(["b", 1], "int32"), "$": packed},
            "create_cache": {**numbers, "$": {"param_mode": "none", "effect_mode": "none"}},
        }
    )
    vm = weft.relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=[int(d) for d in p.shape]) / 3 for name, p in params}
    return vm, [weft.runtime.tensor(w.astype("float32")) for w in weights.values()], weights


def step(decoder, cache, batch):
    """Feed each sequence of a batch its new tokens; return their logits."""
    vm, params, _ = decoder
    lengths = [len(new) for _, new in batch]
    weft.get_global_func("vm.builtin.kv_state_begin_forward")(cache, Shape([i for i, _ in batch]), Shape(lengths))
    ids = np.concatenate([new for _, new in batch]).astype("int32")
    single = all(n == 1 for n in lengths)
    name, shape = ("decode", (-1, 1)) if single else ("prefill", (1, -1))
    logits, _ = vm[name](weft.runtime.tensor(ids.reshape(shape)), cache, params)
    weft.get_global_func("vm.builtin.kv_state_end_forward")(cache)
    return np.split(logits.numpy().reshape(len(ids), -1), np.cumsum(lengths)[:-1])


@pytest.mark.parametrize("page_size", [4, 16])
def test_steps_agree_with_attention_over_all_tokens(decoder, page_size):
    vm, _, weights = decoder
    cache = vm["create_cache"](Shape([4]), Shape([64]), Shape([32]), Shape([page_size]))
    rng = np.random.default_rng(1)
    add, fork = (weft.get_global_func("vm.builtin.kv_state_" + n) for n in ("add_sequence", "fork_sequence"))
    told = {0: [], 1: []}
    for i in told:
        add(cache, i)
    plan = [{0: 5, 1: 7}, {0: 1, 1: 1}, {1: 3}, {0: 1}, {0: 2, 1: 1}, {0: 1, 1: 1, 2: 1}, {1: 4, 2: 9}]
    for lengths in plan:
        if 2 in lengths and 2 not in told:
            fork(cache, 1, 2, 6)
            told[2] = told[1][:6]
        new = {i: list(rng.integers(0, VOCABULARY, n)) for i, n in lengths.items()}
        for (i, tokens), logits in zip(new.items(), step(decoder, cache, list(new.items())), strict=True):
            told[i] = told[i] + tokens
            expected = reference(weights, told[i])[-len(tokens) :]
            np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
