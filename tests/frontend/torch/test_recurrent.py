"""Recurrent layers beside PyTorch, for any number of samples: PyTorch itself fixes the length."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.frontend.torch.programs import Call, check, exported
from weft.environment import SWEEP
from weft.frontend.torch import from_exported_program

BOTH = {"bidirectional": True}
LAYERS = [(1, {}), (2, {"batch_first": True, **BOTH}), (2, {"bias": False}), (1, BOTH)]


def recurrent(kind, layers, options):
    """A layer and what it gives, flat; where the samples are in its input, and inputs of 4, of 1 and of 17."""
    layer, samples = kind(3, 5, layers, **options), int(not options.get("batch_first", False))

    def results(x):
        out, last = layer(x)
        return (out, *last) if isinstance(last, tuple) else (out, last)

    return layer, results, samples, [torch.randn(*((6, n) if samples else (n, 6)), 3) for n in (4, 1, 17)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(("layers", "options"), LAYERS)
def test_layers(kind, layers, options):
    layer, results, samples, inputs = recurrent(kind, layers, options)
    call = Call(results)
    call.layer = layer
    check(call, *((x,) for x in inputs), dynamic=(({samples: Dim("samples")},),))


@pytest.mark.filterwarnings("error:PyTorch runs a part")
@pytest.mark.parametrize(("kind", "of"), [(nn.RNN, 3), *([(nn.GRU, 2), (nn.LSTM, 1)] if SWEEP.read() else [])])
def test_layers_stay_whole_behind_the_compiler(kind, of):
    """Each kind with other options: by then converters, which have seen all, get the calls that `test_layers` has."""
    _, results, _, inputs = recurrent(kind, *LAYERS[of])
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
