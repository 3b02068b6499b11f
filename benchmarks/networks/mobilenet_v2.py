"""MobileNetV2 with a symbolic batch, with its batch norms left in the graph."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 5)
# expansion, channels, repeats, stride
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(c_out)]


class Block(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        expanded = c_in * expansion
        layers = [*conv_norm(c_in, expanded, 1), nn.ReLU6()] if expansion != 1 else []
        layers += [*conv_norm(expanded, expanded, 3, stride, expanded), nn.ReLU6(), *conv_norm(expanded, c_out, 1)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [*conv_norm(3, 32, 3, 2), nn.ReLU6()]
        channels = 32
        for expansion, c_out, repeats, stride in STAGES:
            for i in range(repeats):
                layers.append(Block(channels, c_out, stride if i == 0 else 1, expansion))
                channels = c_out
        layers += [*conv_norm(channels, 1280, 1), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(1280, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).mean((2, 3)))


AXES = {0: "batch"}
NETWORK = torch_export.OneTensor(
    14, MobileNetV2, (None, 3, 224, 224), 2, SIZES, ("image", AXES), ("logits", AXES), keep_batch_norm=True
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
