"""SegFormer-B0's encoder and head: attention over images whose keys are reduced, any batch."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 5)

WIDTHS, DEPTHS, HEADS, REDUCED = (32, 64, 160, 256), (2, 2, 2, 2), (1, 2, 5, 8), (8, 4, 2, 1)


class Block(nn.Module):
    """Attention with fewer keys than queries, then products around a depthwise convolution."""

    def __init__(self, width: int, heads: int, reduced: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.before, self.after, self.fewer_norm = (nn.LayerNorm(width) for _ in range(3))
        self.fewer = nn.Conv2d(width, width, reduced, reduced)
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mix = nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width)

    def forward(self, x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        x = x + self._attention(self.before(x), rows, columns)
        y = self.wide(self.after(x))
        y = self.mix(y.transpose(1, 2).reshape(-1, 4 * self.width, rows, columns)).flatten(2).transpose(1, 2)
        return x + self.narrow(nn.functional.gelu(y))

    def _attention(self, x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        n, each = rows * columns, self.width // self.heads
        image = self.fewer(x.transpose(1, 2).reshape(-1, self.width, rows, columns))
        keys = self.fewer_norm(image.flatten(2).transpose(1, 2))
        q = self.q(x).reshape(-1, n, self.heads, each).transpose(1, 2)
        k, v = self.kv(keys).reshape(-1, keys.shape[1], 2, self.heads, each).permute(2, 0, 3, 1, 4).unbind(0)
        share = torch.softmax(q @ k.transpose(2, 3) * each**-0.5, -1)
        return self.out((share @ v).transpose(1, 2).reshape(-1, n, self.width))


class SegFormer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        before = (3, *WIDTHS[:-1])
        self.cut = nn.ModuleList(
            nn.Conv2d(b, w, 3 if i else 7, 2 if i else 4, 1 if i else 3)
            for i, (b, w) in enumerate(zip(before, WIDTHS, strict=True))
        )
        self.stages = nn.ModuleList(
            nn.ModuleList(Block(w, h, r) for _ in range(d))
            for w, d, h, r in zip(WIDTHS, DEPTHS, HEADS, REDUCED, strict=True)
        )
        self.same = nn.ModuleList(nn.Conv2d(w, 256, 1) for w in WIDTHS)
        self.join, self.head = nn.Conv2d(1024, 256, 1), nn.Conv2d(256, 150, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, side = [], SIDE
        for i, (cut, blocks, same) in enumerate(zip(self.cut, self.stages, self.same, strict=True)):
            side //= 2 if i else 4
            y = cut(x).flatten(2).transpose(1, 2)
            for block in blocks:  # type: ignore[attr-defined]
                y = block(y, side, side)
            x = y.transpose(1, 2).reshape(-1, WIDTHS[i], side, side)
            found.append(nn.functional.interpolate(same(x), size=(SIDE // 4, SIDE // 4), mode="bilinear"))
        return self.head(torch.relu(self.join(torch.cat(found, 1))))


SIDE = 256


NETWORK = torch_export.OneTensor(
    43, SegFormer, (None, 3, SIDE, SIDE), 1, SIZES, ("x", {0: "batch"}), ("y", {0: "batch"})
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
