"""Compiled modules that take and return tensors of PyTorch, and replacing parts of modules."""

import numpy as np
import pytest
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.refusals import refuses
from weft.error import InvalidArgument


class Model(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(4, 3)
        self.cache = nn.KVCache(2, [3])

    def forward(self, pair, total):
        self.cache.append(self.fc(pair[0]) + pair[1])
        return {"unused": 0} and (self.cache.view(total), total + 1)

    def pure(self, x):
        return self.fc(x)


SPECS = {
    "forward": {"pair": [spec.Tensor(["n", 4], "float32"), spec.Tensor([3], "float32")], "total": int},
    "pure": {"x": spec.Tensor([2, "m"], "float32"), "$": {"effect_mode": "none", "param_mode": "packed"}},
}


@pytest.fixture(scope="module")
def model():
    out = Model()
    torch.manual_seed(0)
    out.load_state_dict({"fc.weight": torch.randn(3, 4), "fc.bias": torch.randn(3)})
    return out


def test_torch(model):
    specs = {**SPECS, "pure": {**SPECS["pure"], "x": spec.Tensor(["m", 4], "float32")}}
    jitted = model.jit(specs)
    weight, bias = (torch.from_dlpack(p.data) for p in model.parameters())
    seen = torch.zeros(0, 3)
    for n in (2, 1, 4):
        x, y = torch.randn(n, 4, requires_grad=True), torch.randn(3)
        seen = torch.cat([seen, (x @ weight.T + bias + y).detach()])
        found, count = jitted([x, y], len(seen))
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, seen)
        assert tuple(count) == (len(seen) + 1,)
    x = torch.randn(4, 5).t()
    torch.testing.assert_close(jitted["pure"](x), x @ weight.T + bias)
    refuses(InvalidArgument, "there is no method 'other'", lambda: jitted["other"])
    refuses(InvalidArgument, "'forward' takes 2 arguments", jitted, x)
    refuses(InvalidArgument, "'pair' is a tuple", jitted, x, 3)
    for number in (2.5, torch.tensor(2.5), 2**70, None):
        refuses(InvalidArgument, "'total' is a whole number", jitted, [torch.ones(1, 4), torch.ones(3)], number)


def test_numpy(model):
    jitted = model.jit({"pure": {"x": spec.Tensor(["m", 4], "float32")}}, out_format="numpy")
    x = np.ones((2, 4), "float32")
    assert isinstance(jitted["pure"](x), np.ndarray)
    np.testing.assert_array_equal(jitted["pure"](x), jitted["pure"](weft.runtime.tensor(x)))


def test_errors(model):
    with pytest.raises(InvalidArgument, match=r"parameters have no value[\s\S]*fc.weight, fc.bias"):
        Model().jit({"pure": {"x": spec.Tensor(["m", 4], "float32")}})
    with pytest.raises(InvalidArgument, match="unknown out_format 'jax'"):
        model.jit({"pure": {"x": spec.Tensor(["m", 4], "float32")}}, out_format="jax")


def test_mutator():
    class Scaled(nn.Module):
        def __init__(self, inner):
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    class Net(nn.Module):
        def __init__(self):
            self.a = nn.Linear(2, 2)
            self.items = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
            self.table = nn.ModuleDict({"k": nn.Linear(2, 2)})
            self.extra = nn.ParameterDict({"p": nn.Parameter((1,))})
            self.more = nn.ParameterList([nn.Parameter((1,))])
            self.cache = nn.KVCache(1, [1])

    seen = []

    class Change(nn.Mutator):
        def visit_module(self, name, node):
            seen.append(name)
            return Scaled(node) if isinstance(node, nn.Linear) else self.visit(name, node)

        def visit_param(self, name, node):
            seen.append(name)
            return nn.Parameter((7,))

        def visit_effect(self, name, node):
            seen.append(name)
            return node

    net = Net()
    assert Change().visit("net", net) is net
    assert seen == ["net.a", "net.items.0", "net.items.1", "net.table.k", "net.extra.p", "net.more.0", "net.cache"]
    assert (
        list(net.state_dict())
        == (
            "a.inner.weight a.inner.bias items.0.inner.weight items.0.inner.bias table.k.inner.weight "
            "table.k.inner.bias extra.p more.0"
        ).split()
    )
    assert net.extra["p"].shape == net.more[0].shape == [7]


class TestSpec:
    def test_repr_and_order(self):
        class M(nn.Module):
            def forward(self, a, b, c=None):
                return a

        s = spec.ModuleSpec.from_raw({"forward": {"b": int, "a": [spec.Tensor([1, "n"], "int8"), object]}}, M())
        assert repr(s) == "ModuleSpec:\n  forward(a: (Tensor([1, n], 'int8'), object), b: int)"

    def test_from_torch(self):
        class M(nn.Module):
            def forward(self, x, pair, k):
                return x + pair[0] + op.full((1,), 1.0) * op.sum(op.ones((k,)))

        model = M()
        examples = [torch.zeros(2, 3), (torch.zeros(3), np.zeros(1, "int32")), 4]
        method = spec.MethodSpec.from_torch(examples, model.forward)
        pair = "(Tensor([3], 'float32'), Tensor([1], 'int32'))"
        assert repr(method) == f"forward(x: Tensor([2, 3], 'float32'), pair: {pair}, k: int)"
        jitted = model.jit(spec.ModuleSpec(model, ["forward"], [method]))
        out = jitted(torch.ones(2, 3), (torch.ones(3), torch.ones(1).int()), 4)
        torch.testing.assert_close(out, torch.full((2, 3), 6.0))

    @pytest.mark.parametrize(
        ("raw", "text"),
        [
            ({}, "maps method names"),
            ({"other": {}}, "has no method 'other'"),
            ({"forward": {"y": int}}, r"does not have the arguments of[\s\S]*expected x, found y"),
            ({"forward": {}}, r"expected x, found none"),
            ({"forward": {"x": "float32"}}, "argument 'x' has no specification"),
            ({"forward": {"x": [3]}}, r"argument 'x\[0\]' has no specification"),
            ({"forward": {"x": int, "$": {"param_mode": "all"}}}, "param_mode is one of none, plain, packed"),
            ({"forward": {"x": int, "$": {"mode": "all"}}}, "has an unknown key"),
            ({"forward": 3}, "maps argument names"),
        ],
    )
    def test_errors(self, raw, text):
        class M(nn.Module):
            def forward(self, x):
                return x

        refuses(InvalidArgument, text, M().export_tvm, raw)

    def test_tensor_errors(self):
        refuses(InvalidArgument, "a shape is a list of dimensions", spec.Tensor, "n", "float32")
        refuses(InvalidArgument, "a dimension is a size, a name", spec.Tensor, ["n + 1"], "float32")
        refuses(InvalidArgument, "", spec.Tensor, [1], "floaty")
        refuses(InvalidArgument, "has no value while", bool, nn.Tensor.placeholder([1], "float32"))
