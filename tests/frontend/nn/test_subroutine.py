"""Modules that are functions of their own."""

import numpy as np
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import compiled
from weft import ir, tir
from weft.script import ir as I
from weft.script import relax as R


class Block(nn.Module):
    define_subroutine = True

    def __init__(self, factor):
        self.linear = nn.Linear(4, 4, bias=False)
        self.factor = factor

    def forward(self, x, extra=None, size=None):
        x = self.linear(x) * self.factor
        if size is not None:
            x = x + op.full((1, 1), 1.0) * op.sum(op.ones((size,)))
        return x if extra is None else (x, extra[0] + 1)


def functions(mod):
    return sorted(v.name_hint for v, f in mod.items() if isinstance(f, ir.Function))


def run(model, specs, *inputs):
    mod, params = model.export_tvm({"forward": specs})
    rng = np.random.default_rng(0)
    for _, p in params:
        p.data = rng.standard_normal(p.shape, "float32")
    return mod, compiled(mod)["forward"](*inputs, *[p.data for _, p in params])


def test_equal_structure_is_one_function():
    class Model(nn.Module):
        def __init__(self, factors):
            self.blocks = nn.ModuleList([Block(f) for f in factors])

        def forward(self, x):
            return self.blocks(x)

    x = np.random.default_rng(1).standard_normal((3, 4), "float32")
    for factors, names in (((2.0, 2.0, 2.0), ["block", "forward"]), ((2.0, 3.0), ["block", "block1", "forward"])):
        model = Model(factors)
        mod, out = run(model, {"x": spec.Tensor(["n", 4], "float32")}, weft.runtime.tensor(x))
        assert len(functions(mod)) == len(names), functions(mod)
        want = x
        for block in model.blocks:
            want = want @ block.linear.weight.data.numpy().T * block.factor
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


class Activation(nn.Module):
    define_subroutine = True

    def forward(self, state):
        return op.silu(state)


class Layer(nn.Module):
    define_subroutine = True

    def __init__(self):
        self.weights = nn.Parameter([64, 32])
        self.activation = Activation()

    def forward(self, input):
        return self.activation(op.matmul(input, self.weights))


@I.ir_module
class Expected:
    @R.function
    def forward(input: R.Tensor(("n", 64), "float32"), _io: R.Object, weights: R.Tensor((64, 32), "float32")):
        R.func_attr({"num_input": 2})
        cls = Expected
        with R.dataflow():
            state = cls.layer(input, weights)
            gv = state, (_io,)
            R.output(gv)
        return gv

    @R.function
    def _initialize_effect() -> R.Tuple(R.Object):
        with R.dataflow():
            _io = R.null_value()
            lv: R.Tuple(R.Object) = (_io,)
            gv: R.Tuple(R.Object) = lv
            R.output(gv)
        return gv

    @R.function(private=True)
    def layer(state: R.Tensor(("n", 64), "float32"), weights: R.Tensor((64, 32), "float32")) -> R.Tensor(
        ("n", 32), "float32"
    ):
        cls = Expected
        with R.dataflow():
            a = R.matmul(state, weights)
            b = cls.activation(a)
            gv = b
            R.output(gv)
        return gv

    @R.function(private=True)
    def activation(state: R.Tensor(("n", 32), "float32")) -> R.Tensor(("n", 32), "float32"):
        with R.dataflow():
            a = R.nn.silu(state)
            gv = a
            R.output(gv)
        return gv


def test_structure():
    """As Apache TVM's: functions within functions, whose parameters are arguments; unused effects are not passed."""
    batch = tir.Var("n", "int64")
    mod, _ = Layer().export_tvm({"forward": {"input": spec.Tensor((batch, 64), "float32")}}, debug=True)
    ir.assert_structural_equal(mod, Expected)
    x, w = np.ones((2, 64), "float32"), np.ones((64, 32), "float32")
    out, _ = compiled(mod)["forward"](weft.runtime.tensor(x), None, weft.runtime.tensor(w))
    np.testing.assert_allclose(out.numpy(), np.full((2, 32), 64.0), rtol=1e-6)


def test_sizes_and_nested_arguments():
    """Sizes that only expressions of shapes mention are passed, as are symbolic numbers and tensors in tuples."""

    class Model(nn.Module):
        def __init__(self):
            self.block = Block(1.0)

        def forward(self, x, y, k):
            joined = op.concat([x, y], 0)
            joined, more = self.block(joined, (joined,), size=k + 1)
            return op.concat([joined, more], 0), self.block(x, size=k)

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 4), "float32"), rng.standard_normal((2, 4), "float32")
    model = Model()
    specs = {"x": spec.Tensor(["n", 4], "float32"), "y": spec.Tensor(["m", 4], "float32"), "k": int}
    mod, (joined, single) = run(model, specs, *map(weft.runtime.tensor, (x, y)), weft.runtime.ShapeTuple([5]))
    assert len(functions(mod)) == 3
    w, both = model.block.linear.weight.data.numpy().T, np.concatenate([x, y])
    np.testing.assert_allclose(joined.numpy(), np.concatenate([both @ w + 6, both + 1]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(single.numpy(), x @ w + 5, rtol=1e-5, atol=1e-5)
