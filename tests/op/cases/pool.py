"""Pooling."""

from tests.op.contract import Case, Cases, Sizes, call, case, cases

NEAR = {"rtol": 1e-4, "atol": 1e-5}


@cases("nn.max_pool1d", "nn.avg_pool1d")
def _pool1d(s: Sizes, name: str) -> Case | None:
    return None if s.c < 2 else call(s.real(s.a, s.b, s.c), pool_size=2, strides=2, **NEAR)


@cases("nn.max_pool1d", "nn.avg_pool1d")
def _pool1d_ceil(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, 3, s.c), pool_size=3, strides=2, padding=(1, 1), ceil_mode=True, **NEAR)


@cases("nn.max_pool2d", "nn.avg_pool2d", when=lambda s: min(s.b, s.c) > 1)
def _pool2d(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, 3, s.b, s.c), pool_size=(3, 2), strides=(2, 1), padding=(1, 1, 0, 0), **NEAR)


@cases("nn.max_pool2d", "nn.avg_pool2d", when=lambda s: s.b > 0)
def _pool2d_last(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.b, s.c, 17), pool_size=3, strides=2, padding=1, ceil_mode=True, layout="NHWC", **NEAR)


@cases("nn.max_pool2d", "nn.avg_pool2d", when=lambda s: s.b > 2)
def _pool2d_dilated(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.c, s.b, 6), pool_size=2, dilation=2, padding=(0, 1), **NEAR)


@cases("nn.avg_pool2d", when=lambda s: s.b > 0)
def _include_pad(s: Sizes) -> Cases:
    yield call(s.real(s.a, 2, s.b, s.c), pool_size=3, strides=2, padding=(1, 1, 1, 1), count_include_pad=True, **NEAR)
    x = s.real(s.a, 2, s.b, s.c)
    yield call(x, pool_size=3, strides=2, padding=(1, 1, 1, 1), count_include_pad=True, ceil_mode=True, **NEAR)


@cases("nn.max_pool2d", when=lambda s: min(s.b, s.c) > 1)
def _max_of_integers(s: Sizes) -> Cases:
    yield call(s.integer(s.a, 2, s.b, s.c, dtype="int8"), pool_size=2, padding=1)
    yield call(s.integer(s.a, 2, s.b, s.c, low=0, high=200, dtype="uint8"), pool_size=2, strides=2)


@cases("nn.max_pool3d", "nn.avg_pool3d", when=lambda s: s.b > 0)
def _pool3d(s: Sizes, name: str) -> Case:
    return call(s.real(1, 2, s.b, s.c, 4), pool_size=(1, 2, 2), strides=2, padding=(0, 1, 0, 0, 0, 1), **NEAR)


@cases("nn.adaptive_max_pool2d", "nn.adaptive_avg_pool2d", when=lambda s: s.b > 0)
def _adaptive(s: Sizes, name: str) -> Cases:
    yield call(s.real(s.a, 3, s.b, s.c), output_size=(2, 3), **NEAR)
    yield call(s.real(s.a, s.b, s.c, 5), output_size=1, layout="NHWC", **NEAR)


@cases("nn.adaptive_max_pool1d", "nn.adaptive_avg_pool1d")
def _adaptive1d(s: Sizes, name: str) -> Case:
    return call(s.real(s.a, s.b, s.c), output_size=4, **NEAR)


@cases("nn.adaptive_max_pool3d", "nn.adaptive_avg_pool3d")
def _adaptive3d(s: Sizes, name: str) -> Case:
    return call(s.real(1, 2, s.a, s.c, 3), output_size=(1, 2, 3), **NEAR)


@cases("nn.max_pool_with_indices", when=lambda s: min(s.b, s.c) > 1)
def _indices(s: Sizes) -> Case:
    return call(s.real(s.a, 2, s.b, s.c), pool_size=(2, 3), strides=(2, 1), padding=(0, 1, 1, 1))


@cases("nn.max_pool_with_indices", when=lambda s: s.b > 1)
def _indices_columns(s: Sizes) -> Case:
    return call(s.real(s.a, 2, s.b, 4), pool_size=2, strides=2, storage_order=1, ceil_mode=True)


case("nn.overlap_add", make=lambda s: call(s.real(s.a, 3, s.b, s.c, 1), hop=2))
case("nn.overlap_add", make=lambda s: call(s.integer(s.a, 19, 2, s.b, s.c), hop=1))
case("nn.overlap_add", make=lambda s: call(s.real(2, s.a, s.b, s.c, 3), hop=3, **NEAR))
