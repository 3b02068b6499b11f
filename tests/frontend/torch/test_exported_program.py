"""Programs of torch.export, beside PyTorch."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import weft
from tests.frontend.torch.programs import QUICK, Call, check, exported, machine
from tests.refusals import refuses
from weft import error, relax
from weft.frontend.torch import apart, from_exported_program
from weft.relax.interpreter import evaluate


class Images(nn.Module):
    """Convolutions of several kinds, normalised and pooled."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=4),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
            nn.Upsample(scale_factor=2),
        )
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        return torch.softmax(self.head(self.body(x).mean((2, 3))), -1)


class Encoder(nn.Module):
    """Attention that is written for any batch and length."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.project, self.out = nn.Linear(32, 96), nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        batch, length, size = x.shape
        q, k, v = self.project(self.norm(x)).view(batch, length, 3, 4, size // 4).permute(2, 0, 3, 1, 4)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(x)


def test_images_of_a_fixed_and_of_any_batch():
    args = (torch.randn(2, 3, 16, 16),)
    check(Images(), args)
    mod = check(Images(), args, (torch.randn(5, 3, 16, 16),), dynamic=({0: Dim("batch")},))
    assert str(mod["main"].params[0].ty.shape[0]).startswith("s")


def test_tokens_of_any_batch_and_length():
    check(
        Encoder(),
        (torch.randint(0, 50, (2, 7)),),
        (torch.randint(0, 50, (3, 11)),),
        dynamic=({0: Dim("batch"), 1: Dim("length", min=2, max=64)},),
    )


def test_what_data_counts():
    """Elements by a mask and places of what is not zero: their number is a size of what follows."""
    chosen = Call(lambda x: (x[x > 0] * 2, x.nonzero(), x[:, x[0] > 0]))
    check(chosen, (torch.randn(4, 5),))
    check(chosen, (torch.randn(4, 5),), (torch.randn(7, 5),), dynamic=({0: Dim("n")},))


def test_choices_and_loops():
    choice = Call(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)))
    steps = Call(lambda i, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + 1), (i, x)))
    check(choice, (torch.ones(3),), (-torch.ones(3),), (torch.ones(9),), dynamic=({0: Dim("n")},))
    check(steps, (torch.tensor(0), torch.ones(3)), (torch.tensor(4), torch.ones(8)), dynamic=(None, {0: Dim("n")}))


@pytest.mark.parametrize("dynamic", [None, ({0: Dim.AUTO, 1: Dim.AUTO},)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.true_divide(torch.multiply(x, x).absolute(), 3), F.one_hot((x > 0).long(), 5)),
        lambda x: (torch.broadcast_tensors(x, x[:1])[1], torch.meshgrid(x[0], x[1], indexing="ij")[1]),
        lambda x: (torch.var_mean(x, 1)[1], x.positive(), x.view_as(x), F.pad(x, (1, 2), mode="reflect")),
        lambda x: (F.pad(x, (2, 3), "circular"), F.pad(x, (-1, 2), "circular")),
        lambda x: (F.pad(x, (1, -2)), F.pad(x, (9, 0), "replicate")),
        lambda x: torch.tensor_split(torch.hstack([x, x]), 2, 1),
        lambda x: torch.lstm_cell(x[:, :2], [x[:, :1], x[:, 1:2]], x[:4, :2], x[:4, :1], x[:4, 0], x[:4, 1]),
        lambda x: (torch.gru_cell(x[:, :2], x[:, :1], x[:3, :2], x[:3, :1], x[:3, 0], x[:3, 1]),),
        lambda x: (torch.diag(x[0]),),
    ],
)
def test_calls_are_taken_apart_one_by_one(monkeypatch, function, dynamic):
    given = torch.randn(4, 5)
    program = exported(Call(function), (given,), dynamic)
    text, whole, taken = str(program.graph), type(program).run_decompositions, []
    monkeypatch.setattr(type(program), "run_decompositions", lambda p, t: taken.append(p) or whole(p, t))
    monkeypatch.setattr(apart, "_FEW", 0)  # as if each stood in a large program
    mod = from_exported_program(program)
    assert bool(taken) == ("diag" in function.__code__.co_names and dynamic is not None)  # which asks for a size of 1
    assert str(program.graph) == text
    for x in (given, *([torch.randn(7, 6)] if dynamic else [])):
        for found, expected in zip(evaluate(mod, x.numpy()), function(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_parameters_as_inputs():
    module = Encoder()
    tokens = torch.randint(0, 50, (1, 4))
    mod = from_exported_program(exported(module, (tokens,)), keep_params_as_input=True, unwrap_unit_return_tuple=True)
    main = mod["main"]
    assert main.attrs["num_input"] == 1
    assert len(main.params) == 1 + len(main.attrs["params"]) == 1 + len(list(module.parameters()))
    found = machine(mod)(weft.runtime.from_dlpack(tokens), *main.attrs["params"])
    np.testing.assert_allclose(found.numpy(), module(tokens).detach().numpy(), rtol=1e-4, atol=1e-4)
    plain, params = weft.relax.frontend.detach_params(mod)
    assert "params" not in plain["main"].attrs and len(params["main"]) == len(main.params) - 1


def test_weights_share_memory():
    module = nn.Linear(3, 2)
    mod = from_exported_program(exported(module, (torch.ones(1, 3),)))
    constants = [n for n in weft.ir.walk(mod["main"]) if isinstance(n, weft.ir.Constant)]
    assert module.weight.data_ptr() in {c.data.numpy().ctypes.data for c in constants}


def test_results():
    one = from_exported_program(exported(nn.ReLU(), (torch.ones(2),)), unwrap_unit_return_tuple=True)
    assert isinstance(one["main"].ret_ty, weft.ir.TensorType)
    both = from_exported_program(exported(Call(lambda x: (x + 1, x.shape[0], 0.1)), (torch.ones(2),), ({0: Dim("n")},)))
    found = machine(both)(weft.runtime.tensor(np.zeros(7, np.float32)))
    assert found[0].shape == (7,) and found[1].numpy() == 7 and found[2].numpy() == 0.1


def test_copies_that_are_asked_for():
    copies = Call(lambda x: (x.to(x.device, x.dtype, copy=True), x.to(torch.int64, copy=True)))
    x = torch.tensor([1.5, -2.5])
    run = machine(from_exported_program(exported(copies, (x,), ({0: Dim("n")},))))
    for found, expected in zip(run(x.numpy()), copies(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), strict=True)


def test_what_has_no_converter_is_named_all_at_once():
    odd = Call(lambda x: (torch.special.ndtri(x) + torch.mode(x).values, torch.special.ndtri(x)))
    with pytest.raises(error.UnsupportedOperator, match=r"mode.*\(1x\)|ndtri.*\(2x\)") as caught:
        from_exported_program(exported(odd, (torch.ones(2),)))
    assert "aten.special_ndtri.default (2x)" in str(caught.value) and "aten.mode" in str(caught.value)


@pytest.mark.parametrize("name", ["aten.i0.default", "i0.default", "i0"])
def test_a_converter_of_the_user(name):
    def twice(node, importer):
        (x,) = importer.retrieve_args(node)
        assert importer.env[node.args[0]] is x
        return importer.block_builder.emit(relax.op.add(x, x))

    mod = from_exported_program(exported(Call(torch.special.i0), (torch.ones(2),)), custom_convert_map={name: twice})
    assert machine(mod)(weft.runtime.tensor(np.ones(2, np.float32)))[0].numpy().tolist() == [2, 2]


def test_an_argument_that_is_not_read_is_refused():
    """An overload with one argument more is not taken for the one that a converter knows."""
    program = exported(nn.ReLU(), (torch.ones(2),))
    (node,) = (n for n in program.graph.nodes if n.op == "call_function")
    node.target, node.args = torch.ops.aten.clamp.default, (node.args[0], 0.0, 1.0)
    mod = from_exported_program(program, run_ep_decomposition=False)
    assert machine(mod)(weft.runtime.tensor(np.array([-1, 3], np.float32)))[0].numpy().tolist() == [0, 1]
    node.target, node.args = torch.ops.aten.embedding_renorm.default, (node.args[0], node.args[0], 1.0, 2.0)
    refuses(error.UnsupportedOperator, "", from_exported_program, program, run_ep_decomposition=False)


def test_refusals_name_the_node():
    with pytest.raises((error.ModelImportError, error.UnsupportedOperator), match=r"aten\.atan\.default"):
        from_exported_program(exported(Call(lambda x: torch.complex(x, x).atan().abs()), (torch.ones(2),)))


def test_sizes_that_a_later_argument_names():
    call, dims = Call(lambda x, y: x.view_as(y)), tuple({i: Dim.AUTO for i in range(n)} for n in (2, 3))
    mod = from_exported_program(exported(call, (torch.ones(6, 4), torch.ones(2, 3, 4)), dims))
    (found,) = evaluate(mod, np.arange(30.0, dtype="float32").reshape(15, 2), np.zeros((5, 3, 2), np.float32))
    np.testing.assert_array_equal(found, np.arange(30).reshape(5, 3, 2))


def test_ranges_of_dimensions():
    dims = {0: Dim("batch", min=3, max=64), 1: Dim("length", min=2)}
    mod = from_exported_program(exported(Encoder(), (torch.zeros(4, 5, dtype=torch.int64),), (dims,)))
    batch, length = (d.name for d in mod["main"].params[0].ty.shape)
    assert dict(mod["main"].attrs["tir_var_lower_bound"]) == {batch: 3, length: 2}
    assert dict(mod["main"].attrs["tir_var_upper_bound"]) == {batch: 64}


def _chosen(x, y):
    taken = x.shape[0] % 3 and x.shape[0] % 2 == 0 and x.shape[0] > y.shape[0]
    return x.sum() + y if taken else x


def _asserted(x, y):
    torch._assert_async((x > 0).all(), "negative")
    count = y.shape[0] + torch.numel(y[y > 2])
    torch._check(count < 9, lambda: "many")
    return x + count


@pytest.mark.parametrize(
    ("fn", "sizes", "right", "wrong"),
    [
        (lambda x, y: x * 2 if 5 <= x.shape[0] < 8 else y, (6, 3), [(5, 1), (7, 0)], [(4, 3), (8, 3), (0, 3)]),
        (_chosen, (4, 3), [(8, 7), (4, 0)], [(6, 3), (5, 3), (4, 4), (4, 5), (0, 3)]),
        (_asserted, (2, 4), [(0, 4), (3, 3), (1, 2)], [(-3, 3), (1, 5)]),
    ],
)
def test_sizes_that_a_program_was_not_exported_for_are_refused(fn, sizes, right, wrong):
    """PyTorch chooses between the branches of Python by ranges, and by conditions on several sizes or remainders."""
    first, *given = [[torch.full((abs(n),), float(n)) for n in counts] for counts in (sizes, *right, *wrong)]
    program = exported(Call(fn), tuple(first), ({0: Dim.AUTO}, {0: Dim.AUTO}))
    function = machine(from_exported_program(program))
    for args in given[: len(right)]:
        (found,) = function(*map(weft.runtime.from_dlpack, args))
        torch.testing.assert_close(torch.from_dlpack(found), fn(*args))
    for args in given[len(right) :]:
        refuses(error.InvalidArgument, "", function, *map(weft.runtime.from_dlpack, args))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(padding):
    """Of an even kernel, "same" pads one more behind."""
    check(nn.Conv2d(2, 3, (4, 3), padding=padding, dilation=(1, 2)), (torch.randn(1, 2, 7, 9),))


class Memory(nn.Module):
    """Writes to buffers and to an input; returns what was there before, and what is there now."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("turned", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x):
        before = self.seen.clone()
        self.rows.index_copy_(0, (self.calls % 4)[None], x[None])
        self.calls += 1
        self.turned *= 1j
        swapped = self.last.clone()
        self.last.copy_(self.seen)
        self.seen.copy_(swapped + x)
        x.mul_(2)
        return before, self.seen[1:], self.rows.view(-1), self.calls, torch.view_as_real(self.turned), x + 1


