"""Training: optimizers and losses give torch's numbers, and a model learns."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax, script
from weft.relax.training import AppendLoss, SetupTrainer, Trainer
from weft.relax.training.loss import CategoricalCrossEntropyLoss, CrossEntropyLoss, L1Loss, MSELoss
from weft.relax.training.optimizer import SGD, Adam, MomentumSGD

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(3)
MATRIX = weft.ir.tensor_type((3, 4), "float32")


def machine(mod):
    return relax.VirtualMachine(relax.build(mod, "llvm"), weft.cpu())


OPTIMIZERS = {
    "sgd": (SGD(0.1, 0.02), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.02)),
    "momentum": (
        MomentumSGD(0.1, 0.9, dampening=0.0, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01),
    ),
    "nesterov": (MomentumSGD(0.1, 0.8, nesterov=True), lambda p: torch.optim.SGD(p, 0.1, 0.8, nesterov=True)),
    "adam": (Adam(0.05, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_torch(name):
    optimizer, theirs = OPTIMIZERS[name]
    optimizer.init([relax.Var("w", MATRIX), relax.Var("b", weft.ir.tensor_type((4,), "float32"))])
    func = optimizer.get_function()
    vm = machine(weft.IRModule({func.attrs["global_symbol"]: func}))
    values = [RNG.standard_normal(s).astype("float32") for s in ((3, 4), (4,))]
    wanted = [torch.tensor(v, requires_grad=True) for v in values]
    their = theirs(wanted)
    params, state = tuple(map(weft.runtime.tensor, values)), tuple(optimizer.state)
    for _ in range(4):
        gradients = [RNG.standard_normal(v.shape).astype("float32") for v in values]
        for w, g in zip(wanted, gradients, strict=True):
            w.grad = torch.tensor(g)
        their.step()
        params, state = vm[optimizer.name](tuple(params), tuple(map(weft.runtime.tensor, gradients)), tuple(state))
    for p, w in zip(params, wanted, strict=True):
        np.testing.assert_allclose(p.numpy(), w.detach().numpy(), rtol=2e-4, atol=2e-5)
    assert int(state[0].numpy()) == 4


def test_what_no_optimizer_takes():
    w = relax.Var("w", MATRIX)
    refuses(error.EvaluationError, "init", SGD(0.1).get_function)
    refuses(error.InvalidArgument, "twice", SGD(0.1).init, [w, w])
    refuses(error.DTypeMismatch, "no float tensor", SGD(0.1).init, relax.Var("i", weft.ir.tensor_type((2,), "int64")))
    refuses(error.DTypeMismatch, "different", SGD(0.1).init, [w, relax.Var("d", weft.ir.tensor_type((2,), "float64"))])


CLASSES, WEIGHTS = weft.ir.tensor_type((3,), "int64"), weft.ir.tensor_type((4,), "float32")
X, T = RNG.standard_normal((3, 4)).astype("float32"), np.array([1, 3, 0])
W = RNG.uniform(0.5, 2, 4).astype("float32")
LOSSES = {
    "l1": (L1Loss("sum"), (MATRIX, MATRIX), (X, X[::-1].copy()), lambda a, b: F.l1_loss(a, b, reduction="sum")),
    "mse": (MSELoss(), (MATRIX, MATRIX), (X, X[::-1].copy()), F.mse_loss),
    "each": (MSELoss("none"), (MATRIX, MATRIX), (X, X[::-1].copy()), lambda a, b: F.mse_loss(a, b, reduction="none")),
    "cross entropy": (CrossEntropyLoss(), (MATRIX, CLASSES, WEIGHTS), (X, T, W), F.cross_entropy),
    "ignored": (
        CrossEntropyLoss("sum", ignore_index=3),
        (MATRIX, CLASSES),
        (X, T),
        lambda a, b: F.cross_entropy(a, b, reduction="sum", ignore_index=3),
    ),
    "one-hot": (
        CategoricalCrossEntropyLoss("sum"),
        (MATRIX, weft.ir.tensor_type((3, 4), "int64")),
        (X, np.eye(4, dtype="int64")[T]),
        lambda a, b: F.cross_entropy(a, b.argmax(1), reduction="sum"),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_torch(name):
    loss, types, arrays, theirs = LOSSES[name]
    func = loss(*types)
    symbol = func.attrs["global_symbol"]
    found = machine(weft.IRModule({symbol: func}))[symbol](*arrays).numpy()
    args = [torch.tensor(a) for a in arrays]
    expected = theirs(*args[:2], weight=args[2]) if len(args) == 3 else theirs(*args)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


MODEL = """
@I.ir_module
class Module:
    I.module_attrs({"param_num": 2, "state_num": 1})
    @R.function
    def backbone(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 2), "float32"), b: R.Tensor((2,), "float32"),
                 n: R.Tensor((), "float32")):
        with R.dataflow():
            y = R.add(R.matmul(x, w), b)
            m = R.add(n, R.const(1.0, "float32"))
            R.output(y, m)
        return (y, m)
