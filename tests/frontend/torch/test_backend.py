"""``torch.compile`` with Weft behind it."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan

from tests.frontend.torch.test_exported_program import Encoder, Images
from tests.refusals import refuses
from weft.error import InvalidArgument
from weft.frontend.torch import backend
from weft.frontend.torch.backend import weft_backend
from weft.runtime import from_dlpack


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.fixture
def builds(monkeypatch):
    """The functions that parts of a graph become, one after another."""
    found, convert = [], backend._Compiled._converted
    monkeypatch.setattr(backend._Compiled, "_converted", lambda self, *args: found.append(1) or convert(self, *args))
    return found


def check(compiled, module, *calls):
    with torch.no_grad():
        for args in calls:
            torch.testing.assert_close(compiled(*args), module(*args), rtol=1e-4, atol=1e-4)


def test_sizes_that_change_compile_once_more_only(builds):
    module = Images().eval()
    compiled = torch.compile(module, backend="weft")
    check(compiled, module, *((torch.randn(batch, 3, 16, 16),) for batch in (2, 4, 5, 9, 3)))
    assert len(builds) == 2  # for 2, then for any


def test_a_weight_that_is_written_counts():
    module = Encoder().eval()
    compiled, tokens = torch.compile(module, backend=weft_backend), torch.randint(0, 50, (2, 6))
    check(compiled, module, (tokens,))
    with torch.no_grad():
        module.out.weight.mul_(2)
    check(compiled, module, (tokens,))
    module.load_state_dict(Encoder().state_dict())
    check(compiled, module, (tokens,))


def test_what_is_written_again_and_again_is_an_input(builds):
    """Buffers that the module writes to, and weights that a program writes to between calls."""

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean.lerp_(x, 0.5)
            return self.mean * self.weight

    module = Running()
    compiled, other = torch.compile(copy.deepcopy(module), backend=weft_backend), module
    with torch.no_grad():
        for turn in range(6):
            if turn > 1:
                compiled.weight.add_(1)
                other.weight.add_(1)
            torch.testing.assert_close(compiled(torch.full((3,), 1.0 * turn)), other(torch.full((3,), 1.0 * turn)))
    assert len(builds) == 3  # at first, at the first change of the weight, and at its second one
    assert torch.equal(compiled.mean, other.mean)


@pytest.mark.filterwarnings("error:PyTorch runs a part")
def test_a_part_whose_inputs_show_no_size_that_stands_alone(monkeypatch):
    """Between two calls that stay with PyTorch, rows and columns are one dimension."""
    monkeypatch.setattr(backend._Support, "_is_converted", lambda self, node: "sin" not in node.name)

    def function(x):
        n, m = x.shape
        y = x.reshape(n * m).sin() * 2
        return y.view(n, m).sum(0) + y.sin().reshape(m, n).mean(1) + torch.arange(n * m // n)

    compiled = torch.compile(function, backend=weft_backend, dynamic=True)
    check(compiled, function, (torch.randn(3, 4),), (torch.randn(7, 5),))


def test_what_is_missing_stays_with_pytorch():
    def mixed(x):
        x = torch.special.ndtri(torch.sin(x).abs()) + 1
        torch._dynamo.graph_break()
        return torch.cos(x) * 2

    with pytest.warns(UserWarning, match="PyTorch runs what has no converter: aten.special_ndtri"):
        check(torch.compile(mixed, backend=weft_backend), mixed, (torch.randn(5),))


@pytest.mark.filterwarnings("error:PyTorch runs")
def test_a_check_of_values_does_not_cut_the_graph(builds):
    """PyTorch asserts that classes are not negative."""

    def function(x):
        return nn.functional.one_hot(x * 2, 7).float() * 3

    compiled = torch.compile(function, backend=weft_backend, dynamic=True)
    check(compiled, function, (torch.tensor([[0, 2, 3], [1, 1, 2]]),), (torch.arange(8).reshape(4, 2) % 3,))
    assert len(builds) == 1
    with torch.no_grad(), pytest.raises(RuntimeError, match="non-negative"):
        compiled(torch.tensor([[1, -1, 0], [0, 1, 2]]))


def test_a_call_that_a_converter_refuses_stays_alone_with_pytorch(builds):
    """What is around it runs in Weft: one attempt at all, then both sides, whose weights still count when written."""
    module = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def function(x, n):  # the order of a norm must be known
        return module[1](module[0](x).norm(p=n, dim=0)).relu()

    compiled, x = torch.compile(function, backend=weft_backend, dynamic=True), torch.randn(64, 4)
    for weight in (1, 2):
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module[1].weight.mul_(weight)
            torch.testing.assert_close(compiled(x, 3), function(x, 3), rtol=1e-5, atol=1e-5)
        told = [str(w.message) for w in caught if "PyTorch runs" in str(w.message)]
        assert len(told) == (weight == 1) and all("known only when the program runs" in text for text in told)
    assert len(builds) == 4  # all, before and behind, behind once more for its weight


def counted(x, n):
    """Written, read and cut at places that a number, whose size PyTorch leaves open, counts from the end."""
    (y := x + 0)[:, -n:-1], y[-n] = 7, 3
    return x[:, -(n + 1) : -1], x[:, -n::2], x[:, -3 * n : 2 * n - 1], x[-n], x.select(1, -n - 1), x.narrow(1, -n, 2), y


@pytest.mark.filterwarnings("error:PyTorch runs")
def test_places_that_open_numbers_count_from_the_end():
    calls = ((torch.randn(20, n + 16), n) for n in (4, 5, 7))
    check(torch.compile(counted, backend=weft_backend, dynamic=True), counted, *calls)


@pytest.mark.filterwarnings("error:PyTorch runs")
def test_choices_and_loops():
    def both(x):
        y = torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (x,))
        total, rows = scan(lambda c, v: (c + v, c * v), torch.zeros(3), y, dim=0)
        return total, rows + 1

    check(torch.compile(both, backend=weft_backend), both, *((torch.full((4, 3), x),) for x in (1.0, -1.0)))


def test_results_that_are_sizes_or_nothing():
    compiled = torch.compile(lambda x: (x * 2, x.shape[0] + 1, None), backend=weft_backend, dynamic=True)
    with torch.no_grad():
        doubled, size, nothing = compiled(torch.ones(3))
    assert doubled.tolist() == [2, 2, 2] and size == 4 and nothing is None


def test_training_stays_with_pytorch():
    module = nn.Linear(3, 2)
    with pytest.warns(UserWarning, match="no_grad"):
        torch.compile(module, backend=weft_backend)(torch.ones(1, 3)).sum().backward()
    assert module.weight.grad is not None


def test_options():
    module = nn.Linear(3, 2).eval()
    check(torch.compile(module, backend=weft_backend, options={"precision": "float32"}), module, (torch.ones(1, 3),))
    torch._dynamo.reset()
    check(torch.compile(module, backend=weft_backend, mode="max-autotune"), module, (torch.ones(1, 3),))
    refuses(InvalidArgument, "unknown mode of torch.compile", weft_backend, None, [], mode="fast")
    torch._dynamo.reset()
    compiled = torch.compile(module, backend=weft_backend, options={"speed": 9})
    with torch.no_grad(), pytest.raises(Exception, match="unknown options of the backend 'weft'"):
        compiled(torch.ones(1, 3))


ACTIVATIONS = "gelu silu mish softplus selu celu hardswish hardsigmoid softsign".split()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_activations_of_16_bits_are_rounded_once(dtype: torch.dtype) -> None:
    """Tails as well: GELU of -4 is a thousandth of what a step in 16 bits loses."""

    def function(x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {name: getattr(nn.functional, name)(x) for name in ACTIVATIONS}
        return found | {"tanh_gelu": nn.functional.gelu(x, approximate="tanh")}

    x = torch.linspace(-4, 4, 83).to(dtype)
    found = torch.compile(function, backend=weft_backend)(x)
    assert {y.dtype for y in found.values()} == {dtype}
    rtol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close({k: y.double() for k, y in found.items()}, function(x.double()), rtol=rtol, atol=1e-5)


def test_results_lie_in_memory_as_in_pytorch() -> None:
    """What a program views after a break of the graph, in channels last, transposed, in part, for sizes that change."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        rest = (y - 1)[:, -1], (y - 2)[:, :1].expand_as(y), torch.complex(y, y).mT + 1
        return y.permute(0, 2, 3, 1).view(-1, 3) * 2, y.permute(0, 2, 3, 1), *rest

    compiled = torch.compile(program, backend=weft_backend)
    for shape in ((2, 3, 4, 5), (3, 3, 6, 7), (0, 3, 4, 5)):
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        for found, expected in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(found, expected, check_stride=x.numel() > 0)


