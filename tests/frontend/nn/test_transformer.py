"""Blocks of language models, with the weights of PyTorch modules and at several sequence lengths."""

import math

import numpy as np
import pytest
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import compiled, flat
from weft import te, tir

HIDDEN, HEADS, KV_HEADS, SIZE, MLP, VOCAB = 32, 4, 2, 8, 48, 61


def shape(*dims):
    return weft.runtime.ShapeTuple(dims)


# --- Llama ------------------------------------------------------------------------------------------------------------


def rotate(x, offset):
    """Rotary embedding by a function of tensor expressions, x (1, n, heads, size)."""

    def rope(x, offset):
        half = x.shape[3] // 2

        def element(b, s, h, d):
            angle = (s + offset).astype("float32") / tir.power(
                tir.const(10000.0, "float32"), (d % half).astype("float32") * 2 / x.shape[3].astype("float32")
            )
            other = tir.if_then_else(d < half, -x(b, s, h, d + half), x(b, s, h, d - half))
            return x(b, s, h, d) * tir.cos(angle) + other * tir.sin(angle)

        return te.compute(x.shape, element, name="rope")

    return op.tensor_expr_op(rope, "rope", [x, offset])


class LlamaAttention(nn.Module):
    def __init__(self):
        self.q_proj = nn.Linear(HIDDEN, HEADS * SIZE, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIZE, HIDDEN, bias=False)
        self.k_cache = nn.KVCache(4, (KV_HEADS, SIZE))
        self.v_cache = nn.KVCache(4, (KV_HEADS, SIZE))

    def forward(self, x, mask, total):
        n = x.shape[1]
        q = rotate(op.reshape(self.q_proj(x), (1, n, HEADS, SIZE)), total - n)
        k = rotate(op.reshape(self.k_proj(x), (1, n, KV_HEADS, SIZE)), total - n)
        v = op.reshape(self.v_proj(x), (1, n, KV_HEADS, SIZE))
        self.k_cache.append(op.squeeze(k, 0))
        self.v_cache.append(op.squeeze(v, 0))
        k = op.unsqueeze(self.k_cache.view(total), 0)
        v = op.unsqueeze(self.v_cache.view(total), 0)
        k, v = (op.repeat(t, HEADS // KV_HEADS, axis=2) for t in (k, v))
        q, k, v = (op.permute_dims(t, [0, 2, 1, 3]) for t in (q, k, v))
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) / math.sqrt(SIZE) + mask
        out = op.matmul(op.softmax(scores, -1), v)
        return self.o_proj(op.reshape(op.permute_dims(out, [0, 2, 1, 3]), (1, n, HEADS * SIZE)))


class LlamaMLP(nn.Module):
    def __init__(self):
        self.gate_up = nn.Linear(HIDDEN, 2 * MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x):
        gate, up = op.split(self.gate_up(x), 2, axis=-1)
        return self.down(op.silu(gate) * up)


class LlamaLayer(nn.Module):
    def __init__(self):
        self.attn, self.mlp = LlamaAttention(), LlamaMLP()
        self.norm1 = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.norm2 = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)

    def forward(self, x, mask, total):
        x = x + self.attn(self.norm1(x), mask, total)
        return x + self.mlp(self.norm2(x))


class SharedLayer(LlamaLayer):
    define_subroutine = True


class Llama(nn.Module):
    def __init__(self, layer):
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList([layer() for _ in range(2)])
        self.norm = nn.RMSNorm(HIDDEN, -1, 1e-5, bias=False)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def _run(self, ids, mask, total):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask, total)
        n = x.shape[1]
        last = op.strided_slice(self.norm(x), [1], [n - 1], [n])
        return op.astype(self.head(last), "float32")

    def prefill(self, ids, total):
        n = ids.shape[1]
        rows, columns = op.reshape(op.arange(n), (n, 1)), op.reshape(op.arange(total), (1, total))
        first = op.arange(total - n, total - n + 1)
        mask = op.where(columns <= rows + first, 0.0, op.full((1, 1), -1e9))
        return self._run(ids, op.reshape(mask, (1, 1, n, total)), total)

    def decode(self, ids, total):
        return self._run(ids, op.zeros((1, 1, 1, total)), total)


class TorchLlamaLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)  # noqa: E731
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.q_proj, self.attn.k_proj = linear(HIDDEN, HEADS * SIZE), linear(HIDDEN, KV_HEADS * SIZE)
        self.attn.v_proj, self.attn.o_proj = linear(HIDDEN, KV_HEADS * SIZE), linear(HEADS * SIZE, HIDDEN)
        self.mlp.gate_up, self.mlp.down = linear(HIDDEN, 2 * MLP), linear(MLP, HIDDEN)
        self.norm1, self.norm2 = (torch.nn.RMSNorm(HIDDEN, eps=1e-5) for _ in range(2))

    def forward(self, x):
        n = x.shape[1]
        angle = torch.arange(n)[:, None] / 10000 ** (torch.arange(SIZE // 2) * 2 / SIZE)
        cos, sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        turned = lambda t: torch.cat([-t[..., SIZE // 2 :], t[..., : SIZE // 2]], -1)  # noqa: E731
        heads = lambda y, h: y.reshape(1, n, h, SIZE).transpose(1, 2)  # noqa: E731
        y, a = self.norm1(x), self.attn
        q, k = heads(a.q_proj(y), HEADS), heads(a.k_proj(y), KV_HEADS)
        q, k = (t * cos + turned(t) * sin for t in (q, k))
        v = heads(a.v_proj(y), KV_HEADS)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + a.o_proj(out.transpose(1, 2).reshape(1, n, -1))
        gate, up = self.mlp.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.mlp.down(torch.nn.functional.silu(gate) * up)


class TorchLlama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, HIDDEN)
        self.layers = torch.nn.Sequential(*(TorchLlamaLayer() for _ in range(2)))
        self.norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.head = torch.nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.embed(ids))))


@pytest.mark.parametrize("layer", [LlamaLayer, SharedLayer])
def test_llama(layer):
    """A prompt, tokens one by one, then another prompt: each logit is that of the whole sequence."""
    torch.manual_seed(0)
    reference, model = TorchLlama(), Llama(layer)
    model.load_state_dict(reference.state_dict())
    mod, params = model.export_tvm(
        {
            "prefill": {"ids": spec.Tensor([1, "n"], "int32"), "total": int, "$": {"param_mode": "packed"}},
            "decode": {"ids": spec.Tensor([1, 1], "int32"), "total": int, "$": {"param_mode": "packed"}},
        }
    )
    vm = compiled(mod)
    values = [p.data for _, p in params]
    state = vm["_initialize_effect"]()
    seen = []
    for part in ([5, 7, 60], [3], [1], [2, 9, 9, 30, 4], [0]):
        seen += part
        method = "decode" if len(part) == 1 else "prefill"
        ids = weft.runtime.tensor(np.array([part], "int32"))
        logits, state = vm[method](ids, shape(len(seen)), *state, values)
        with torch.no_grad():
            want = reference(torch.tensor([seen]))[:, -1:]
        np.testing.assert_allclose(logits.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


# --- GPT-2 ------------------------------------------------------------------------------------------------------------


class GPTBlock(nn.Module):
    def __init__(self):
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.c_attn, self.c_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.c_fc, self.c_out = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x, past=None):
        b, n, _ = x.shape
        parts = op.split(self.c_attn(self.ln_1(x)), 3, axis=-1)
        q, k, v = (op.reshape(t, (b, n, HEADS, HIDDEN // HEADS)) for t in parts)
        if past is not None:
            k, v = op.concat([past[0], k], 1), op.concat([past[1], v], 1)
        a = op.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.c_proj(op.reshape(a, (b, n, HIDDEN)))
        return x + self.c_out(op.gelu(self.c_fc(self.ln_2(x)), "tanh")), (k, v)


class TorchGPTBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(HIDDEN), torch.nn.LayerNorm(HIDDEN)
        self.c_attn, self.c_proj = torch.nn.Linear(HIDDEN, 3 * HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.c_fc, self.c_out = torch.nn.Linear(HIDDEN, 4 * HIDDEN), torch.nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.reshape(b, n, HEADS, -1) for t in self.c_attn(self.ln_1(x)).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.c_proj(a.transpose(1, 2).reshape(b, n, -1))
        return x + self.c_out(torch.nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")), (k, v)


def test_gpt2():
    """Whole sequences, and one more token with the keys and values of those before as arguments."""
    torch.manual_seed(0)
    reference, model = TorchGPTBlock(), GPTBlock()
    model.load_state_dict(reference.state_dict())
    head = [HEADS, HIDDEN // HEADS]
    past = [spec.Tensor(["b", "m", *head], "float32")] * 2
    mod, params = model.export_tvm({"forward": {"x": spec.Tensor(["b", "n", HIDDEN], "float32")}})
    step, _ = model.export_tvm({"forward": {"x": spec.Tensor(["b", 1, HIDDEN], "float32"), "past": past}})
    values = [p.data for _, p in params]
    whole, one = compiled(mod)["forward"], compiled(step)["forward"]
    for b, n in ((1, 5), (2, 1), (3, 17)):
        x = torch.randn(b, n + 1, HIDDEN)
        with torch.no_grad():
            want = flat(reference(x))
        found = whole(weft.runtime.tensor(x.numpy()), *values)
        for f, w in zip(flat(found), want, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)
        before = [weft.runtime.tensor(w[:, :n]) for w in want[1:]]
        y, keys = one(weft.runtime.tensor(x[:, n:].numpy()), before, *values)
        np.testing.assert_allclose(y.numpy(), want[0][:, n:], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(keys[0].numpy(), want[1], rtol=1e-4, atol=1e-5)
