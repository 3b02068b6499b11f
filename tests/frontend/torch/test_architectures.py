"""A few of the architectures that ``make torch-zoo`` compares, one for each way in."""

import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks.torch_networks.configured import Configured
from benchmarks.torch_zoo import architectures, checked

ALL = {entry.name: entry for entry in architectures()}


@pytest.mark.parametrize(
    ("name", "way"), [("graph_attention", "dynamic"), ("recommender", "dynamic"), ("detector", "compiled")]
)
def test_architecture(name, way):
    torch.manual_seed(0)
    torch._dynamo.reset()
    assert checked(ALL[name], way)[0] == "right"


@pytest.mark.parametrize("name", ["BertModel", "LlamaModel"])
def test_only_decoders_are_asked_for_no_cache(monkeypatch, name):
    """The package that has the models is not among those of the tests."""
    body = {"__init__": lambda self, config: torch.nn.Module.__init__(self), "forward": lambda self, **given: [given]}
    made = type(name, (torch.nn.Module,), {"config_class": dict, **body})
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(**{name: made}))
    assert ("use_cache" in Configured(name, {}, ("x",), 0)(1)) == (name == "LlamaModel")
