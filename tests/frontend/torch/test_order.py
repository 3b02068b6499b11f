"""Medians, running extremes, distinct values, places in sorted sequences, beside PyTorch."""

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from tests.frontend.torch.programs import Call, check, exported, machine
from tests.refusals import refuses
from weft.error import IndexOutOfRange
from weft.frontend.torch import from_exported_program
from weft.runtime import from_dlpack

NAN = float("nan")
LINES = torch.tensor([[3.0, NAN, 1, 1, 5], [2, 2, NAN, NAN, 0], [7, 4, 4, 9, -1], [NAN] * 5])


def compare(fn, *args):
    """With every dimension open."""
    check(Call(fn), args, dynamic=(tuple({i: Dim.AUTO for i in range(x.ndim)} for x in args),))


def test_medians():
    compare(
        lambda x: (
            x.median(1).values,
            x.nanmedian(0).values,
            x.nanmedian(),
            x[2].median(),
            x.median(),
            x[2:3].kthvalue(2, 1, True).values,
        ),
        LINES,
    )
    compare(lambda x: (*x.median(1), *x.kthvalue(3, 1), x.median()), torch.stack([torch.randperm(7) for _ in range(4)]))
    check(Call(lambda x: (*x.median(0), *x.nanmedian(0, keepdim=True), x.median())), (torch.tensor(3.0),))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_pixels_of_any_rank(lead):
    compare(lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)), torch.randn(*lead, 8, 6, 4))


def test_labels_end_at_the_first_that_is_none():
    labels = torch.tensor([[0, 2, -1, 1], [1, -1, 0, 0], [3, 1, 2, 0], [-1, 0, 1, 2]])
    compare(
        lambda x, y: [F.multilabel_margin_loss(x, y, reduction=r) for r in ("mean", "sum", "none")],
        torch.randn(4, 4),
        labels,
    )
    compare(F.multilabel_margin_loss, torch.randn(4), labels[0])
    program = from_exported_program(exported(Call(F.multilabel_margin_loss), (torch.randn(4), labels[0])))
    for strange in (4, -2):
        given = map(from_dlpack, (torch.randn(4), torch.tensor([0, strange, -1, 0])))
        refuses(IndexOutOfRange, "gather_elements", machine(program), *given)


def test_elements_that_are_put():
    x, places, more = torch.arange(9).view(3, 3), torch.tensor([[0, -1], [7, 0]]), torch.tensor([[10, 20], [30, 40]])
    compare(
        lambda x, p, m: (
            x.put(p, m, accumulate=True),
            x.put(p[0], m[0]),
            (x > 2).put(p, m > 20, accumulate=True),
            x[0, 0].put(p[0, :1], m[0, :1]),
        ),
        x,
        places,
        more,
    )


def test_running_extremes():
    compare(lambda x: (*x.cummax(1), *x.cummin(1), *x.cummax(0), x.nan_to_num().logcumsumexp(1)), LINES)
    compare(lambda x: (*x.cummax(0), *(x > 2).cummin(0)), torch.randint(0, 5, (9,)))
    infinite = torch.full((2, 3), -torch.inf)
    check(Call(lambda x: x.logcumsumexp(1)), (torch.cat([infinite, torch.ones(2, 3), -infinite], 1),))


@pytest.mark.parametrize("x", [torch.randint(0, 5, (3, 7)), torch.tensor([2.5, torch.nan, 2.5, torch.nan, -1])])
def test_distinct_values(x):
    compare(lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
    compare(lambda x: (torch.unique_consecutive(x, return_counts=True)[1], torch.unique(x).sum()), x.flatten())


def test_occurrences_and_repetitions():
    counts = torch.tensor([1, 0, 3, 3])
    compare(lambda n: (torch.bincount(n), torch.bincount(n, minlength=9), torch.bincount(n, n * 0.5)), counts)
    compare(
        lambda x, n: (torch.repeat_interleave(x, n, 0), torch.repeat_interleave(x, n, 0, output_size=7)),
        torch.randn(4, 2),
        counts,
    )


def test_places_in_order():
    edges, values = torch.tensor([1, 3, 3, 8]), torch.randint(0, 10, (3, 5))
    compare(
        lambda a, v: (
            torch.searchsorted(a, v),
            torch.searchsorted(a, v, right=True),
            torch.bucketize(v * 0.5, a),
            torch.bucketize(v, a, out_int32=True),
            torch.searchsorted(a, 3),
        ),
        edges,
        values,
    )
    compare(lambda a, v: (torch.bucketize(v, a), torch.searchsorted(a, v, right=True)), LINES[0].sort().values, LINES)
    rows = torch.randn(3, 6)
    compare(
        lambda a, v: (
            torch.searchsorted(a.sort(1).values, v, side="right"),
            torch.searchsorted(a, v, sorter=a.argsort(1)),
        ),
        rows,
        torch.randn(3, 4),
    )


def test_numbers_out_of_data():
    compare(lambda x: (torch.full((2,), 1.5) * x.sum().item(), x + x.max().item()), torch.randn(5))
    compare(lambda x: x * ((x.sum().item() + 1) / 3 - 2 * x[0].item()), torch.randn(5))


def test_sizes_that_only_the_run_tells():
    every = ({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO},)
    first, second = torch.randn(2, 10, 9), torch.randn(3, 13, 12)
    pads = Call(
        lambda x: (
            F.pad(x, (0, 0, 0, -x.shape[1] % 4)),
            F.pad(x, (x.shape[2] // 3, 1), "reflect"),
            F.pad(x, (x.shape[2] // 2, 0), "replicate"),
            F.pad(x, (x.shape[2] // 2, -1), "circular"),
            F.pad(x > 0, (x.shape[1], 0)),
        )
    )
    check(pads, (first,), (second,), dynamic=(every,))
    loss = Call(lambda x: F.cross_entropy(x, x.softmax(1), label_smoothing=0.1) + x.shape[0] ** 0.5)
    check(loss, (first,), (second,), dynamic=(every,))
    cuts = Call(lambda x, n: (x[: n.item()], x[n.item() :]))
    check(
        cuts,
        (first[0], torch.tensor(4)),
        (second[0, :, :9], torch.tensor(-2)),
        (first[0], torch.tensor(99)),
        dynamic=(({0: Dim.AUTO}, {}),),
    )


def test_scores_that_are_all_masked():
    mask = torch.ones(3, 5, 5, dtype=torch.bool).tril(-1)
    compare(lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m), torch.randn(3, 5, 8), mask)
    slopes = torch.randn(4)

    def score(s, b, h, i, j):
        return torch.where(i > j, s + (slopes[h] + 0.1 * h) * (i - j), -torch.inf)

    compare(
        lambda q, k: flex_attention(q, k, k, score, enable_gqa=True), torch.randn(2, 4, 7, 8), torch.randn(2, 2, 9, 8)
    )
