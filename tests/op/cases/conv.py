"""Convolutions."""

from typing import Any

from tests.op.contract import Array, Case, Cases, Fixed, Sizes, call, case, cases

NEAR = {"rtol": 1e-4, "atol": 1e-4}


def _enough(s: Sizes, size: int) -> bool:
    return min(int(s.b), int(s.c)) + 2 >= size


def _last(x: Array, w: Array, kernel_layout: str, **more: Any) -> Case:
    """A convolution of images whose channels come last."""
    return call(x, w, data_layout="NHWC", kernel_layout=kernel_layout, **NEAR, **more)


case("nn.conv1d", make=lambda s: call(s.real(s.a, 3, s.c), Fixed(s.real(5, 3, 1)), strides=2, padding=(1, 2), **NEAR))


@cases("nn.conv1d", when=lambda s: s.c > 2)
def _conv1d_last(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.c, 4), Fixed(s.real(3, 2, 6)), padding=1, groups=2, data_layout="NWC", kernel_layout="WIO", **NEAR
    )


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d(s: Sizes) -> Case:
    return call(s.real(s.a, 3, s.b, s.c), Fixed(s.real(4, 3, 3, 2)), padding=[1, 1], **NEAR)


@cases("nn.conv2d", when=lambda s: min(s.b, s.c) > 2)
def _conv2d_no_padding(s: Sizes) -> Case:
    return call(s.real(s.a, 4, s.b, s.c), s.real(6, 4, 3, 3), strides=(2, 1), **NEAR)


@cases("nn.conv2d", when=lambda s: _enough(s, 5))
def _conv2d_dilated(s: Sizes) -> Case:
    return call(
        s.real(s.a, 4, s.b, s.c), s.real(6, 2, 3, 3), padding=(2, 1, 1, 2), dilation=(2, 1), groups=2, strides=2, **NEAR
    )


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_last(s: Sizes) -> Case:
    return _last(s.real(s.a, s.b, s.c, 3), s.real(3, 3, 3, 5), "HWIO", padding=1)


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_last_from_first(s: Sizes) -> Case:
    return call(
        s.real(s.a, 3, s.b, s.c),
        s.real(2, 3, 3, 3, 16),
        padding=(1, 0, 1, 2),
        strides=(2, 1),
        kernel_layout="OHWI16o",
        out_layout="NHWC",
        channels=19,
        **NEAR,
    )


@cases("nn.conv2d")
def _conv2d_first_from_last(s: Sizes) -> Case:
    return call(s.real(s.a, s.b, s.c, 3), s.real(5, 3, 1, 1), data_layout="NHWC", out_layout="NCHW", **NEAR)


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_depthwise(s: Sizes) -> Case:
    return _last(s.real(s.a, s.b, s.c, 19), s.real(3, 3, 19), "HWC", padding=1, strides=2, groups=19)


case("nn.conv2d", make=lambda s: call(s.real(s.a, 3, s.c, 4), s.real(6, 1, 1, 3), groups=3, **NEAR))


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_packed(s: Sizes) -> Case:
    return _last(s.real(s.a, s.b, s.c, 5), s.real(2, 3, 3, 5, 16), "OHWI16o", padding=1, channels=21)


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_packed_in_groups(s: Sizes) -> Case:
    return _last(s.real(s.a, s.b, s.c, 5), s.real(2, 3, 3, 2, 64), "OHWI16o4i", padding=1, channels=21)


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_padded_with_a_value(s: Sizes) -> Case:
    x, w = s.integer(s.a, 3, s.b, s.c, low=0, dtype="uint8"), s.integer(4, 3, 3, 2, dtype="int8")
    return call(x, w, padding=(1, 2, 0, 1), out_dtype="int32", pad_value=130)


case("nn.conv2d", make=lambda s: _last(s.real(s.a, s.b, s.c, 8), s.real(1, 1, 1, 8, 32), "OHWI32o", channels=32))


@cases("nn.conv2d", when=lambda s: _enough(s, 3))
def _conv2d_wide_sum(s: Sizes) -> Case:
    x, w = s.integer(s.a, 2, s.b, s.c, dtype="int8"), s.integer(3, 2, 2, 2, dtype="int8")
    return call(x, w, padding=1, out_dtype="int32")


@cases("nn.conv3d")
def _conv3d(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, 2, s.b, s.c, 3), s.real(3, 2, 2, 1, 2), padding=(1, 0, 0, 1, 0, 1), strides=(1, 2, 1), **NEAR
    )
    yield call(s.real(s.a, s.b, s.c, 3, 2), s.real(1, 1, 2, 2, 3), data_layout="NDHWC", kernel_layout="DHWIO", **NEAR)


@cases("nn.conv1d_transpose")
def _transpose1d(s: Sizes) -> Case | None:
    return (
        None
        if 0 in (s.b,)
        else call(s.real(s.a, 3, s.c), s.real(3, 4, 3), strides=2, padding=1, output_padding=1, **NEAR)
    )


@cases("nn.conv2d_transpose", when=lambda s: s.b > 0)
def _transpose2d(s: Sizes) -> Cases:
    x, w = s.real(s.a, 4, s.b, s.c), s.real(4, 3, 3, 2)
    yield call(x, w, strides=(2, 3), padding=(1, 0, 0, 1), output_padding=(1, 2), groups=2, **NEAR)
    yield call(s.real(s.a, 2, s.b, s.c), s.real(2, 3, 3, 3), dilation=2, padding=1, **NEAR)
    yield call(
        s.real(s.a, s.b, s.c, 4), s.real(4, 3, 2, 2), strides=2, data_layout="NHWC", kernel_layout="IOHW", **NEAR
    )


@cases("nn.conv3d_transpose")
def _transpose3d(s: Sizes) -> Case | None:
    return None if s.b == 0 else call(s.real(1, 2, s.b, s.c, 2), s.real(2, 1, 2, 2, 3), strides=(1, 2, 1), **NEAR)


@cases("nn.conv2d_winograd", when=lambda s: _enough(s, 3))
def _winograd(s: Sizes) -> Case:
    # random numbers in the place of transformed weights: sums of some thousands cancel
    near = {"rtol": 1e-3, "atol": 2e-2}
    return call(s.real(s.a, 3, s.b, s.c, 16), s.real(6, 6, 1, 16, 32), padding=(1, 1), tile=4, channels=32, **near)


@cases("nn.conv2d_winograd", when=lambda s: min(s.b, s.c) > 2)
def _winograd_uneven(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.b, s.c, 5), Fixed(s.real(4, 4, 2, 5, 16)), padding=(0, 1, 2, 0), tile=2, channels=19, **NEAR
    )


@cases("nn.conv1d")
def _conv1d_outer(s: Sizes) -> Case:
    return call(s.real(s.a, 9, 4), s.real(6, 3, 2), data_layout="NWC", kernel_layout="OWI", groups=2, **NEAR)


case("nn.conv2d", make=lambda s: _last(s.real(s.a, s.b, 7, 3), s.real(5, 3, 2, 3), "OHWI", padding=1))


case("nn.conv3d", make=lambda s: call(s.real(s.a, 2, 5, 4, 3), s.real(2, 1, 2, 2, 2), kernel_layout="ODHWI", **NEAR))
