"""MobileNetV3-large for any image size, with its batch norms left in the graph."""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.networks import torch_export

SIZES = ((1, 224, 224), (1, 128, 160), (2, 96, 96), (1, 65, 97), (4, 64, 48))
# kernel, expanded channels, channels, squeeze-excite, hard-swish, stride
BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out, eps=1e-3))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = (channels // 4 + 7) // 8 * 8
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = x.mean(dim=(2, 3), keepdim=True)
        return F.hardsigmoid(self.expand(F.relu(self.reduce(pooled)))) * x


class Bottleneck(nn.Module):
    def __init__(
        self, c_in: int, kernel: int, expanded: int, c_out: int, excite: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != c_in:
            layers += [conv_norm(c_in, expanded, 1), activation()]
        layers += [conv_norm(expanded, expanded, kernel, stride, expanded), activation()]
        if excite:
            layers.append(SqueezeExcite(expanded))
        layers.append(conv_norm(expanded, c_out, 1))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2), nn.Hardswish()]
        channels = 16
        for kernel, expanded, c_out, excite, hard, stride in BLOCKS:
            layers.append(Bottleneck(channels, kernel, expanded, c_out, excite, hard, stride))
            channels = c_out
        layers += [conv_norm(channels, 960, 1), nn.Hardswish()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(self.features(image), 1)
        return self.head(torch.flatten(x, 1))


AXES = {0: "batch", 2: "height", 3: "width"}
NETWORK = torch_export.OneTensor(
    13, MobileNetV3, (None, 3, None, None), (4, 128, 128), SIZES, ("image", AXES), ("logits", {0: "batch"}), True
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
