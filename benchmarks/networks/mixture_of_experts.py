"""A mixture of experts: each token goes through the two of eight that its gate prefers; any number of tokens."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (64, 1, 17, 128, 300)

WIDTH, EXPERTS, CHOSEN, LAYERS = 256, 8, 2, 2


class Layer(nn.Module):
    """All experts see all tokens; what a token's gate did not choose counts nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        values, places = self.gate(y).topk(CHOSEN, -1)
        share = torch.zeros_like(self.gate(y)).scatter(-1, places, torch.softmax(values, -1))
        each = nn.functional.silu(y @ self.up) @ self.down
        return x + (each * share.transpose(0, 1).unsqueeze(-1)).sum(0)


class Mixture(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(Layer() for _ in range(LAYERS)))


NETWORK = torch_export.OneTensor(47, Mixture, (None, WIDTH), 16, SIZES, ("x", {0: "tokens"}), ("y", {0: "tokens"}))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
