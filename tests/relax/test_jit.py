"""Executables of Relax: kernels of symbolic shapes are compiled for the shapes that stay hot."""

import numpy as np
import pytest

import weft
from tests.clock import eventually
from weft import relax
from weft.runtime import jit
from weft.script import ir as I  # noqa: N812
from weft.script import relax as R  # noqa: N812


@I.ir_module
class Softmax:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        with R.dataflow():
            y = R.nn.softmax(x)
            z = R.add(y, x)
            R.output(z)
        return z


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(jit, "HOT_CALLS", 32)
    monkeypatch.setattr(jit, "HOT_NS", 1)


def reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) + x


def test_hot_shape_gets_a_kernel():
    exe = relax.build(Softmax, "llvm")
    assert exe.recompilable
    vm = relax.VirtualMachine(exe, weft.cpu(), jit=True)
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    run = vm["main"]
    eventually(lambda: [run(x) for _ in range(50)] and {"specialised", "slower"} & {h.state for h in vm.hot_shapes()})
    assert {h.shape for h in vm.hot_shapes()} == {(5, 37)}
    for shape in ((5, 37), (1, 37), (4, 4)):
        y = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(vm["main"](y).numpy(), reference(y), rtol=1e-5, atol=1e-6)
    report = vm.profile("main", x)
    assert any(h.shape == (5, 37) and h.state in ("specialised", "slower") for h in report.hot_shapes)


def test_switched_off():
    vm = relax.VirtualMachine(relax.build(Softmax, "llvm"), weft.cpu(), jit=False)
    vm["main"](np.ones((2, 3), np.float32))
    assert vm.hot_shapes() == []


def test_constant_shapes_are_not_counted():
    @I.ir_module
    class Static:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.nn.softmax(x)

    exe = relax.build(Static, "llvm")
    assert exe.recompilable == {}
    assert relax.VirtualMachine(exe, weft.cpu()).hot_shapes() == []
