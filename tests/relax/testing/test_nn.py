"""The small layers that examples build programs with."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax, tir
from weft.relax.testing import nn


def test_mlp():
    n = tir.Var("n", "int64")
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4, bias=False), nn.LogSoftmax())
        data = nn.Placeholder((n, 8), name="data")
        builder.emit_func_output(model(data), params=[data, *model.parameters()])
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
    refuses(error.InvalidArgument, "no function under construction", nn.ReLU(), nn.Placeholder((3,)))
    refuses(error.InvalidArgument, "needs a Relax function 'main'", nn.init_params, weft.IRModule())


@pytest.mark.parametrize("how", ["checkpoint", "emit_checkpoint", "sequential"])
def test_what_is_computed_again_has_the_same_gradient(how: str):
    def cube(x):
        return x * x * x

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            if how == "sequential":
                y = nn.emit_checkpoint_sequential([cube] * 3, 2, data)
            else:
                again = getattr(nn, how)
                y = builder.emit(cube(builder.emit(again(cube, builder.emit(again(cube, data))))))
            out = builder.emit_output(relax.op.sum(y))
        builder.emit_func_output(out)
    assert str(builder.get()).count("start_checkpoint") == 2
    mod = relax.transform.Gradient("main")(builder.get())
    assert "checkpoint" not in str(mod["main_adjoint"])
    vm = relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    x = np.random.default_rng(0).uniform(0.5, 1, (2, 3)).astype("float32")
    _, (gradient,) = vm["main_adjoint"](weft.runtime.tensor(x))
    np.testing.assert_allclose(gradient.numpy(), 27 * x.astype("float64") ** 26, rtol=1e-5)


def test_segments_that_are_none():
    refuses(error.InvalidArgument, "number of segments", nn.emit_checkpoint_sequential, [abs], 2, nn.Placeholder((3,)))
    with pytest.raises(error.InvalidArgument, match="where segments begin"):
        nn.emit_checkpoint_sequential([abs] * 3, [0, 2, 1], nn.Placeholder((3,)))
