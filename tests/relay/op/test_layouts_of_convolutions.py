"""Convolutions of Relay in any order of their layouts' letters, beside PyTorch's."""

import random
from itertools import permutations

import numpy as np
import pytest
import torch

from weft import relay
from weft.relay.op.evaluate import evaluate

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def orders(letters: str) -> list[str]:
    return ["".join(p) for p in permutations(letters)]


@pytest.mark.parametrize("kind", ["", "_transpose"])
@pytest.mark.parametrize("rank", SPATIAL)
def test_any_order(rank, kind):
    rng, drawn = np.random.default_rng(0), random.Random(rank)
    images, kernels = orders("NC" + SPATIAL[rank]), orders("OI" + SPATIAL[rank])
    for kernel_layout in kernels if rank < 3 else drawn.sample(kernels, 12):
        data_layout, out_layout, groups = drawn.choice(images), drawn.choice(["", *images]), drawn.choice((1, 2, 4))
        channels = drawn.choice((4, 8))  # as many as inputs: the letters alone tell them apart
        x = rng.standard_normal((2, 4, *(5, 4, 6)[:rank]), np.float32)
        each = (4, channels // groups) if kind else (channels, 4 // groups)
        w = rng.standard_normal((*each, *(3, 2, 3)[:rank]), np.float32)
        conv = getattr(torch.nn.functional, f"conv{kind}{rank}d")
        expected = conv(torch.from_numpy(x), torch.from_numpy(w), stride=2, padding=1, groups=groups).numpy()
        first, kernel_first = "NC" + SPATIAL[rank], ("IO" if kind else "OI") + SPATIAL[rank]
        given = (
            x.transpose([first.index(c) for c in data_layout]),
            w.transpose([kernel_first.index(c) for c in kernel_layout]),
        )
        call = getattr(relay.nn, f"conv{rank}d{kind}")(
            *(relay.var(name, shape=a.shape) for name, a in zip("xw", given, strict=True)),
            strides=(2,) * rank,
            padding=(1,) * rank,
            groups=groups,
            channels=channels,
            kernel_size=(3, 2, 3)[:rank],
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
        )
        wanted = expected.transpose([first.index(c) for c in out_layout or data_layout])
        assert relay.infer_type(call).ty.shape == wanted.shape
        np.testing.assert_allclose(evaluate(call, given), wanted, rtol=1e-4, atol=1e-4, err_msg=str(call.attrs))
