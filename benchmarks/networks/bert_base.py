"""BERT-base's encoder with embeddings: 12 layers of width 768, any batch and length, with an attention mask."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export
from benchmarks.networks.transformer import Layer

SIZES = ((1, 128), (1, 8), (1, 37), (2, 64), (3, 5))  # batch, tokens
HIDDEN, LAYERS, VOCABULARY, POSITIONS = 768, 12, 30522, 512


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer(HIDDEN, norm_first=False, joint=False) for _ in range(LAYERS))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1]).unsqueeze(0)
        x = self.norm(self.tokens(input_ids) + self.positions(positions))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, mask)[0]
        return x


def network() -> nn.Module:
    return torch_export.build(23, Bert)


def export(path: str | Path) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (2, 9), generator=generator)
    axes = {n: {0: "batch", 1: "tokens"} for n in ("input_ids", "attention_mask", "hidden")}
    names = ["input_ids", "attention_mask"]
    torch_export.export(network(), (ids, torch.ones_like(ids)), path, names, ["hidden"], axes)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return feeds(rng, *SIZES[size])


def feeds(rng: np.random.Generator, batch: int, length: int) -> dict[str, np.ndarray]:
    """Random tokens; all but the first sentence are shorter than the longest."""
    mask = np.ones((batch, length), np.int64)
    for row in range(1, batch):
        mask[row, int(rng.integers(1, length + 1)) :] = 0
    return {"input_ids": rng.integers(0, VOCABULARY, (batch, length), np.int64), "attention_mask": mask}
