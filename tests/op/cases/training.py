"""Losses, and operators that gradients use."""

from tests.op.contract import Case, Cases, Shape, Sizes, call, case, cases

case("collapse_sum_to", make=lambda s, name: call(s.real(s.a, s.b, s.c), Shape((s.b, 1)), rtol=1e-3, atol=1e-4))
case("collapse_sum_like", make=lambda s, name: call(s.real(s.a, s.b, s.c), s.real(s.b, 1), rtol=1e-3, atol=1e-4))


@cases("nn.cross_entropy_with_logits")
def _cross_entropy(s: Sizes, name: str) -> Cases:
    yield call(s.real(s.a, s.c), s.real(s.a, s.c), rtol=1e-3, atol=1e-4)
    yield call(s.real(s.c), s.real(s.c), rtol=1e-3, atol=1e-4)


@cases("nn.nll_loss")
def _nll(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, 4, s.c), s.integer(s.a, s.c, low=0, high=4), s.real(4, low=0.5), rtol=1e-3, atol=1e-4)


@cases("nn.nll_loss")
def _nll_each(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, 4), s.integer(s.a, low=0, high=4), reduction="none", ignore_index=1)


@cases("grad.nll_loss_backward")
def _nll_backward(s: Sizes, name: str) -> Case:
    return call(s.real(), s.real(s.a, 4, s.c), s.integer(s.a, s.c, low=0, high=4), s.real(4, low=0.5), rtol=1e-3)


@cases("grad.nll_loss_backward")
def _nll_backward_each(s: Sizes, name: str) -> Case:
    return call(s.real(s.a), s.real(s.a, 4), s.integer(s.a, low=0, high=4), reduction="none", ignore_index=1)


@cases("grad.take_backward")
def _take_backward(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.c, s.d), s.real(s.a, 5, s.d), s.integer(s.c, low=-5, high=5), axis=1, atol=1e-4)


case("grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint", make=lambda s, name: call(s.real(s.a, s.b)))
