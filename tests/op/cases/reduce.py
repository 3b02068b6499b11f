"""Reductions and scans."""

import numpy as np

from tests.op.contract import Case, Cases, Sizes, call, case, cases

EVERY = ("sum", "prod", "max", "min", "mean", "variance", "std")


@cases(*EVERY)
def _last(s: Sizes, name: str) -> Case | None:
    if name in ("mean", "variance", "std") and 0 in (s.b,):
        return None
    return call(s.real(s.a, s.b), axis=-1)


case(*EVERY, make=lambda s, name: call(s.real(s.a, s.c, 2), rtol=1e-3, atol=1e-4))
case(*EVERY, make=lambda s, name: call(s.real(s.a, s.b, s.c, 3), axis=(0, 2), keepdims=True, rtol=1e-3, atol=1e-4))


@cases("sum", "prod", "max", "min", "mean")
def _integers(s: Sizes, name: str) -> Case | None:
    if name == "mean" and s.b == 0:
        return None
    return call(s.integer(s.a, s.b, low=-2, high=3), axis=[1])


case("sum", "max", make=lambda s, name: call(s.integer(s.a, s.b, low=0, high=9, dtype="uint8"), axis=0))
case("sum", "max", "mean", make=lambda s, name: call(s.real(s.a, s.c, dtype="float16"), axis=1))


@cases("max", "min")
def _nan(s: Sizes, name: str) -> Case:
    x = s.real(s.a, 4)
    x.value[0, 1] = np.nan
    return call(x, axis=1)


case("all", "any", "max", "min", make=lambda s, name: call(s.boolean(s.a, s.b, s.c), axis=(1,)))
case("all", "any", make=lambda s, name: call(s.boolean(s.a, 2), keepdims=True))
case("sum", make=lambda s: call(s.real(s.a, s.b), axis=()))


@cases("argmax", "argmin")
def _arg(s: Sizes, name: str) -> Cases:
    yield call(s.integer(s.b, s.a, s.c, low=-2, high=3), axis=1)  # many equals
    yield call(s.integer(s.a, s.b, low=-2, high=3, dtype="int32"), axis=0, keepdims=True, select_last_index=True)
    yield call(s.real(s.b, s.c), axis=-1, keepdims=True, dtype="int32")


@cases("argmax", "argmin")
def _arg_nan(s: Sizes, name: str) -> Case:
    x = s.real(s.a, 5)
    x.value[:, 1:4:2] = np.nan
    return call(x, axis=-1)


@cases("argmax", "argmin")
def _arg_infinite(s: Sizes, name: str) -> Case:
    x = s.real(s.a, 3)
    x.value[:] = -np.inf if name == "argmax" else np.inf
    return call(x, axis=-1)


case("argmax", "argmin", make=lambda s, name: call(s.real(s.a, s.c)))
case("cumsum", "cumprod", make=lambda s, name: call(s.real(s.a, s.b, low=0.5, high=1.5), axis=1, rtol=1e-3))
case("cumsum", "cumprod", make=lambda s, name: call(s.integer(s.a, s.b, s.c, low=-2, high=3), axis=-2, reverse=True))


@cases("cumsum", "cumprod")
def _scan_exclusive(s: Sizes, name: str) -> Cases:
    yield call(s.integer(s.b, s.a, low=-2, high=3), axis=0, exclusive=True, reverse=True, dtype="int32")
    yield call(s.real(s.b, s.a, low=0.5, high=1.5), axis=0, exclusive=True, rtol=1e-3)


case("cumsum", "cumprod", make=lambda s, name: call(s.integer(s.a, s.b, low=1, high=3)))
