"""A few of the architectures that ``make torch-zoo`` compares, one for each way in."""

import pytest
import torch

from benchmarks.torch_zoo import architectures, checked

ALL = {entry.name: entry for entry in architectures()}


@pytest.mark.parametrize(
    ("name", "way"), [("graph_attention", "dynamic"), ("recommender", "dynamic"), ("detector", "compiled")]
)
def test_architecture(name, way):
    torch.manual_seed(0)
    torch._dynamo.reset()
    assert checked(ALL[name], way)[0] == "right"
