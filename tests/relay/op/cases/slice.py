"""Slices and padding."""

import numpy as np

from tests.relay.op.contract import Case, Cases, Known, Sizes, call, case, cases


@cases("strided_slice")
def _strided_slice(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, 9, 8), begin=(0, 1, -5), end=(100, 7, 100), strides=(1, 2, 1), expect=lambda x: x[:, 1:7:2, -5:]
    )
    yield call(s.real(7, s.b), begin=(-1,), end=(-100,), strides=(-2,), expect=lambda x: x[::-2])
    yield call(s.real(s.a, 4, s.c), begin=(1,), end=(3,), axes=(1,), expect=lambda x: x[:, 1:3])
    yield call(s.real(9, 8, 5), begin=(1, -3, 2), end=(4, -1, 2), slice_mode="size", expect=lambda x: x[1:5, -3:, 2:4])


@cases("dyn.strided_slice")
def _dyn_strided_slice(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, 9),
        np.int64([0, -5]),
        np.int64([100, -1]),
        Known(np.int64([1, 2])),
        expect=lambda x, *_: x[:, -5:-1:2],
    )
    yield call(
        s.real(s.a, 9, s.c),
        np.int64([2]),
        np.int64([3]),
        Known(np.int64([1])),
        axes=(1,),
        slice_mode="size",
        expect=lambda x, *_: x[:, 2:5],
    )


case("slice_like", make=lambda s: call(s.real(9, 40, 3), s.real(2, s.b), expect=lambda x, y: x[:2, : s.b]))
case("slice_like", make=lambda s: call(s.real(s.a, 40), s.real(1, s.b), axes=(-1,), expect=lambda x, y: x[:, : s.b]))


@cases("nn.pad")
def _pad(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, s.b),
        Known(np.float32(1.5)),
        pad_width=((1, 2), (0, 3)),
        expect=lambda x, v: np.pad(x, ((1, 2), (0, 3)), constant_values=1.5),
    )
    yield call(
        s.real(s.a, s.b),
        np.float32(-2),
        pad_width=((1, 2), (0, 3)),
        expect=lambda x, v: np.pad(x, ((1, 2), (0, 3)), constant_values=-2),
    )
    yield call(
        s.real(s.a, 4),
        Known(np.float32(0)),
        pad_width=((0, 0), (2, 3)),
        pad_mode="edge",
        expect=lambda x, v: np.pad(x, ((0, 0), (2, 3)), "edge"),
    )


@cases("dyn.nn.pad")
def _dyn_pad(s: Sizes) -> Case:
    return call(
        s.real(s.a, s.b),
        np.int64([1, 2, 0, 3]),
        Known(np.float32(1.5)),
        expect=lambda x, *_: np.pad(x, ((1, 2), (0, 3)), constant_values=1.5),
    )


@cases("nn.mirror_pad")
def _mirror(s: Sizes) -> Cases:
    yield call(s.real(s.a, 4), pad_width=((0, 0), (2, 3)), expect=lambda x: np.pad(x, ((0, 0), (2, 3)), "symmetric"))
    yield call(
        s.real(5, s.b),
        mode="REFLECT",
        pad_width=((2, 1), (0, 0)),
        expect=lambda x: np.pad(x, ((2, 1), (0, 0)), "reflect"),
    )


@cases("nn.fifo_buffer")
def _fifo(s: Sizes) -> Case:
    return call(s.real(s.a, s.c, 2), s.real(s.a, 4, 2), axis=1, expect=lambda x, b: np.concatenate([b, x], 1)[:, s.c :])
