"""Modules become Relax functions whose results are those of PyTorch."""

import numpy as np
import pytest
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import spec

import weft
from weft import relax


class MLP(nn.Module):
    def __init__(self, features=10):
        self.fc1 = nn.Linear(features, 16)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


@pytest.fixture(scope="module")
def mlp():
    reference = torch.nn.Sequential()
    reference.add_module("fc1", torch.nn.Linear(10, 16))
    reference.add_module("act", torch.nn.ReLU())
    reference.add_module("fc2", torch.nn.Linear(16, 3))
    model = MLP()
    model.load_state_dict(reference.state_dict())
    return model, reference


@pytest.mark.parametrize("mode", ["plain", "packed"])
def test_mlp(mlp, mode):
    model, reference = mlp
    mod, params = model.export_tvm({"forward": {"x": spec.Tensor(["n", 10], "float32"), "$": {"param_mode": mode}}})
    assert [name for name, _ in params] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert (
        [p.name_hint for p in mod["forward"].params] == ["x", *(n for n, _ in params)]
        if mode == "plain"
        else ["x", "packed_params"]
    )
    vm = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    values = [p.data for _, p in params]
    for n in (1, 7, 0):
        x = np.random.default_rng(n).standard_normal((n, 10), "float32")
        found = vm["forward"](weft.runtime.tensor(x), *(values if mode == "plain" else [values]))
        with torch.no_grad():
            want = reference(torch.tensor(x)).numpy()
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-6)


def test_names_of_apache_tvm():
    """Modules lie where programs written for Apache TVM import them from."""
    from weft.relax.frontend.nn import core, exporter, modules, subroutine, visitor
    from weft.relax.frontend.nn.core import Parameter, wrap_nested

    assert core.Tensor is nn.Tensor and Parameter is nn.Parameter and wrap_nested is nn.wrap_nested
    assert modules.KVCache is nn.KVCache and modules.IOEffect is nn.IOEffect and modules.Linear is nn.Linear
    assert exporter.Exporter is nn.Exporter and visitor.Mutator is nn.Mutator
    assert subroutine.SubroutineMixin is nn.SubroutineMixin and nn.core is core
