"""Reductions and scans."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases

KINDS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean}


@cases(*KINDS)
def _reduced(s: Sizes, name: str) -> Cases:
    yield call(s.real(s.b, s.a, 3), axis=-1, expect=lambda x: KINDS[name](x.astype("float64"), -1))
    yield call(
        s.real(s.a, s.c, 3),
        axis=(1,),
        exclude=True,
        keepdims=True,
        expect=lambda x: KINDS[name](x.astype("float64"), (0, 2), keepdims=True),
    )


case(*KINDS, make=lambda s, name: call(s.real(s.a, s.c), axis=(), expect=lambda x: KINDS[name](x.astype("float64"))))
case("all", "any", make=lambda s, name: call(s.boolean(s.a, s.b), axis=1, expect=lambda x: getattr(np, name)(x, 1)))


@cases("argmax", "argmin")
def _arg(s: Sizes, name: str) -> Cases:
    yield call(
        s.real(s.b, s.c), axis=1, keepdims=True, expect=lambda x: np.int32(getattr(np, name)(x, 1, keepdims=True))
    )
    yield call(
        s.real(s.a, s.b, s.c),
        axis=1,
        exclude=True,
        keepdims=True,
        expect=lambda x: np.int32(getattr(np, name)(x.transpose(1, 0, 2).reshape(s.b, s.a * s.c), 1))[None, :, None],
    )
    yield call(s.real(s.a, s.c), expect=lambda x: np.int32(getattr(np, name)(x)))


@cases("variance")
def _variance(s: Sizes) -> Case:
    x = s.real(s.a, 5, s.c)
    mean = s.real(s.a, 1, s.c)
    mean.value[:] = x.value.mean(1, keepdims=True)
    return call(x, mean, axis=1, expect=lambda x, m: x.astype("float64").var(1))


@cases("variance", when=lambda s: s.b > 1)
def _variance_unbiased(s: Sizes) -> Case:
    x = s.real(s.b, s.a)
    mean = s.real(1, s.a)
    mean.value[:] = x.value.mean(0, keepdims=True)
    return call(x, mean, axis=0, unbiased=True, expect=lambda x, m: x.astype("float64").var(0, ddof=1))


@cases("logsumexp")
def _logsumexp(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.c), axis=(1,), expect=lambda x: np.log(np.exp(x.astype("float64")).sum(1)))
    yield call(s.real(s.a, s.c), keepdims=True, expect=lambda x: np.log(np.exp(x.astype("float64")).sum(keepdims=True)))


@cases("cumsum", "cumprod")
def _scan(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.c, low=0.5, high=1.5), axis=1, expect=lambda x: getattr(np, name)(x.astype("float64"), 1))


@cases("cumsum")
def _scan_exclusive(s: Sizes) -> Case:
    return call(
        s.integer(s.c, 2, dtype="int32"),
        dtype="int64",
        exclusive=True,
        expect=lambda x: np.cumsum(x.reshape(-1)) - x.reshape(-1),
    )
