"""Gradient: adjoints are what finite differences say, for every operator with a rule."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import written
from weft import error, relax
from weft.relax.gradient_rules import register_gradient
from weft.relax.interpreter import Interpreter
from weft.relax.training import register_te_gradient
from weft.relax.transform import Gradient, LegalizeOps

X, Y = 'x: R.Tensor((3, 4), "float64")', 'y: R.Tensor((3, 4), "float64")'
ROW, CUBE = 'y: R.Tensor((4,), "float64")', 'x: R.Tensor((2, 3, 4), "float64")'
IMAGE = 'x: R.Tensor((1, 2, 6, 6), "float64"), w: R.Tensor((3, 2, 3, 3), "float64")'

CASES = {
    "add": (f"{X}, {ROW}", "R.add(x, y)"),
    "subtract": (f"{X}, {ROW}", "R.subtract(y, x)"),
    "multiply": (f"{X}, {ROW}", "R.multiply(x, y)"),
    "divide": (f"{X}, {ROW}", "R.divide(x, y)"),
    "power": (f"{X}, {Y}", "R.power(x, y)"),
    "maximum": (f"{X}, {Y}", "R.maximum(x, y)"),
    "minimum": (f"{X}, {ROW}", "R.minimum(x, y)"),
    "abs": (X, "R.abs(R.subtract(x, R.const(1.0, 'float64')))"),
    "where": (f"{X}, {ROW}", "R.where(R.less(x, y), x, y)"),
    "sum": (X, "R.exp(R.sum(x, axis=[1]))"),
    "mean": (X, "R.exp(R.mean(x, axis=[0], keepdims=True))"),
    "variance": (X, "R.exp(R.variance(x, axis=[1]))"),
    "permute_dims": (CUBE, "R.exp(R.permute_dims(x, axes=[2, 0, 1]))"),
    "concat": (f"{X}, {Y}", "R.exp(R.concat((x, y), axis=1))"),
    "cumsum": (X, "R.exp(R.cumsum(x, axis=1))"),
    "split": (X, "R.exp(R.split(x, 2, axis=1)[1])"),
    "expand_dims": (X, "R.exp(R.expand_dims(x, [1]))"),
    "squeeze": ('x: R.Tensor((3, 1), "float64")', "R.exp(R.squeeze(x, [1]))"),
    "reshape": (X, "R.exp(R.reshape(x, R.shape([12])))"),
    "astype": (X, "R.astype(R.exp(x), 'float64')"),
    "broadcast_to": (ROW, "R.exp(R.broadcast_to(y, R.shape([3, 4])))"),
    "triu": (X, "R.exp(R.triu(x))"),
    "take": (X, "R.exp(R.take(x, R.const([0, 3, 3], 'int64'), axis=1))"),
    "matmul": (f"{X}, {CUBE.replace('x', 'y').replace('3, 4', '4, 2')}", "R.tanh(R.matmul(x, y))"),
    "vector": (f"{ROW.replace('y', 'v')}, {CUBE}", "R.tanh(R.matmul(x, v))"),
    "row": ('v: R.Tensor((3,), "float64"), ' + X, "R.tanh(R.matmul(v, x))"),
    "softmax": (f"{X}, {Y}", "R.multiply(R.nn.softmax(x, axis=-1), y)"),
    "log_softmax": (f"{X}, {Y}", "R.multiply(R.nn.log_softmax(x, axis=-1), y)"),
    "cross_entropy": (f"{X}, {Y}", "R.nn.cross_entropy_with_logits(x, y)"),
    "nll_loss": (X, "R.nn.nll_loss(R.nn.log_softmax(x), R.const([1, 0, 3], 'int64'))"),
    "conv2d": (IMAGE, "R.tanh(R.nn.conv2d(x, w, padding=1, strides=2))"),
    "dilated": (IMAGE, "R.tanh(R.nn.conv2d(x, w, dilation=2))"),
    **{n: (X, f"R.{n}(x)") for n in ("cos", "sin", "exp", "log", "negative", "square", "sigmoid", "sqrt", "tanh")},
    "relu": (X, "R.nn.relu(x)"),
    "silu": (X, "R.nn.silu(x)"),
}


def program(params, value):
    return written(params, f"v = {value}", "gv = R.sum(R.multiply(v, R.sin(v)))")


def machine(mod):
    return relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())


def check(mod, arrays, rtol=1e-4):
    made = Gradient("main")(mod)
    assert relax.analysis.check_well_formed(made)  # symbolic sizes of its own among them
    run = Interpreter(made).run
    value, adjoints = run("main_adjoint", *arrays)
    np.testing.assert_allclose(value, run("main", *arrays))
    for i, a in enumerate(arrays):
        expected = np.zeros_like(a)
        for place in np.ndindex(a.shape):
            step = np.zeros_like(a)
            step[place] = 1e-6
            ends = [run("main", *arrays[:i], a + s, *arrays[i + 1 :]) for s in (step, -step)]
            expected[place] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(adjoints[i], expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_adjoints_are_differences(name):
    mod = program(*CASES[name])
    rng = np.random.default_rng(7)
    arrays = [rng.uniform(0.3, 1.7, [int(d.value) for d in p.ty.shape]) for p in mod["main"].params]
    check(mod, arrays)


def test_tuples_and_values_computed_again():
    mod = written("""
