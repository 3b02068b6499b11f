"""Losses."""

import numpy as np
import torch
import torch.nn.functional as torch_nn

from tests.relay.op.contract import Case, Sizes, call, cases


@cases("nn.cross_entropy")
def _cross_entropy(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.c, low=0.1),
        s.real(s.a, s.c),
        expect=lambda p, t: -(np.log(p.astype("float64")) * t).sum() / p.shape[0],
    )


@cases("nn.cross_entropy_with_logits")
def _with_logits(s: Sizes) -> Case:
    return call(s.real(s.a, s.c), s.real(s.a, s.c), expect=lambda p, t: -(p.astype("float64") * t).sum() / p.shape[0])


@cases("nn.nll_loss")
def _nll_loss(s: Sizes) -> Case:
    def expect(p, t, w):
        return torch_nn.nll_loss(*map(torch.from_numpy, (p, t, w))).numpy()

    return call(s.real(s.a, 5, 3), s.integer(s.a, 3, low=0, high=5), s.real(5, low=0.5), expect=expect)


@cases("nn.nll_loss")
def _nll_loss_ignored(s: Sizes) -> Case:
    def expect(p, t, w):
        return torch_nn.nll_loss(*map(torch.from_numpy, (p, t, w)), ignore_index=2, reduction="none").numpy()

    given = s.real(s.a, 5), s.integer(s.a, low=0, high=5), s.real(5, low=0.5)
    return call(*given, ignore_index=2, reduction="none", expect=expect)
