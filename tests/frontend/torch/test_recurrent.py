"""Recurrent layers beside PyTorch, for any number of samples: PyTorch itself fixes the length."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.frontend.torch.programs import Call, check, exported
from weft.frontend.torch import from_exported_program


@pytest.mark.filterwarnings("error:PyTorch runs")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    ("layers", "options"),
    [(1, {}), (2, {"batch_first": True, "bidirectional": True}), (2, {"bias": False}), (1, {"bidirectional": True})],
)
def test_layers(kind, layers, options):
    layer = kind(3, 5, layers, **options)

    def results(x):
        out, last = layer(x)
        return (out, *last) if isinstance(last, tuple) else (out, last)

    call = Call(results)
    call.layer = layer
    first = options.get("batch_first", False)
    inputs = [torch.randn(*((n, 6) if first else (6, n)), 3) for n in (4, 1, 17)]
    check(call, *((x,) for x in inputs), dynamic=(({0 if first else 1: Dim("samples")},),))
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(results, backend="weft", dynamic=True)
        torch.testing.assert_close([compiled(x) for x in inputs], [results(x) for x in inputs])


def test_states_that_are_given():
    """One sequence without a batch, in float64; rectified steps."""
    lstm, rnn = nn.LSTM(3, 5, 2).double(), nn.RNN(3, 5, nonlinearity="relu").double()
    call = Call(lambda x, h, c: (*lstm(x, (h, c))[1], rnn(x, h[:1])[0]))
    call.layers = nn.ModuleList([lstm, rnn])
    given = (torch.randn(7, 3), torch.randn(2, 5), torch.randn(2, 5))
    check(call, tuple(x.double() for x in given), tolerance=1e-12)


def test_layers_with_projections_are_taken_apart():
    lstm, gru = nn.LSTM(3, 5, proj_size=2), nn.GRU(2, 4)
    call = Call(lambda x: gru(lstm(x)[0])[0])
    call.layers = nn.ModuleList([lstm, gru])
    mod = check(call, (torch.randn(4, 2, 3),))
    assert "nn.gru" in str(mod)
    assert "nn.lstm" not in str(mod)


def test_the_weights_may_be_inputs():
    mod = from_exported_program(exported(nn.GRU(3, 5), (torch.randn(4, 2, 3),)), keep_params_as_input=True)
    assert len(mod["main"].params) == 5