x: (n, 3) float64, y: (n, 3) float64
s = R.grad.start_checkpoint(x)
a = R.exp(s)
b = R.multiply(a, s)
e = R.grad.end_checkpoint(b)
t = (e, y)
u = (t, x)
v = u[0]
w = v[0]
z = R.multiply(w, v[1])
gv = R.sum(z)
""")
    assert '"_cp"' not in mod.script() and "a_cp" in Gradient("main")(mod)["main_adjoint"].script()
    check(mod, [np.random.default_rng(1).uniform(0.5, 1, (2, 3)) for _ in range(2)])


def test_what_is_asked_for_is_returned():
    mod = program(*CASES["multiply"])
    x, y = mod["main"].params
    assert len(Gradient("main", y)(mod)["main_adjoint"].ret_ty.fields[1].fields) == 1
    assert [v.name_hint for v, _ in Gradient("main", [x, y])(mod).items()] == ["main", "main_adjoint"]
    v = mod["main"].body.blocks[0].bindings[0].var
    adjoints = machine(Gradient("main", [v, y])(mod))["main_adjoint"](np.full((3, 4), 2.0), np.full(4, 1.5))[1]
    np.testing.assert_allclose(adjoints[0].numpy(), np.full((3, 4), np.sin(3.0) + 3 * np.cos(3.0)))
    for wanted, text in (([x, x], "twice"), ([relax.Var("z", x.ty)], "no variable")):
        refuses(error.InvalidArgument, text, Gradient("main", wanted), mod)
    refuses(error.InvalidArgument, "target_index", Gradient("main", target_index=1), mod)
    refuses(error.InvalidArgument, "no Relax function", Gradient("other"), mod)


def test_an_operator_without_a_rule_is_said_and_may_get_one():
    mod = program(X, "R.nn.softplus(x)")
    refuses(error.UnsupportedOperator, r"relax\.nn\.softplus has no gradient", Gradient("main"), mod)

    @register_gradient("relax.nn.softplus")
    def softplus(_y, call, g, bb):
        return [relax.op.multiply(g, relax.op.sigmoid(call.args[0]))]

    try:
        check(mod, [np.random.default_rng(2).uniform(0.3, 1.7, (3, 4))])
    finally:
        weft.ir.Op.get("relax.nn.softplus").reset_attr("FPrimalGradient")


def test_kernels_have_te_gradients():
    @register_te_gradient("test.cube")
    def cube_grad(g, x, factor):
        return weft.te.compute(x.shape, lambda *i: g(*i) * x(*i) * x(*i) * float(factor))

    bb = relax.BlockBuilder()
    x = relax.Var("x", weft.ir.tensor_type((3,), "float64"))
    with bb.function("main", [x]):
        with bb.dataflow():
            call = bb.call_te(
                lambda a: weft.te.compute(a.shape, lambda *i: a(*i) * a(*i) * a(*i)), x, primfunc_name_hint="cube"
            )
            made = relax.op.call_tir_with_grad(call.args[0], [x], call.ty_args[0], "test.cube", {"factor": 3})
            gv = bb.emit_output(relax.op.sum(bb.emit(made)))
        bb.emit_func_output(gv)
    vm = machine(LegalizeOps()(Gradient("main")(bb.get())))
    a = np.array([1.0, 2.0, -3.0])
    np.testing.assert_allclose(vm["main_adjoint"](a)[1][0].numpy(), 3 * a * a)