def calls_agree(function, module, *, held=()):
    """Call both four times; what is written to in one call is read in the next, and inputs are written to as well."""
    with torch.no_grad():
        for i in range(4):
            mine, theirs = (torch.full((3,), i + 1.0) for _ in range(2))
            found, expected = function(weft.runtime.from_dlpack(mine), *held), module(theirs)
            for f, e in zip(found, [x.clone() for x in expected], strict=True):
                np.testing.assert_allclose(f.numpy(), e.numpy())
            assert torch.equal(mine, theirs)


def test_what_a_program_writes_to_is_there_at_the_next_call(tmp_path):
    module = Memory()
    program = exported(module, (torch.ones(3),))
    executable = weft.compile(from_exported_program(program), QUICK)
    executable.export_library(str(tmp_path / "memory.so"))
    loaded = weft.runtime.load_module(str(tmp_path / "memory.so"))
    calls_agree(relax.VirtualMachine(executable, weft.cpu())["main"], copy.deepcopy(module))
    calls_agree(relax.VirtualMachine(loaded, weft.cpu())["main"], copy.deepcopy(module))
    assert module.calls == 0  # PyTorch's own stays as it is
    mod = from_exported_program(program, keep_params_as_input=True)
    held = [weft.runtime.tensor(np.array(x.numpy())) for x in mod["main"].attrs["params"]]
    calls_agree(machine(mod), module, held=held)
    assert held[2].numpy() == 4


