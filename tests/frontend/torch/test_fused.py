"""Layers that PyTorch runs as one operator under ``no_grad``, beside the same layers in parts."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.frontend.torch.programs import Call
from weft.frontend.torch.registry import find


def compare(module, *args, **kwargs):
    """Behind ``torch.compile``, with nothing left to PyTorch; with gradients PyTorch runs the parts."""
    torch._dynamo.reset()
    module = module.eval()
    expected = module(*args, **kwargs)
    with torch.no_grad():
        found = torch.compile(module, backend="weft")(*args, **kwargs)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("error:PyTorch runs")
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu", "bias": True}])
@pytest.mark.parametrize("kind", [None, "mask", "padding", "both"])
def test_encoder_layers(options, kind):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    masks = {}
    if kind in ("mask", "both"):
        masks["src_mask"] = torch.ones(5, 5).triu(1).bool()
    if kind in ("padding", "both"):
        masks["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
    compare(layer, torch.randn(3, 5, 8), **masks)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("fast", [True, False])
def test_padding_before_nested_tensors(fast):
    """Eager's nested tensors put zeros at padded positions, of which the others must not know anything."""
    torch._dynamo.reset()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(4, 5, 8)
    padded = torch.arange(5) >= torch.tensor([5, 3, 1, 4])[:, None]
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad():
            expected = module(x, src_key_padding_mask=padded)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    with torch.no_grad():
        found = torch.compile(module, backend="weft")(x, src_key_padding_mask=padded)
    seen = ~padded if fast else torch.ones_like(padded)
    torch.testing.assert_close(found[seen], expected[seen], rtol=1e-4, atol=1e-4)
    assert not fast or not expected[padded].any()


@pytest.mark.filterwarnings("error:PyTorch runs")
def test_attention_alone():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 4, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x)[0]

    compare(Block(), torch.randn(2, 7, 8))


@pytest.mark.filterwarnings("error:PyTorch runs")
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.ones(7, 7).tril().bool()}])
def test_heads_of_keys_that_queries_share(options):
    """PyTorch's kernel repeats them by itself."""
    q, k = torch.randn(2, 6, 7, 8), torch.randn(2, 2, 7, 8)
    compare(Call(partial(F.scaled_dot_product_attention, enable_gqa=True, **options)), q, k, k + 1)


def test_both_have_converters():
    for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention"):
        assert find(getattr(torch.ops.aten, name).default) is not None