VIEWS = {
    "rows": lambda y: y[1:].as_strided((2, 3), (3, 1), 0),
    "columns": lambda y: y[:, 1:].as_strided((2, 5), (5, 1), 2),
    "a row, where it begins": lambda y: y[1].as_strided((2, 4), (4, 1)),
    "one of all rows": lambda y: y.unbind(0)[2].as_strided((3, 2), (5, 1), 1),
    "turned": lambda y: y.t().as_strided((3, 4), (1, 3), 1),
    "computed turned": lambda y: (y.t() + 1).as_strided((5, 4), (4, 1), 3),
    "of another type": lambda y: y.view(torch.int32).as_strided((2, 3), (3, 1), 1),
    "of parts": lambda y: torch.view_as_real(torch.complex(y, y + 1)).as_strided((2, 3), (3, 1), 1),
    "of pairs": lambda y: torch.view_as_complex(y.reshape(-1, 2)).as_strided((2, 3), (3, 1), 1).real,
    "of conjugates": lambda y: torch.complex(y, y + 1).conj().as_strided((2, 3), (3, 1), 1).imag,
    "of negative numbers": lambda y: torch.complex(y, y + 1).conj().imag.as_strided((2, 3), (3, 1), 1),
    "written": lambda y: torch.as_strided_scatter(y.t() + 1, torch.ones(2, 2), (2, 2), (6, 1), 2),
}


