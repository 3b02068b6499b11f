"""Losses, and operators that gradients use."""

from tests.op.contract import Case, Cases, Shape, Sizes, call, case, cases

case("collapse_sum_to", make=lambda s, name: call(s.real(s.a, s.b, s.c), Shape((s.b, 1)), rtol=1e-3, atol=1e-4))
case("collapse_sum_like", make=lambda s, name: call(s.real(s.a, s.b, s.c), s.real(s.b, 1), rtol=1e-3, atol=1e-4))


@cases("nn.cross_entropy_with_logits")
def _cross_entropy(s: Sizes, name: str) -> Cases:
    yield call(s.real(s.a, s.c), s.real(s.a, s.c), rtol=1e-3, atol=1e-4)
    yield call(s.real(s.c), s.real(s.c), rtol=1e-3, atol=1e-4)


@cases("nn.nll_loss")
def _nll(s: Sizes, name: str) -> Cases:
    yield call(s.real(s.a, 4, s.c), s.integer(s.a, s.c, low=0, high=4), s.real(4, low=0.5), rtol=1e-3, atol=1e-4)
    yield call(s.real(s.a, 4), s.integer(s.a, low=0, high=4), reduction="none", ignore_index=1)


@cases("grad.nll_loss_backward")
def _nll_backward(s: Sizes, name: str) -> Cases:
    yield call(s.real(), s.real(s.a, 4, s.c), s.integer(s.a, s.c, low=0, high=4), s.real(4, low=0.5), rtol=1e-3)
    yield call(s.real(s.a), s.real(s.a, 4), s.integer(s.a, low=0, high=4), reduction="none", ignore_index=1)


@cases("grad.take_backward")
def _take_backward(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.c, s.d), s.real(s.a, 5, s.d), s.integer(s.c, low=-5, high=5), axis=1, atol=1e-4)


@cases("grad.max_pool2d_backward", "grad.avg_pool2d_backward", when=lambda s: min(s.b, s.c) > 0)
def _pool_backward(s: Sizes, name: str) -> Cases:
    same = {"pool_size": 3, "padding": 1, "rtol": 1e-3, "atol": 1e-4}
    yield call(s.real(s.a, 2, s.b, s.c), s.real(s.a, 2, s.b, s.c), count_include_pad=True, **same)
    yield call(s.real(s.a, s.b, s.c, 2), s.real(s.a, s.b, s.c, 2), layout="NHWC", **same)
    x = s.real(s.a, 2, 9, 8)
    yield call(
        s.real(s.a, 2, 4, 4), x, pool_size=(3, 2), strides=2, dilation=2, padding=(1, 0), ceil_mode=True, rtol=1e-3
    )


case("grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint", make=lambda s, name: call(s.real(s.a, s.b)))
