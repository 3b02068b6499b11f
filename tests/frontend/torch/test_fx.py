"""Modules that torch.fx or torch.compile has traced."""

import numpy as np
import pytest
import torch
from torch import nn

import weft
from tests.frontend.torch.programs import machine
from weft import error, relax
from weft.frontend.torch import dynamo_capture_subgraphs, from_fx, relax_dynamo


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x, y):
        return torch.relu(self.layer(x)) + y


def test_traced_modules_for_known_and_for_any_sizes():
    module = Small().eval()
    traced = torch.fx.symbolic_trace(module)
    n = weft.tir.Var("n", "int64")
    for info in ([((3, 6), "float32"), ((3, 4), torch.float32)], [((n, 6), "float32"), ((n, 4), "float32")]):
        function = machine(from_fx(traced, info))
        x, y = torch.randn(3, 6), torch.randn(3, 4)
        found = function(weft.runtime.from_dlpack(x), weft.runtime.from_dlpack(y))
        np.testing.assert_allclose(found.numpy(), module(x, y).detach().numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(error.InvalidArgument, match="NHWC"):
        from_fx(traced, [((1, 6), "float32"), ((1, 4), "float32")], default_image_layout="NHWC")


def test_modules_return_what_they_return_to_pytorch():
    for model, unwrap, found in (
        (lambda x: x + 1, False, relax.TensorType),
        (lambda x: (x + 1,), False, relax.TupleType),
        (lambda x: (x + 1,), True, relax.TensorType),
        (lambda x: (x + 1, x), True, relax.TupleType),
    ):
        traced = torch.fx.symbolic_trace(model)
        assert isinstance(from_fx(traced, [((3,), "float32")], unwrap_unit_return_tuple=unwrap)["main"].ret_ty, found)


def test_graphs_that_torch_compile_cuts():
    class Cut(nn.Module):
        def forward(self, x):
            y = torch.sin(x)
            torch._dynamo.graph_break()
            return torch.cos(y)

    mod = dynamo_capture_subgraphs(Cut(), torch.ones(3))
    assert sorted(var.name_hint for var in mod.get_global_vars()) == ["subgraph_0", "subgraph_1"]
    vm = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    found = vm["subgraph_1"](vm["subgraph_0"](weft.runtime.tensor(np.ones(3, np.float32))))
    np.testing.assert_allclose(found.numpy(), np.cos(np.sin(np.ones(3))), rtol=1e-6)


def test_a_backend_with_a_pipeline():
    torch._dynamo.reset()
    module = Small().eval()
    compiled = torch.compile(module, backend=relax_dynamo("default"))
    with torch.no_grad():
        args = torch.randn(2, 6), torch.randn(2, 4)
        torch.testing.assert_close(compiled(*args), module(*args), rtol=1e-5, atol=1e-5)


def test_names_of_tvm():
    from weft.relax.frontend.torch import from_exported_program
    from weft.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    assert from_exported_program is weft.frontend.torch.from_exported_program
    assert ExportedProgramImporter.retrieve_args
