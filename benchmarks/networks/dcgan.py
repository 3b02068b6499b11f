"""A generator in DCGAN's manner: transposed convolutions from a point to an image of 64 by 64, for any batch."""

from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 8)
NOISE = 100
CHANNELS = (256, 128, 64, 32)


def _made() -> nn.Module:
    layers: list[nn.Module] = []
    before = NOISE
    for i, n in enumerate(CHANNELS):
        grow = nn.ConvTranspose2d(before, n, 4, 2 if i else 1, 1 if i else 0, bias=False)
        layers += [grow, nn.BatchNorm2d(n), nn.ReLU()]
        before = n
    return nn.Sequential(*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1), nn.Tanh())


NETWORK = torch_export.OneTensor(31, _made, (None, NOISE, 1, 1), 2, SIZES, ("z", {0: "batch"}), ("image", {0: "batch"}))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