def test_a_normalisation_that_learns():
    module = nn.BatchNorm1d(5).train()
    with torch.no_grad():
        module.running_mean.add_(1)
    program = torch.export.export(module, (torch.randn(7, 5),))
    function = machine(from_exported_program(program))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(7, 5)
            (found,) = function(weft.runtime.from_dlpack(x))
            np.testing.assert_allclose(found.numpy(), module(x), rtol=1e-4, atol=1e-5)


def _written_in_views(x):
    y, z = x.new_empty(3, 4), torch.zeros(4, 4)
    power = z
    for _ in range(30):  # may be a view, on 2**30 ways
        power = power @ power
    power = power + 1
    y[:, :2] = x[:, 2:]
    y[..., 2:] = x[:, :1]
    half = y[1:]
    half += 1
    z.diagonal()[1:].copy_(half[0, 1:])
    z[0][1:3].fill_(5)
    half[1] = x[0]
    before = z * 2
    z[before > 9] = 3
    return y.exp(), half, before, z, power


def _read_before(x):
    y = x.clone()
    last = y[2]
    y.relu_()
    y[:, 1:] += 1
    return last


def _written_twice(x):
    shares, places = x.topk(2)
    shares /= shares.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    before = y + 1
    y.scatter_add_(1, places, shares)
    between = y.exp()
    y[y > 0.4] = 7
    return before, between, y.view(-1), shares


