"""Modules with the weights of PyTorch's compute what PyTorch's compute."""

import numpy as np
import pytest
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import compiled, flat
from tests.refusals import refuses
from weft import error, ir, tir


def compare(module, reference, sizes=({},), rtol=1e-4, atol=1e-5, **specs):
    """Load the weights of a PyTorch module, export, compile, and compare results."""
    module.load_state_dict(reference.state_dict())
    mod, params = module.export_tvm({"forward": {n: spec.Tensor(*s) for n, s in specs.items()}})
    vm = compiled(mod)
    for k, some in enumerate(sizes):
        rng = np.random.default_rng(k)
        arrays = []
        for shape, dtype in specs.values():
            dims = [some.get(d, d) for d in shape]
            floats = dtype.startswith("float")
            arrays.append(rng.standard_normal(dims).astype(dtype) if floats else rng.integers(0, 9, dims, dtype))
        found = flat(vm["forward"](*map(weft.runtime.tensor, arrays), *[p.data for _, p in params]))
        with torch.no_grad():
            want = flat(reference(*map(torch.tensor, arrays)))
        for f, w in zip(found, want, strict=True):
            assert f.shape == w.shape
            np.testing.assert_allclose(f, w, rtol=rtol, atol=atol)


class CNN(nn.Module):
    def __init__(self):
        self.conv1 = nn.Conv2D(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2D(8, 12, (3, 3), stride=2, groups=4, bias=False)
        self.blocks = nn.ModuleList([nn.Conv2D(12, 12, 1), nn.SiLU(), nn.Identity()])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = op.relu(self.norm(self.conv1(x)))
        x = self.blocks(self.conv2(x))
        return self.head(op.mean(x, [2, 3]))


class TorchCNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.GroupNorm(2, 8)
        self.conv2 = torch.nn.Conv2d(8, 12, 3, stride=2, groups=4, bias=False)
        self.blocks = torch.nn.Sequential(torch.nn.Conv2d(12, 12, 1), torch.nn.SiLU(), torch.nn.Identity())
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        x = self.blocks(self.conv2(torch.relu(self.norm(self.conv1(x)))))
        return self.head(x.mean((2, 3)))


def test_cnn():
    torch.manual_seed(0)
    compare(CNN(), TorchCNN(), ({"n": 2}, {"n": 1}), x=(["n", 3, 11, 10], "float32"))


@pytest.mark.parametrize(
    ("module", "reference", "shape"),
    [
        (lambda: nn.Conv1D(4, 6, 3, 2, 1, 1, 2), lambda: torch.nn.Conv1d(4, 6, 3, 2, 1, 1, 2), [2, 4, 9]),
        (lambda: nn.Conv3D(2, 4, [1, 3, 2]), lambda: torch.nn.Conv3d(2, 4, (1, 3, 2)), [1, 2, 3, 5, 4]),
        (
            lambda: nn.ConvTranspose1D(4, 6, 3, 2, 1, 1, groups=2),
            lambda: torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2),
            [2, 4, 5],
        ),
        (lambda: nn.LayerNorm(6, eps=1e-3), lambda: torch.nn.LayerNorm(6, eps=1e-3), ["n", 6]),
        (lambda: nn.LayerNorm([2, 6]), lambda: torch.nn.LayerNorm((2, 6)), ["n", 2, 6]),
        (
            lambda: nn.LayerNorm(6, elementwise_affine=False),
            lambda: torch.nn.LayerNorm(6, elementwise_affine=False),
            ["n", 6],
        ),
        (lambda: nn.RMSNorm(6, -1, 1e-5, bias=False), lambda: torch.nn.RMSNorm(6, eps=1e-5), ["n", 3, 6]),
        (lambda: nn.GELU(), lambda: torch.nn.GELU(), ["n", 6]),
        (lambda: nn.Linear(6, 4, bias=False), lambda: torch.nn.Linear(6, 4, bias=False), [2, "n", 6]),
    ],
)
def test_layer(module, reference, shape):
    torch.manual_seed(0)
    compare(module(), reference(), ({"n": 3}, {"n": 1}), x=(shape, "float32"))


