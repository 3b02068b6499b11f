"""The small layers that examples build programs with."""

import numpy as np
import pytest

import weft
from weft import error, relax, tir
from weft.relax.testing import nn


def test_mlp():
    n = tir.Var("n", "int64")
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4, bias=False), nn.LogSoftmax())
        data = nn.Placeholder((n, 8), name="data")
        out = model(data)
        builder.emit_func_output(out, params=[data, *model.parameters()])
    mod = builder.get()
    assert [p.name_hint for p in mod["main"].params] == ["data", "linear_weight", "linear_bias", "linear_weight1"]
    assert len([v for v, _ in mod.items()]) == 6
    params = nn.init_params(mod)
    vm = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    x = np.random.default_rng(0).standard_normal((3, 8), "float32")
    w1, b1, w2 = (p.numpy() for p in params)
    y = np.maximum(x @ w1 + b1, 0) @ w2
    want = y - y.max(1, keepdims=True)
    want -= np.log(np.exp(want).sum(1, keepdims=True))
    np.testing.assert_allclose(vm["main"](weft.runtime.tensor(x), *params).numpy(), want, rtol=1e-4, atol=1e-5)


def test_errors():
    with pytest.raises(error.InvalidArgument, match="no function under construction"):
        nn.ReLU()(nn.Placeholder((3,)))
    with pytest.raises(error.InvalidArgument, match="needs a Relax function 'main'"):
        nn.init_params(weft.IRModule())
