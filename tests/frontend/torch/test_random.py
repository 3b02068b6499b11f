"""Random numbers of exported programs, new in each call and of the right distribution; PyTorch's own when compiled."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.frontend.torch.programs import Call, exported
from weft.frontend.torch import from_exported_program

COUNT = 4000


def uniform(low: float = 0, width: float = 1) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.clip((x - low) / width, 0, 1)


def normal(mean: float = 0, std: float = 1) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.array([(1 + math.erf((v - mean) / std / math.sqrt(2))) / 2 for v in x])


def assert_follows(found: np.ndarray, share_below: Callable[[np.ndarray], np.ndarray]) -> None:
    """By the test of Kolmogorov and Smirnov, which fails one time in some hundred million."""
    ordered = np.sort(found.reshape(-1).astype(np.float64))
    places = np.arange(len(ordered) + 1) / len(ordered)
    expected = share_below(ordered)
    distance = max((places[1:] - expected).max(), (expected - places[:-1]).max())
    assert distance < 3.1 / math.sqrt(len(ordered))


def machine(function: Callable[..., Any], x: torch.Tensor) -> Any:
    """Export with every dimension dynamic; the results of a call as arrays."""
    program = exported(Call(function), (x,), ({i: torch.export.Dim.AUTO for i in range(x.ndim)},))
    main = weft.relax.VirtualMachine(weft.compile(from_exported_program(program)), weft.cpu())["main"]
    return lambda given: [v.numpy() for v in main(given.numpy())]


DISTRIBUTIONS: dict[str, tuple[Callable[[torch.Tensor], Any], Any]] = {
    "rand": (torch.rand_like, uniform()),
    "rand of a size": (lambda x: torch.rand(x.shape[0], x.shape[1]), uniform()),
    "randn": (torch.randn_like, normal()),
    "randn of a size, float64": (lambda x: torch.randn(x.shape, dtype=torch.float64), normal()),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-3, 5), uniform(-3, 8)),
    "normal": (lambda x: torch.empty_like(x).normal_(2, 0.5), normal(2, 0.5)),
    "normal of a tensor": (lambda x: torch.normal(torch.full_like(x, -1.0), 3.0), normal(-1, 3)),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), lambda x: 1 - np.exp(-2 * np.maximum(x, 0))),
    "reparametrised": (lambda x: x.mean() * 0 + 1 + torch.exp(x * 0) * torch.randn_like(x), normal(1)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    function, law = DISTRIBUTIONS[name]
    run = machine(lambda x: (function(x), function(x)), torch.ones(3, 5))
    x = torch.ones(COUNT // 40, 40)
    a, b = run(x)
    (c, _) = run(x)
    assert a.shape == tuple(x.shape) and a.dtype == function(x).numpy().dtype
    assert_follows(a, law)
    for other in (b, c):  # draws of one call, and of two
        assert abs(np.corrcoef(a.reshape(-1), other.reshape(-1))[0, 1]) < 0.1
    assert run(torch.ones(0, 7))[0].shape == (0, 7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_uniform_numbers_stay_below_one(dtype: torch.dtype) -> None:
    run = machine(lambda x: (torch.rand_like(x, dtype=dtype).float(), torch.rand(9, dtype=dtype)), torch.ones(3, 5))
    found, known_size = run(torch.ones(300, 200))
    assert 0 <= found.min() < 0.01 and 0.9 < found.max() < 1
    assert (known_size != run(torch.ones(3, 2))[1]).any(), "drawn when the program was compiled"


def test_whole_numbers() -> None:
    def function(x: torch.Tensor) -> Any:
        return (
            torch.randint(-2, 3, x.shape),
            torch.randint_like(x, 7),
            torch.randperm(x.shape[0]),
            torch.bernoulli(x * 0 + 0.25),
            torch.bernoulli(x, 0.75),
            torch.randint(0, x.shape[1], (x.shape[0],)),
        )

    x = torch.ones(COUNT // 4, 4)
    integers, like, order, rare, often, below = machine(function, torch.ones(3, 5))(x)
    for found, other in zip((integers, like, order, rare, often, below), function(x), strict=True):
        assert found.dtype == other.numpy().dtype and found.shape == tuple(other.shape)
    for found, low, high in ((integers, -2, 3), (like, 0, 7), (below, 0, 4)):
        values, counts = np.unique(found, return_counts=True)
        assert (values == np.arange(low, high)).all()
        expected_count = found.size / (high - low)
        assert (abs(counts - expected_count) < 6 * math.sqrt(expected_count)).all()
    assert sorted(order) == list(range(len(x))) and (order != np.arange(len(x))).any()
    assert abs(rare.mean() - 0.25) < 0.05 and abs(often.mean() - 0.75) < 0.05


@pytest.mark.parametrize("replacement", [True, False])
def test_classes_by_their_weights(replacement: bool) -> None:
    weights = torch.tensor([0.0, 1.0, 5.0, 2.0, 0.0])
    run = machine(lambda x: (torch.multinomial(x, 2, replacement),), weights.expand(3, -1).contiguous())
    (found,) = run(weights.expand(COUNT, -1).contiguous())
    assert found.shape == (COUNT, 2) and found.dtype == np.int64
    share = weights.numpy() / 8
    first, second = (np.bincount(found[:, i], minlength=5) / COUNT for i in (0, 1))
    np.testing.assert_allclose(first, share, atol=0.05)
    if replacement:
        np.testing.assert_allclose(second, share, atol=0.05)
    else:
        assert (found[:, 0] != found[:, 1]).all()


def test_a_seed_of_pytorch_counts_behind_its_compiler() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        """What waits for other parts draws in its turn, all the same."""
        y = torch.bernoulli(x.sigmoid()) + torch.randn(x.shape)
        y = torch.sin(torch.dropout(y.cos(), 0.5, True) + torch.rand_like(x))
        return y + torch.bernoulli(x.cos().abs()) + torch.dropout(x.exp(), 0.3, True)

    compiled, x = torch.compile(function, backend="weft"), torch.ones(4, 5)
    found, expected = [], []
    for results, call in ((found, compiled), (expected, function)):
        torch.manual_seed(3)
        with torch.no_grad(), warnings.catch_warnings(record=True) as told:
            results += [call(x), call(x)]
        text = "PyTorch runs what has no converter: aten.native_dropout.default"
        assert [str(w.message) for w in told if "PyTorch runs" in str(w.message)] == [text] * (call is compiled)
    torch.testing.assert_close(found, expected)