def test_embedding():
    compare(nn.Embedding(10, 4), torch.nn.Embedding(10, 4), ({"n": 3}, {"n": 0}), x=(["n", 2], "int32"))


def test_symbolic_parameter():
    """Sizes of parameters may be names, which agree between parameters and arguments."""

    class Head(nn.Module):
        def __init__(self):
            self.table = nn.Embedding("vocab", 4)
            self.head = nn.Linear(4, "vocab", bias=False)

        def forward(self, x, scale):
            return self.head(self.table(x)) * scale

    mod, params = Head().export_tvm(
        {"forward": {"x": spec.Tensor(["n"], "int64"), "scale": spec.Tensor(["vocab"], "float32")}}
    )
    main = mod["forward"]
    scale = spec.Tensor([tir.Var("vocab", "int64")], "float32")
    other, _ = Head().export_tvm({"forward": {"x": spec.Tensor(["n"], "int64"), "scale": scale}})
    ir.assert_structural_equal(mod, other)
    vocab = main.params[1].ty.shape[0]
    assert main.params[2].ty.shape[0] is vocab and main.params[3].ty.shape[0] is vocab
    vm = compiled(mod)
    rng = np.random.default_rng(0)
    for size in (7, 3):
        w = [rng.standard_normal(s, "float32") for s in ((size,), (size, 4), (size, 4))]
        x = np.array([0, 2, 1])
        out = vm["forward"](*map(weft.runtime.tensor, (x, *w))).numpy()
        np.testing.assert_allclose(out, w[1][x] @ w[2].T * w[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match=r"head.weight.*dimension 0 must be 3"):
        vm["forward"](*map(weft.runtime.tensor, (x, w[0], w[1], rng.standard_normal((4, 4), "float32"))))


def test_shared_parameter():
    """A parameter that two modules hold is one argument, and has two names."""

    class Tied(nn.Module):
        def __init__(self):
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    model = Tied()
    assert list(model.state_dict()) == ["embed.weight", "head.weight"]
    assert [n for n, _ in model.named_parameters()] == ["embed.weight"]
    weight = torch.randn(5, 4)
    model.load_state_dict({"embed.weight": weight, "head.weight": weight})
    mod, params = model.export_tvm({"forward": {"x": spec.Tensor(["n"], "int64")}})
    assert [n for n, _ in params] == ["embed.weight"]
    out = compiled(mod)["forward"](weft.runtime.tensor(np.array([1, 4])), params[0][1].data).numpy()
    np.testing.assert_allclose(out, (weight[[1, 4]] @ weight.T).numpy(), rtol=1e-5, atol=1e-6)


def test_containers():
    lists = nn.ParameterList([nn.Parameter((2,))])
    lists.append(nn.Parameter((3,)))
    lists.extend([nn.Parameter((4,))])
    dicts = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.ReLU()})
    dicts["c"] = nn.ModuleList([nn.Linear(3, 4, bias=False)])

    class Model(nn.Module):
        def __init__(self):
            self.lists, self.dicts = lists, dicts
            self.params = nn.ParameterDict({"k": nn.Parameter((1,))})

    names = ["lists.0", "lists.1", "lists.2", "dicts.a.weight", "dicts.a.bias", "dicts.c.0.weight", "params.k"]
    assert list(Model().state_dict()) == names
    assert len(lists) == 3 and [p.shape for p in lists] == [[2], [3], [4]]
    assert list(dicts.keys()) == ["a", "b", "c"] and "b" in dicts and dicts.get("z") is None
    dicts.pop("b")
    assert [type(m).__name__ for m in dicts] == ["Linear", "ModuleList"]
    Model().to("float16")
    assert {p.dtype for p in lists} == {"float16"} and dicts["c"][0].weight.dtype == "float16"
    refuses(error.InvalidArgument, r"ModuleList holds nn.Module objects", nn.ModuleList, [nn.Parameter((2,))])


