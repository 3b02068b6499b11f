"""Matrix products."""

from typing import Any

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases


def _wide(fn: Any) -> Any:
    return lambda *args: fn(*[a.astype(np.float64) for a in args])


case("nn.dense", make=lambda s: call(s.real(s.a, s.c), s.real(4, s.c), units=4, expect=_wide(lambda x, w: x @ w.T)))
case("nn.dense", make=lambda s: call(s.real(s.a, s.b, 3), s.real(s.c, 3), expect=_wide(lambda x, w: x @ w.T)))


@cases("nn.matmul")
def _matmul(s: Sizes) -> Cases:
    yield call(
        s.real(s.c, s.a), s.real(s.b, s.c), transpose_a=True, transpose_b=True, expect=_wide(lambda x, y: x.T @ y.T)
    )
    yield call(s.real(s.a, s.c), s.real(s.c, 3), units=3, expect=_wide(np.matmul))


@cases("nn.dense", "nn.matmul")
def _one_row(s: Sizes, name: str) -> Case:
    options = {"transpose_b": True} if name == "nn.matmul" else {}
    return call(s.real(1, 37), s.real(s.b, 37), expect=_wide(lambda x, w: x @ w.T), **options)


@cases("nn.batch_matmul")
def _batch_matmul(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.b, s.c), s.real(s.a, 4, s.c), expect=_wide(lambda x, y: x @ y.transpose(0, 2, 1)))
    yield call(
        s.real(s.a, s.c, s.b),
        s.real(1, s.c, 4),
        transpose_a=True,
        transpose_b=False,
        expect=_wide(lambda x, y: x.transpose(0, 2, 1) @ y),
    )


case("nn.bias_add", make=lambda s: call(s.real(s.a, s.b, s.c), s.real(s.b), expect=lambda x, b: x + b[:, None]))
case("nn.bias_add", make=lambda s: call(s.real(s.a, s.c), s.real(s.c), axis=-1, expect=np.add))


@cases("einsum")
def _einsum(s: Sizes) -> Case:
    return call(
        (s.real(s.a, s.b), s.real(s.b, s.c)), equation="ij,jk->ki", expect=lambda t: (t[0].astype("float64") @ t[1]).T
    )
