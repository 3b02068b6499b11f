"""Graphs inside of graphs: what ``scan`` and ``map`` carry, yield and see from outside; products of groups; boxes."""

import pytest
import sympy
import torch
from torch import nn
from torch._higher_order_ops.map import map as rows
from torch._higher_order_ops.scan import scan
from torch.export import Dim

import weft
from benchmarks.torch_networks.written import define_nms
from tests.frontend.torch.programs import Call, check, exported, machine
from tests.refusals import refuses
from weft import ir
from weft.error import ModelImportError
from weft.frontend.torch import from_exported_program
from weft.frontend.torch.symbols import Symbols


def imported(fn, *args):
    """The first result of a function in Weft."""
    function = machine(from_exported_program(exported(Call(fn), args)))
    return torch.from_dlpack(function(*map(weft.runtime.from_dlpack, args))[0])


class Recurrence(nn.Module):
    """Two carried tensors, two that are walked, a result of each step, and weights from outside."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(4, 4)

    def forward(self, start, xs, ys):
        def step(carry, given):
            h, total = carry
            x, y = given
            h = torch.tanh(self.weight(h) + x)
            return (h, total + y), (h * 2, y.sum())

        (h, total), (every, sums) = scan(step, (start, torch.zeros(3)), (xs, ys), dim=0)
        return h, total, every, sums


@pytest.mark.parametrize("steps", [1, 5])
def test_scan_of_a_known_length(steps):
    check(Recurrence(), (torch.randn(2, 4), torch.randn(steps, 2, 4), torch.randn(steps, 3)))


def test_scan_of_any_length():
    def args(steps):
        return torch.randn(2, 4), torch.randn(steps, 2, 4), torch.randn(steps, 3)

    n = Dim("n", min=2)
    check(Recurrence(), args(4), args(2), args(9), dynamic=({}, {0: n}, {0: n}))


def test_scan_backwards_over_another_axis():
    backwards = Call(lambda start, xs: scan(lambda c, x: (c + x, c * x), start, xs, dim=1, reverse=True))
    check(backwards, (torch.randn(3), torch.randn(3, 6)))


def test_map():
    call = Call(lambda xs, y: rows(lambda x, y: (x.sin() @ y, x.sum()), xs, y))
    check(call, *((torch.randn(n, 2, 3), torch.randn(3, 5)) for n in (4, 7)), dynamic=({0: Dim("n", min=2)}, {}))


_LIBRARY = torch.library.Library("transformers", "FRAGMENT")


def define_grouped_mm():
    """The operator by which models of ``transformers`` call their experts: PyTorch's own asks for bfloat16."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        _LIBRARY.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        torch.library.register_fake(
            "transformers::grouped_mm_fallback", lambda x, weight, ends: x.new_empty(x.shape[0], weight.shape[2])
        )
    return torch.ops.transformers.grouped_mm_fallback


@pytest.mark.parametrize("ends", [[2, 2, 7], [0, 3, 3], [7, 7, 7]])
def test_products_of_groups_of_rows(ends):
    """Groups may be empty, and rows may be left over, for which PyTorch promises nothing and Weft gives zeros."""
    x, weights, ends = torch.randn(7, 8), torch.randn(3, 8, 4), torch.tensor(ends, dtype=torch.int32)
    expected, start = torch.zeros(7, 4), 0
    for end, weight in zip(ends.tolist(), weights, strict=True):
        expected[start:end], start = x[start:end] @ weight, end
    torch.testing.assert_close(imported(define_grouped_mm(), x, weights, ends), expected)


def test_groups_that_go_back_are_refused_where_they_run():
    ends = torch.tensor([5, 2, 7], dtype=torch.int32)
    with pytest.raises((weft.error.WeftError, ValueError, RuntimeError)):
        imported(define_grouped_mm(), torch.randn(7, 8), torch.randn(3, 8, 4), ends)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_boxes_that_overlap_no_better_one(count):
    corner = torch.rand(count, 2)
    boxes, scores = torch.cat([corner, corner + torch.rand(count, 2)], 1), torch.rand(count)
    define_nms()
    nms = torch.ops.torchvision.nms
    found = imported(lambda boxes, scores: nms(boxes, scores, 0.3), boxes, scores)
    assert found.tolist() == nms(boxes, scores, 0.3).tolist()


def test_histogram_and_windows():
    both = Call(lambda x: (torch.histc(x, 7, -1.0, 2.0), x.unfold(0, 5, 3), x.unfold(0, 1, 2)))
    check(
        both,
        (torch.tensor([-1.0, 2.0, -1.01, 2.01, float("nan"), float("inf"), 0.5, 0.4285715, 0, 1]),),
        (torch.randn(41),),
        dynamic=({0: Dim("n", min=8)},),
    )
    own = Call(lambda x: torch.histc(x, 7))
    check(own, (torch.randn(9),), (torch.full((41,), 2.0),), dynamic=({0: Dim("n", min=8)},))
    for strange in (float("nan"), float("inf")):
        refuses(weft.error.InvalidArgument, "data's own bounds", imported, own.fn, torch.tensor([1.0, strange, 2.0]))


def test_sizes_by_cases():
    n, symbols = sympy.Symbol("n"), Symbols()
    var = symbols.define(n)
    found = symbols.expression(sympy.Piecewise((7, sympy.Eq(n, 1)), (n + 2, n > 4), (0, True)))
    for value, expected in ((1, 7), (3, 0), (5, 7)):
        given = ir.substitute(found, {var: ir.const(value, "int64")})
        assert symbols.analyzer.simplify(given).value == expected
    refuses(ModelImportError, "computed by Piecewise", symbols.expression, sympy.Piecewise((7, sympy.Eq(n, 1))))