@pytest.mark.parametrize(
    ("function", "is_whole"),
    [
        (_written_twice, True),
        (lambda x: (x > 0).float().add_(x).masked_fill_(x > 1, 3), True),
        (lambda x: x.clone().float().mul_(x), True),
        (lambda x: x.float().mul_(1).view(-1), False),
        (lambda x: (x * 2).relu_().add_(1).clamp_(-1, 1.5), True),
        (lambda x: (x + 1).copy_(x).expand_as(x), True),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True)), True),
        (lambda x: F.instance_norm(x[None]).relu_() + F.group_norm(x[None], 3).relu_(), True),
        (_written_in_views, True),
        (_read_before, False),
        (lambda x: (x * 2).view(-1).mul_(2), False),
        (lambda x: (x > 0).float().mul_(x.double()), False),
    ],
)
def test_what_writes_to_new_tensors_is_imported_as_it_stands(monkeypatch, function, is_whole):
    """Taking a program apart traces it again, which takes seconds."""
    program = exported(Call(function), (x := torch.randn(3, 4),))
    taken, whole = [], type(program).run_decompositions
    monkeypatch.setattr(type(program), "run_decompositions", lambda p, t: taken.append(p) or whole(p, t))
    found = machine(from_exported_program(program))(weft.runtime.from_dlpack(x))
    expected = function(x.clone())
    for got, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=False):
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), 1e-5, 1e-6)
    assert bool(taken) != is_whole
