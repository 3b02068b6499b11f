"""Normalisations, dropout."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases


def _normalized(x, axes, eps=1e-5):
    x = x.astype("float64")
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@cases("nn.batch_norm")
def _batch_norm(s: Sizes) -> Case:
    vectors = [s.real(s.b, low=0.5) for _ in range(4)]

    def expect(x, g, b, m, v):
        column = lambda a: a[:, None]  # noqa: E731
        return (x - column(m)) / np.sqrt(column(v) + 1e-3) * column(g) + column(b), m, v

    return call(s.real(s.a, s.b, s.c), *vectors, epsilon=1e-3, expect=expect)


@cases("nn.batch_norm")
def _batch_norm_last(s: Sizes) -> Case:
    vectors = [s.real(s.c, low=0.5) for _ in range(4)]
    return call(
        s.real(s.a, s.c),
        *vectors,
        axis=-1,
        scale=False,
        center=False,
        expect=lambda x, g, b, m, v: ((x - m) / np.sqrt(v + 1e-5), m, v),
    )


@cases("nn.layer_norm")
def _layer_norm(s: Sizes) -> Cases:
    yield call(s.real(s.a, 6), s.real(6), s.real(6), expect=lambda x, g, b: _normalized(x, -1) * g + b)
    yield call(
        s.real(s.a, 6, s.c),
        s.real(6),
        s.real(6),
        axis=1,
        scale=False,
        expect=lambda x, g, b: _normalized(x, 1) + b[:, None],
    )


@cases("nn.group_norm")
def _group_norm(s: Sizes) -> Case:
    def expect(x, g, b):
        y = _normalized(x.reshape(x.shape[0], 2, 3, *x.shape[2:]), (2, 3, 4)).reshape(x.shape)
        return y * g[:, None, None] + b[:, None, None]

    return call(s.real(s.a, 6, s.c, 3), s.real(6), s.real(6), num_groups=2, expect=expect)


@cases("nn.instance_norm")
def _instance_norm(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, 3, s.c, 2),
        s.real(3),
        s.real(3),
        expect=lambda x, g, b: _normalized(x, (2, 3)) * g[:, None, None] + b[:, None, None],
    )
    yield call(
        s.real(s.a, s.c, 2, 3),
        s.real(3),
        s.real(3),
        axis=-1,
        center=False,
        expect=lambda x, g, b: _normalized(x, (1, 2)) * g,
    )


@cases("nn.l2_normalize")
def _l2(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.c),
        eps=1e-3,
        axis=(1,),
        expect=lambda x: x / np.sqrt(np.maximum((x.astype("float64") ** 2).sum(1, keepdims=True), 1e-3)),
    )


case("nn.dropout", make=lambda s: call(s.real(s.a, s.b), rate=0.3, expect=lambda x: (x, np.ones_like(x))))
