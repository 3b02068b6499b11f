"""A text detector: inverted residuals with squeeze-excite and hard-swish, a feature pyramid, a probability map.

Any height and width that are multiples of 32. The top-down path of the pyramid upsamples once to the size of the next
level, which the model computes from its input, and elsewhere by constant scales.
"""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.networks import torch_export

SIZES = ((1, 320, 320), (1, 64, 96), (2, 160, 224), (1, 32, 32), (3, 96, 64))
# kernel, expanded channels, channels, squeeze-excite, hard-swish, stride
BLOCKS = (
    ((3, 8, 8, True, False, 1), (3, 32, 16, False, False, 2), (3, 40, 16, False, False, 1)),
    ((5, 40, 24, True, True, 2), (5, 64, 24, True, True, 1), (5, 64, 24, True, True, 1)),
    ((5, 120, 48, True, True, 2), (5, 144, 48, True, True, 1)),
    ((5, 288, 96, True, True, 2), (5, 384, 96, True, True, 1)),
)
PYRAMID = 96


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out))


class SqueezeExcite(nn.Module):
    """Scale each channel by a number between 0 and 1 that is computed from all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, max(8, channels // 4), 1)
        self.expand = nn.Conv2d(max(8, channels // 4), channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(pooled))))


class InvertedResidual(nn.Module):
    """Expand, depthwise, optional squeeze-excite, project; with the input added where shapes allow it."""

    def __init__(
        self, c_in: int, kernel: int, expanded: int, c_out: int, excite: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        activation = nn.Hardswish() if hard else nn.ReLU()
        self.body = nn.Sequential(
            conv_norm(c_in, expanded, 1),
            activation,
            conv_norm(expanded, expanded, kernel, stride, groups=expanded),
            activation,
            SqueezeExcite(expanded) if excite else nn.Identity(),
            conv_norm(expanded, c_out, 1),
        )
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class Backbone(nn.Module):
    """Feature maps at 1/4, 1/8, 1/16 and 1/32 of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 8, 3, 2), nn.Hardswish())
        self.stages = nn.ModuleList()
        channels = 8
        for rows in BLOCKS:
            stage = []
            for kernel, expanded, c_out, excite, hard, stride in rows:
                stage.append(InvertedResidual(channels, kernel, expanded, c_out, excite, hard, stride))
                channels = c_out
            self.stages.append(nn.Sequential(*stage))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = []
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class Pyramid(nn.Module):
    """Bring all levels to the same channels, add each to the finer one, and join them at 1/4 of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(rows[-1][2], PYRAMID, 1, bias=False) for rows in BLOCKS)
        self.excite = nn.ModuleList(SqueezeExcite(PYRAMID) for _ in BLOCKS)
        self.smooth = nn.ModuleList(nn.Conv2d(PYRAMID, PYRAMID // 4, 3, padding=1, bias=False) for _ in BLOCKS)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        c2, c3, c4, c5 = (lateral(m) for lateral, m in zip(self.lateral, maps, strict=True))
        p5 = c5
        p4 = c4 + F.interpolate(p5, size=c4.shape[2:], mode="nearest")
        p3 = c3 + F.interpolate(p4, scale_factor=2, mode="nearest")
        p2 = c2 + F.interpolate(p3, scale_factor=2, mode="nearest")
        levels = []
        for level, (p, excite, smooth) in enumerate(zip((p2, p3, p4, p5), self.excite, self.smooth, strict=True)):
            fine = smooth(p + excite(p))
            levels.append(F.interpolate(fine, scale_factor=2**level, mode="nearest") if level else fine)
        return torch.cat(levels, dim=1)


class Head(nn.Module):
    """Probability of text at every pixel of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(PYRAMID, PYRAMID // 4, 3),
            nn.ReLU(),
            nn.ConvTranspose2d(PYRAMID // 4, PYRAMID // 4, 2, 2),
            nn.BatchNorm2d(PYRAMID // 4),
            nn.ReLU(),
            nn.ConvTranspose2d(PYRAMID // 4, 1, 2, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(4 * self.body(x))


class TextDetector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.pyramid, self.head = Backbone(), Pyramid(), Head()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.pyramid(self.backbone(image)))


AXES = {0: "batch", 2: "height", 3: "width"}
NETWORK = torch_export.OneTensor(
    11, TextDetector, (None, 3, None, None), (2, 96, 128), SIZES, ("image", AXES), ("probability", AXES)
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
