"""A text recogniser: convolutions that pool the height away, a bidirectional LSTM along the width, a linear head.

Any batch and any width; the height is 32.
"""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = ((1, 320), (3, 100), (1, 37), (2, 64), (5, 201))
HEIGHT = 32
CLASSES = 97


class TextRecogniser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *self._block(1, 32),
            nn.MaxPool2d(2, 2),
            *self._block(32, 64),
            nn.MaxPool2d(2, 2),
            *self._block(64, 96),
            *self._block(96, 96),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *self._block(96, 128),
            nn.AvgPool2d((4, 1), (4, 1)),
        )
        self.sequence = nn.LSTM(128, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, CLASSES)

    @staticmethod
    def _block(c_in: int, c_out: int) -> list[nn.Module]:
        return [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()]

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        columns = self.features(image).squeeze(2).permute(0, 2, 1)
        hidden, _ = self.sequence(columns)
        return torch.softmax(self.head(hidden), dim=2)


def _made() -> nn.Module:
    made = TextRecogniser()
    made.head.weight.data.mul_(20.0)
    return made


NETWORK = torch_export.OneTensor(
    12,
    _made,
    (None, 1, HEIGHT, None),
    (2, 100),
    SIZES,
    ("image", {0: "batch", 3: "width"}),
    ("classes", {0: "batch", 1: "columns"}),
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
