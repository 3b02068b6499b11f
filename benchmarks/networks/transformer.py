"""Transformer layers that several networks here are made of: attention with a mask, norms before or after."""

import torch
from torch import nn
from torch.nn import functional as F

HEAD = 64


class Attention(nn.Module):
    """Attention over all heads; keys and values may go on from earlier ones.

    Parameters
    ----------
    hidden : int
        Width, a multiple of 64.
    joint : bool
        Queries, keys and values by one product instead of three.
    """

    def __init__(self, hidden: int, joint: bool) -> None:
        super().__init__()
        self.hidden, self.joint = hidden, joint
        self.qkv = (
            nn.Linear(hidden, 3 * hidden) if joint else nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        )
        self.project = nn.Linear(hidden, hidden)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, past: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the result, and the keys and values that it looked at."""
        batch, length = x.shape[0], x.shape[1]
        parts = self.qkv(x).split(self.hidden, dim=2) if self.joint else [f(x) for f in self.qkv]
        query, key, value = (t.view(batch, length, self.hidden // HEAD, HEAD).transpose(1, 2) for t in parts)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        scores = torch.matmul(query, key.transpose(2, 3)) / HEAD**0.5
        if mask is not None:
            scores = scores + mask
        context = torch.matmul(torch.softmax(scores, dim=-1), value)
        return self.project(context.transpose(1, 2).reshape(batch, length, self.hidden)), key, value


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual and a norm: first (GPT, ViT) or last (BERT)."""

    def __init__(self, hidden: int, norm_first: bool, joint: bool, approximate: str = "none") -> None:
        super().__init__()
        self.norm_first, self.approximate = norm_first, approximate
        self.attention = Attention(hidden, joint)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, past: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the result and the keys and values."""
        found, key, value = self.attention(self.norm1(x) if self.norm_first else x, mask, past)
        x = x + found
        if not self.norm_first:
            x = self.norm1(x)
        y = x + self.down(F.gelu(self.up(self.norm2(x) if self.norm_first else x), approximate=self.approximate))
        return (y if self.norm_first else self.norm2(y)), key, value
