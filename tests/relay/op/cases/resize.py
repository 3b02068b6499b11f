"""Resizing and sampling."""

import numpy as np
import torch
import torch.nn.functional as torch_nn

from tests.relay.op.contract import Case, Cases, Sizes, call, cases

SPACE = {1: (5,), 2: (5, 4), 3: (3, 4, 5)}
SIZE = {1: (8,), 2: (8, 7), 3: (5, 7, 8)}
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _interpolated(mode: str, last: bool = False, **options):
    def expect(x, *_):
        y = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1) if last else x))
        out = torch_nn.interpolate(y, mode=mode, **options).numpy()
        return np.moveaxis(out, 1, -1) if last else out

    return expect


@cases("image.resize1d", "image.resize2d", "image.resize3d")
def _linear(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    return call(s.real(s.a, 2, *SPACE[rank]), size=SIZE[rank], expect=_interpolated(MODES[rank], size=SIZE[rank]))


@cases("image.resize2d")
def _resize2d(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, 5, 4, 3),
        size=(9, 3),
        layout="NHWC",
        coordinate_transformation_mode="align_corners",
        expect=_interpolated("bilinear", True, size=(9, 3), align_corners=True),
    )
    yield call(
        s.real(s.a, 2, 5, 4),
        size=(10, 8),
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        expect=_interpolated("nearest", size=(10, 8)),
    )
    yield call(
        s.real(s.a, 2, 5, 4),
        size=(9, 7),
        method="cubic",
        cubic_alpha=-0.75,
        expect=_interpolated("bicubic", size=(9, 7)),
        atol=1e-4,
    )
    yield call(
        s.real(s.a, 2, 5, 5),
        size=(3, 3),
        roi=(0.25, 0.0, 0.75, 0.5),
        coordinate_transformation_mode="tf_crop_and_resize",
        expect=lambda x: x[:, :, 1:4, 0:3],
    )


@cases("dyn.image.resize1d", "dyn.image.resize2d", "dyn.image.resize3d")
def _computed(s: Sizes, name: str) -> Case:
    rank = int(name[-2])
    return call(s.real(s.a, 2, *SPACE[rank]), np.int64(SIZE[rank]), expect=_interpolated(MODES[rank], size=SIZE[rank]))


@cases("nn.upsampling")
def _upsampling(s: Sizes) -> Cases:
    yield call(s.real(s.a, 2, 5, 4), scale_h=2, scale_w=3, expect=lambda x: x.repeat(2, 2).repeat(3, 3))
    yield call(
        s.real(s.a, 5, 4, 2),
        scale_h=2.0,
        scale_w=2.0,
        layout="NHWC",
        method="bilinear",
        align_corners=True,
        expect=_interpolated("bilinear", True, scale_factor=2, align_corners=True),
    )
    yield call(
        s.real(s.a, 2, 4, s.c),
        scale_h=1.5,
        scale_w=1.0,
        expect=lambda x: x[:, :, np.floor(np.arange(6) / 1.5).astype(int)],
    )


@cases("nn.upsampling3d")
def _upsampling3d(s: Sizes) -> Case:
    return call(
        s.real(s.a, 2, 3, 4, 2),
        scale_d=2,
        scale_h=2,
        scale_w=2,
        method="trilinear",
        expect=_interpolated("trilinear", scale_factor=2),
    )


@cases("image.affine_grid")
def _affine_grid(s: Sizes) -> Case:
    def expect(x):
        out = torch_nn.affine_grid(torch.from_numpy(x), [x.shape[0], 1, 4, 5], align_corners=True)
        return np.moveaxis(out.numpy(), -1, 1)

    return call(s.real(s.a, 2, 3), target_shape=(4, 5), expect=expect)
