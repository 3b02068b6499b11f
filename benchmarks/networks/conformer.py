"""A speech encoder in Conformer's manner: attention and depthwise convolutions over frames, of any number."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (400, 100, 231, 57, 800)

WIDTH, HEADS, BLOCKS, BANDS = 256, 4, 4, 80


class FeedForward(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))


class Block(nn.Module):
    """Half a feed-forward step, attention, convolution, the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = FeedForward(), FeedForward()
        self.before, self.between, self.last = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.along = nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, 31, 1, 15, groups=WIDTH)
        self.point = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(x)
        n, steps = x.shape[:2]
        q, k, v = self.qkv(self.before(x)).reshape(n, steps, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        share = torch.softmax(q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5, -1)
        x = x + self.out((share @ v).transpose(1, 2).reshape(n, steps, WIDTH))
        y = nn.functional.glu(self.gate(self.between(x).transpose(1, 2)), 1)
        x = x + self.point(nn.functional.silu(self.along(y))).transpose(1, 2)
        return self.last(x + 0.5 * self.second(x))


class Conformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(BANDS, WIDTH, 3, 2, 1)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.blocks(torch.relu(self.stem(x)).transpose(1, 2))
        return torch.log_softmax(self.head(y), -1)


NETWORK = torch_export.OneTensor(
    44, Conformer, (1, BANDS, None), 128, SIZES, ("x", {0: "batch", 2: "frames"}), ("y", {0: "batch", 1: "steps"})
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
