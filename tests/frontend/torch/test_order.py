"""Distinct values, occurrences, repetitions, beside PyTorch."""

import pytest
import torch
from torch.export import Dim

from tests.frontend.torch.programs import Call, check


def compare(fn, *args):
    """With every dimension open."""
    check(Call(fn), args, dynamic=(tuple({i: Dim.AUTO for i in range(x.ndim)} for x in args),))


@pytest.mark.parametrize("x", [torch.randint(0, 5, (3, 7)), torch.tensor([2.5, torch.nan, 2.5, torch.nan, -1])])
def test_distinct_values(x):
    compare(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
    compare(lambda x: (torch.unique_consecutive(x, return_counts=True)[1], torch.unique(x).sum()), x.flatten())


def test_occurrences_and_repetitions():
    counts = torch.tensor([1, 0, 3, 3])
    compare(lambda n: (torch.bincount(n), torch.bincount(n, minlength=9), torch.bincount(n, n * 0.5)), counts)
    compare(lambda x, n: (torch.repeat_interleave(x, n, 0), torch.repeat_interleave(x, n, 0, output_size=7)),
            torch.randn(4, 2), counts)  # fmt: skip


def test_numbers_out_of_data():
    compare(lambda x: (torch.full((2,), 1.5) * x.sum().item(), x + x.max().item()), torch.randn(5))
