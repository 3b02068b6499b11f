"""ViT-B/16: patches of 16x16, 12 layers of width 768, for any batch of 224x224 images."""

import torch
from torch import nn

from benchmarks.networks import torch_export
from benchmarks.networks.transformer import Layer

SIZES = (1, 2, 3, 4, 5)
HIDDEN, LAYERS, PATCH = 768, 12, 16


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, HIDDEN, PATCH, PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, HIDDEN))
        self.positions = nn.Parameter(torch.randn(1, (224 // PATCH) ** 2 + 1, HIDDEN) * 0.1)
        self.layers = nn.ModuleList(Layer(HIDDEN, norm_first=True, joint=True) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(self.norm(x)[:, 0])


NETWORK = torch_export.OneTensor(
    22, ViT, (None, 3, 224, 224), 2, SIZES, ("image", {0: "batch"}), ("logits", {0: "batch"})
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
