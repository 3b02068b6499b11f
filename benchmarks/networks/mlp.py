"""Three layers of 256 units with ReLU, for any batch: little work, so that a call's own cost shows."""

from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 17, 64)
WIDTH = 256


def _made() -> nn.Module:
    return nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


NETWORK = torch_export.OneTensor(26, _made, (None, WIDTH), 2, SIZES, ("x", {0: "batch"}), ("y", {0: "batch"}))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
