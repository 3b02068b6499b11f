"""Normalisations, softmax and attention."""

import numpy as np

from tests.op.contract import Case, Cases, Sizes, call, case, cases

NEAR, CLOSE = {"rtol": 1e-4, "atol": 1e-5}, {"rtol": 1e-3, "atol": 1e-4}

case("nn.softmax", "nn.log_softmax", make=lambda s, name: call(s.real(s.a, s.b), **NEAR))
case("nn.softmax", "nn.log_softmax", make=lambda s, name: call(s.real(s.a, s.c, s.b), axis=1, **NEAR))
case("nn.softmax", make=lambda s: call(s.real(s.a, s.c, dtype="float16")))


@cases("nn.softmax")
def _softmax_masked(s: Sizes) -> Case:
    x = s.real(s.a, 5)
    x.value[:, 3:] = -np.inf
    return call(x)


@cases("nn.layer_norm")
def _layer_norm(s: Sizes) -> Case | None:
    return None if s.b == 0 else call(s.real(s.a, s.d, s.b), s.real(s.b), s.real(s.b), **CLOSE)


@cases("nn.layer_norm", when=lambda s: s.b * s.c > 0)
def _layer_norm_axes(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c), s.real(s.b, s.c), axes=[-2, -1], epsilon=1e-3, **CLOSE)


@cases("nn.layer_norm")
def _layer_norm_plain(s: Sizes) -> Case:
    return call(s.real(s.a, 9), s.real(9), s.real(9), axes=-1, center=False, scale=False, **CLOSE)


case("nn.rms_norm", make=lambda s: None if s.b == 0 else call(s.real(s.a, s.d, s.b), s.real(s.b), **CLOSE))
case(
    "nn.rms_norm", make=lambda s: call(s.real(s.a, 4, s.c, s.d), s.real(4, s.d), axes=[-1, 1], **CLOSE) if s.d else None
)
case("nn.rms_norm", make=lambda s: call(s.real(s.a, 16, dtype="float16"), s.real(16, dtype="float16"), axes=[-1]))


@cases("nn.instance_norm")
def _instance_norm(s: Sizes) -> Case | None:
    return None if s.b == 0 else call(s.real(s.a, s.c, s.b, 3), s.real(s.c), s.real(s.c), **CLOSE)


@cases("nn.batch_norm")
def _batch_norm(s: Sizes) -> Cases:
    yield call(s.real(s.a, s.c, s.b), s.real(s.c), s.real(s.c), s.real(s.c), s.real(s.c, low=0.5, high=2), **CLOSE)
    stats = s.real(s.c), s.real(s.c), s.real(s.c), s.real(s.c, low=0.5, high=2)
    yield call(s.real(s.a, s.b, s.c), *stats, axis=-1, center=False, epsilon=1e-3, **CLOSE)


case("nn.lrn", make=lambda s: call(s.real(s.a, s.c, s.b), size=3, alpha=0.3, beta=0.5, bias=2.0))
case("nn.lrn", make=lambda s: call(s.real(s.a, s.b, s.c), size=4, axis=2))


@cases("nn.attention", when=lambda s: s.b > 0)
def _attention(s: Sizes) -> Case:
    return call(s.real(s.a, s.c, 2, 4), s.real(s.a, s.b, 2, 4), s.real(s.a, s.b, 2, 5), **NEAR)


@cases("nn.attention")
def _attention_causal(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.c, 2, 4), s.real(s.a, s.c, 2, 4), s.real(s.a, s.c, 2, 4), causal_mask="TopLeft", scale=0.3, **NEAR
    )


@cases("nn.attention", when=lambda s: s.b >= s.c)
def _attention_causal_end(s: Sizes) -> Case:
    q, k, v = s.real(1, s.c, 2, 4), s.real(1, s.b, 2, 4), s.real(1, s.b, 2, 4)
    return call(q, k, v, causal_mask="BottomRight", symbolic=False, **NEAR)


@cases("nn.attention")
def _attention_window(s: Sizes) -> Case:
    q = s.real(1, s.c, 1, 4)
    return call(q, s.real(1, s.c, 1, 4), s.real(1, s.c, 1, 4), causal_mask="TopLeft", window_size=3, **NEAR)


@cases("nn.attention", when=lambda s: s.b > 0)
def _attention_bias(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.c, 2, 4), s.real(s.a, s.b, 2, 4), s.real(s.a, s.b, 2, 4), s.real(s.a, 1, s.c, s.b), **NEAR
    )


@cases("nn.attention", when=lambda s: s.b > 0)
def _attention_shared_heads(s: Sizes) -> Case:
    return call(s.real(s.a, s.c, 6, 4), s.real(s.a, s.b, 2, 4), s.real(s.a, s.b, 2, 3), **NEAR)


@cases("nn.group_norm")
def _group_norm(s: Sizes) -> Cases:
    yield call(s.real(s.a, 6, s.c, 3), s.real(6), s.real(6), num_groups=3, channel_axis=1, axes=[2, 3], **CLOSE)
    yield call(s.real(s.a, s.c, 3, 4), s.real(4), s.real(4), num_groups=2, channel_axis=-1, axes=[1, 2], **CLOSE)
    yield call(s.real(2, 6, s.c), s.real(6), s.real(6), num_groups=2, axes=[2], center=False, scale=False, **CLOSE)


HEADS = {"num_heads": 6, "num_key_heads": 3, "size": 4, "value_size": 5, "scale": 0.7}


@cases("nn.attention_heads", when=lambda s: s.b > 0)
def _attention_heads(s: Sizes) -> Cases:
    packed = s.real(s.a, s.b, 25)
    yield call(packed, packed, packed, num_heads=2, num_key_heads=2, size=4, value_size=4, offsets=(0, 8, 17), **NEAR)
    q, k, v = s.real(s.a, s.c, 24), s.real(s.a, 3, s.b, 4), s.real(s.a, 3, s.b, 5)
    yield call(q, k, v, s.real(s.c, s.b), **HEADS, **NEAR)


@cases("nn.attention_past", when=lambda s: s.b + s.c > 0)
def _attention_past(s: Sizes) -> Case:
    new = s.real(s.a, s.c, 24), s.real(s.a, 3, s.c, 4), s.real(s.a, 3, s.c, 5)
    return call(*new, s.real(s.a, 3, s.b, 4), s.real(s.a, 3, s.b, 5), **HEADS, **NEAR)
