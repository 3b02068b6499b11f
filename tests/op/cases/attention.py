"""Attention over caches that each sequence fills to a place of its own."""

import numpy as np

from tests.op.contract import Array, Case, Fixed, Shape, Sizes, call, cases


def _cached(heads: int, groups: int, size: int, **attrs: object) -> None:
    @cases("nn.cached_attention")
    def make(s: Sizes) -> Case:
        first = Array(s.rng.integers(-1, max(int(s.c), 1), s.d), (s.d,))
        caches = [s.real(s.d, groups, s.c, size) for _ in range(2)]
        return call(s.real(s.d, heads, s.b, size), *caches, first, rtol=1e-4, atol=1e-5, **attrs)


_cached(4, 2, 8)
_cached(3, 1, 24, window=2, scale=0.3)
_cached(2, 2, 16, softcap=1.5)


@cases("nn.cache_append")
def _append(s: Sizes) -> Case:
    first = np.minimum(s.rng.integers(0, 6, s.d), max(8 - s.b, 0))
    places = Fixed(Array(first, (s.d,)))
    return call(s.real(s.d, 2, s.c, 8), s.real(s.d, 2, s.b, 8), places, Shape((s.d, 2, 9, 8)), symbolic=False)
