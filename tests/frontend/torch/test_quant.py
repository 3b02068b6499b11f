"""Quantised programs beside PyTorch: rounding to bytes, products of them, and a layer as its quantisation writes it."""

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers the library)

from tests.frontend.torch.programs import Call, check

Q = torch.ops.quantized_decomposed
SCALES, ZEROS = torch.tensor([0.1, 0.03, 0.7]), torch.tensor([0, 3, -5])
RANGES = [(torch.int8, -128, 127), (torch.int8, -127, 127), (torch.uint8, 0, 127)]


@pytest.mark.parametrize(("dtype", "low", "high"), RANGES)
@pytest.mark.parametrize("shape", [(4, 3, 5), (0, 3, 1)])
def test_rounding_and_back(dtype, low, high, shape):
    torch.manual_seed(0)
    zeros = ZEROS.abs() if dtype == torch.uint8 else ZEROS
    kind = (low, high, dtype)

    def both(x):
        q, r = Q.quantize_per_tensor(x, 0.05, 7, *kind), Q.quantize_per_channel(x, SCALES, zeros, 1, *kind)
        s = Q.quantize_per_tensor(x, SCALES[0], zeros[1], *kind)
        back = Q.dequantize_per_tensor(q, 0.05, 7, *kind), Q.dequantize_per_channel(r, SCALES, zeros, -2, *kind)
        return q, r, s, *back, Q.dequantize_per_channel(r, SCALES, None, 1, *kind)

    check(Call(both), (torch.randn(shape) * 4,))


def test_a_layer_of_bytes():
    torch.manual_seed(0)
    weight, scales = torch.randint(-127, 128, (6, 8), dtype=torch.int8), torch.rand(6) / 50
    kind = (0, 255, torch.uint8)

    def layer(x):
        q = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, 0.02, 128, *kind), 0.02, 128, *kind)
        real = Q.dequantize_per_channel(weight, scales, torch.zeros(6, dtype=torch.int64), 0, -127, 127, torch.int8)
        return torch.relu(torch.nn.functional.linear(q, real, scales))

    check(Call(layer), (torch.randn(5, 8),), (torch.randn(3, 8),), dynamic=({0: torch.export.Dim("n")},))


def test_products_of_bytes():
    torch.manual_seed(0)
    a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((32, 16), (16, 24)))
    check(Call(torch._int_mm), (a, b))
    weight, scales = b.T.contiguous(), torch.rand(24)
    check(Call(lambda x: torch.ops.aten._weight_int8pack_mm(x, weight, scales)), (torch.randn(5, 16),), tolerance=1e-3)


def test_truth_of_all_elements():
    x = torch.tensor([[True, False], [True, True]])
    check(Call(lambda x: (torch.ops.aten._is_all_true(x), torch.ops.aten._is_any_true(x))), (x,), (~x,), (x | True,))
