"""GPT-2-small, one step: new tokens go in with the keys and values of the past, logits and longer ones come out.

12 layers of width 768; number of new tokens and length of the past are dynamic, and the past may be empty (prefill).
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export
from benchmarks.networks.transformer import HEAD, Layer

SIZES = ((128, 0), (1, 128), (1, 255), (7, 3), (1, 0))  # new tokens, past
HIDDEN, LAYERS, VOCABULARY, POSITIONS = 768, 12, 50257, 1024
CACHES = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]


class GPT2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleList(
            Layer(HIDDEN, norm_first=True, joint=True, approximate="tanh") for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n_past, new = past[0].shape[2], input_ids.shape[1]
        positions = torch.arange(n_past, n_past + new)
        seen = torch.arange(n_past + new).unsqueeze(0) <= positions.unsqueeze(1)
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        x = self.tokens(input_ids) + self.positions(positions)
        present = []
        for i, layer in enumerate(self.layers):
            x, key, value = layer(x, mask, (past[2 * i], past[2 * i + 1]))
            present += [key, value]
        return (torch.matmul(self.norm(x[:, -1:]), self.tokens.weight.t()), *present)


def network() -> nn.Module:
    return torch_export.build(24, GPT2)


def export(path: str | Path) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (1, 3), generator=generator)
    past = [torch.randn(1, HIDDEN // HEAD, 6, HEAD, generator=generator) for _ in CACHES]
    names, outputs = [f"past.{c}" for c in CACHES], [f"present.{c}" for c in CACHES]
    axes = {"input_ids": {1: "new"}, **{n: {2: "past"} for n in names}, **{n: {2: "total"} for n in outputs}}
    torch_export.export(network(), (ids, *past), path, ["input_ids", *names], ["logits", *outputs], axes)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return feeds(rng, *SIZES[size])


def feeds(rng: np.random.Generator, new: int, n_past: int) -> dict[str, np.ndarray]:
    """Random tokens after a random past."""
    out: dict[str, np.ndarray] = {"input_ids": rng.integers(0, VOCABULARY, (1, new), np.int64)}
    for name in CACHES:
        out[f"past.{name}"] = rng.standard_normal((1, HIDDEN // HEAD, n_past, HEAD), np.float32)
    return out