@pytest.mark.filterwarnings("ignore:PyTorch runs")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("x", [torch.arange(24.0).reshape(4, 6), torch.arange(48.0).reshape(8, 6)[::2]])
def test_views_by_strides_read_the_memory_of_what_they_are_views_of(x, dynamic):
    """Of the memory of an input, and of a result that each has for itself."""

    def function(x):
        computed = {name: VIEWS[name](x * n) for n, name in enumerate(VIEWS, 2)}
        return computed, {name: VIEWS[name](x[:, :]) * 1 for name in VIEWS}

    check(torch.compile(function, backend=weft_backend, dynamic=dynamic), function, (x,))


def test_numbers_that_count_negated_are_written_out():
    """PyTorch exports the memory of imaginary parts of conjugates, and not that they are negated."""
    parts = torch.complex(torch.randn(5), torch.randn(5)).conj()
    for function, x in ((lambda z: z.imag * 2, parts), (lambda x: x + 1, parts.imag)):
        check(torch.compile(function, backend=weft_backend), function, (x,))
    refuses(InvalidArgument, "resolve_neg", from_dlpack, parts.imag)


SHARED = {
    "a result": lambda x: (y := x + 1, y.view(-1), y[0], y.t()[1]),
    "no result": lambda x: (*(x * 2).split(3, 1), x.sum()),
    "an input": lambda x: (x.t(), x.view(-1)[1:], x + 0, x),
    "a written input": lambda x: (x.add_(1), x.t().mul_(2), x * 1),
}


@pytest.mark.filterwarnings("error:PyTorch runs")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("base", SHARED)
def test_views_share_the_memory_that_they_share_in_pytorch(base, dynamic):
    """Who writes to one result sees it in the others, and in inputs, where eager shows it there."""
    compiled, x = torch.compile(SHARED[base], backend=weft_backend, dynamic=dynamic), torch.randn(4, 6)
    with torch.no_grad():
        found, expected = ([*function(given), given] for function, given in ((compiled, x.clone()), (SHARED[base], x)))
        for i in range(len(found)):
            found[i].fill_(i), expected[i].fill_(i)
            torch.testing.assert_close(found, expected)


def test_weights_of_inference_mode_count_when_written():
    """They do not say when, so that they are inputs."""
    with torch.inference_mode():
        module = nn.Linear(4, 3).eval()
        compiled = torch.compile(module, backend=weft_backend)
        check(compiled, module, (x := torch.randn(2, 4),))
        module.weight.mul_(2)
        check(compiled, module, (x,))


@pytest.mark.filterwarnings("error:PyTorch runs")
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_numbers_out_of_data_are_those_of_python():
    def function(x):
        v = x.sum().item()
        return x[x > 0] * ((v + 1) / 3), v * 2 - 1

    check(torch.compile(function, backend=weft_backend), function, (torch.randn(5),), (torch.randn(9),))
