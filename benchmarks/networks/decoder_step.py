"""One step of a language model: new tokens go in with the keys and values of the past, logits and longer ones come out.

Batch, number of new tokens and length of the past are dynamic, and the past may be empty. The causal mask and the
positions are computed from the lengths.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.networks import torch_export

SIZES = ((1, 1, 16), (2, 1, 5), (1, 7, 0), (3, 4, 9), (1, 1, 127))  # batch, new tokens, past
LAYERS, HEADS, HEAD, VOCABULARY, POSITIONS = 4, 8, 32, 2000, 512
HIDDEN = HEADS * HEAD


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.project = nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor, past_key: torch.Tensor, past_value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, new = x.shape[0], x.shape[1]
        query, key, value = (
            t.view(batch, new, HEADS, HEAD).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(HIDDEN, dim=2)
        )
        key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        scores = torch.matmul(query, key.transpose(2, 3)) / HEAD**0.5
        weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
        context = torch.matmul(weights, value).transpose(1, 2).reshape(batch, new, HIDDEN)
        x = x + self.project(context)
        return x + self.down(F.gelu(self.up(self.norm2(x)))), key, value


class DecoderStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n_past, new = past[0].shape[2], input_ids.shape[1]
        positions = torch.arange(n_past, n_past + new)
        mask = torch.arange(n_past + new).unsqueeze(0) <= positions.unsqueeze(1)
        x = self.tokens(input_ids) + self.positions(positions)
        present = []
        for i, layer in enumerate(self.layers):
            x, key, value = layer(x, mask, past[2 * i], past[2 * i + 1])
            present += [key, value]
        return (self.head(self.norm(x)), *present)


def _caches(kind: str) -> list[str]:
    return [f"{kind}.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]


def export(path: str | Path) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (2, 3), generator=generator)
    past = [torch.randn(2, HEADS, 6, HEAD, generator=generator) for _ in _caches("past")]
    network = torch_export.build(16, DecoderStep)
    axes = {"input_ids": {0: "batch", 1: "new"}, "logits": {0: "batch", 1: "new"}}
    axes |= {name: {0: "batch", 2: "past"} for name in _caches("past")}
    axes |= {name: {0: "batch", 2: "total"} for name in _caches("present")}
    names, outputs = ["input_ids", *_caches("past")], ["logits", *_caches("present")]
    torch_export.export(network, (ids, *past), path, names, outputs, axes)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    batch, new, n_past = SIZES[size]
    feeds: dict[str, np.ndarray] = {"input_ids": rng.integers(0, VOCABULARY, (batch, new), np.int64)}
    for name in _caches("past"):
        feeds[name] = rng.standard_normal((batch, HEADS, n_past, HEAD), np.float32)
    return feeds