def test_default_dtype():
    assert nn.get_default_dtype() == "float32"
    nn.set_default_dtype("float16")
    try:
        assert nn.Linear(2, 3).weight.dtype == "float16"
    finally:
        nn.set_default_dtype("float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    """Modules of narrow floats are scheduled like others; a missing rule would be an error here."""

    class Block(nn.Module):
        def __init__(self):
            self.norm = nn.RMSNorm(32, -1, 1e-5, bias=False)
            self.fc = nn.Linear(32, 16)

        def forward(self, x):
            return op.softmax(op.silu(self.fc(self.norm(x))), -1)

    model, reference = Block(), torch.nn.Module()
    reference.norm, reference.fc = torch.nn.RMSNorm(32, eps=1e-5), torch.nn.Linear(32, 16)
    model.to(dtype)
    narrow = getattr(torch, dtype)
    model.load_state_dict({name: value.to(narrow) for name, value in reference.state_dict().items()})
    jitted = model.jit({"forward": {"x": spec.Tensor([1, "n", 32], dtype)}})
    for n in (1, 5):
        x = torch.randn(1, n, 32)
        want = torch.nn.functional.silu(reference.fc(reference.norm(x))).softmax(-1)
        found = jitted(x.to(narrow))
        assert found.dtype == narrow
        torch.testing.assert_close(found.float(), want, rtol=5e-2, atol=5e-3)


def test_out_dtype():
    layer = nn.Linear(4, 3, dtype="float16", out_dtype="float32")
    assert (layer.weight.dtype, layer.bias.dtype) == ("float16", "float32")
    mod, _ = layer.export_tvm({"forward": {"x": spec.Tensor([2, 4], "float16")}})
    assert str(mod["forward"].ret_ty.dtype) == "float32"


class TestParameters:
    def test_names_differ(self):
        with pytest.raises(error.InvalidArgument, match=r"missing: bias; unexpected: other"):
            nn.Linear(2, 3).load_state_dict({"weight": np.zeros((3, 2), "float32"), "other": 1})
        missing, unexpected = nn.Linear(2, 3).load_state_dict({"weight": np.zeros((3, 2), "float32")}, strict=False)
        assert (missing, unexpected) == (["bias"], [])
        weights = {"weight": np.zeros((3, 2), "float32"), "bias": None}
        refuses(error.InvalidArgument, "missing: bias", nn.Linear(2, 3).load_state_dict, weights)
        refuses(error.InvalidArgument, "by the names of parameters", nn.Linear(2, 3).load_state_dict, [weights])

    def test_all_wrong_values_are_named(self):
        with pytest.raises(error.ErrorGroup) as e:
            nn.Linear(2, 3).load_state_dict({"weight": np.zeros((2, 3), "float32"), "bias": np.zeros(3)})
        text = str(e.value)
        assert "parameter 'weight'" in text and "expected [3, 2], found [2, 3]" in text
        assert "parameter 'bias'" in text and "expected float32, found float64" in text

    def test_values(self):
        p = nn.Parameter((2, "n"))
        p.data = torch.ones(2, 5, requires_grad=True).t().contiguous().t()
        assert p.data.shape == (2, 5)
        q = nn.Parameter((2, 5))
        q.data = p
        np.testing.assert_array_equal(q.data.numpy(), np.ones((2, 5)))
        refuses(error.InvalidArgument, "has a value", p.to, "float16")

    def test_half(self):
        p = nn.Parameter((2,), "bfloat16")
        p.data = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
        assert p.data.numpy().astype("float32").tolist() == [1.0, 2.5]

    @pytest.mark.parametrize("shape", [(2, -1), (2, 1.5), "n", (2, None), (True,), ("",), 3])
    def test_bad_shape(self, shape):
        refuses(error.InvalidArgument, "dimension", nn.Parameter, shape)


def test_construction_errors():
    refuses(error.InvalidArgument, "in_channels is no multiple of groups", nn.Conv2D, 3, 4, 3, groups=2)
    refuses(error.InvalidArgument, "kernel_size has a size for each", nn.Conv2D, 4, 4, [3, 3, 3])
    refuses(error.InvalidArgument, "num_channels is no multiple", nn.GroupNorm, 3, 8)
    refuses(error.InvalidArgument, "has no method 'forward'", nn.Module(), 1)