"""


def trainer():
    out = weft.ir.tensor_type((3, 2), "float32")
    mod = SetupTrainer(MSELoss("sum"), SGD(0.05), [out, out])(script.from_source(MODEL))
    assert {v.name_hint for v, f in mod.items() if isinstance(f, weft.ir.Function)} == {
        "backbone",
        "backbone_loss",
        "backbone_loss_adjoint",
        "optimizer",
    }
    return Trainer(mod, machine(mod), weft.cpu(), zero_init_param_state=True)


def test_rms_norm_has_the_gradient_of_torch():
    x, w, t = (RNG.standard_normal(n).astype("float32") for n in ((3, 4), (4,), (3, 4)))
    bb = relax.BlockBuilder()
    params = [relax.Var("x", MATRIX), relax.Var("w", weft.ir.tensor_type((4,), "float32"))]
    with bb.function("backbone", params):
        with bb.dataflow():
            y = bb.emit_output(relax.op.nn.rms_norm(*params, axes=[-1], epsilon=1e-3))
        bb.emit_func_output(y)
    mod = bb.get().with_attrs({"param_num": 2, "state_num": 0})
    vm = machine(SetupTrainer(MSELoss(), SGD(0.1), [MATRIX, MATRIX])(mod))
    loss, gradients = vm["backbone_loss_adjoint"](*map(weft.runtime.tensor, (x, w, t)))
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    wanted = ((F.rms_norm(theirs[0], (4,), theirs[1], 1e-3) - torch.tensor(t)) ** 2).mean()
    wanted.backward()
    np.testing.assert_allclose(loss.numpy(), wanted.item(), rtol=1e-5)
    for ours, their in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(ours.numpy(), their.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_learns():
    train = trainer()
    train.xaiver_uniform_init_params()
    x, w = RNG.standard_normal((3, 4)).astype("float32"), RNG.standard_normal((4, 2)).astype("float32")
    losses = [float(train.update(x, x @ w + 1).numpy()) for _ in range(60)]
    assert losses[-1] < 1e-2 * losses[0]
    np.testing.assert_allclose(train.predict(x).numpy(), x @ w + 1, atol=0.2)
    assert float(train.export_states()["n"].numpy()) == 60


def test_parameters_come_and_go_by_name():
    train = trainer()
    train.load_params({"b": np.array([1, 2], "float32")})
    assert train.export_params()["b"].numpy().tolist() == [1, 2] and not train.export_params()["w"].numpy().any()
    refuses(error.InvalidArgument, "no parameter 'c'", train.load_params, {"c": 0})
    refuses(error.InvalidArgument, "one value for each", train.load_states, [])
    refuses(error.InvalidArgument, "other inputs", train.predict)


def test_a_loss_must_fit():
    mod = script.from_source(MODEL)
    out = weft.ir.tensor_type((3, 2), "float32")
    joined = AppendLoss("backbone", MSELoss()(out, out))(mod)["backbone_loss"]
    assert [p.name_hint for p in joined.params] == ["x", "w", "b", "n", "targets"]
    for loss in (MSELoss()(MATRIX, MATRIX), MSELoss("none")(out, out)):
        refuses(error.InvalidArgument, "another type|scalar", AppendLoss("backbone", loss), mod)
