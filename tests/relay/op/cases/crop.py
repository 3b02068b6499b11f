"""Boxes of images."""

import numpy as np
import torch
import torch.nn.functional as torch_nn

from tests.relay.op.contract import Cases, Sizes, call, cases

BOXES = np.float32([[0, 0, 1, 1], [0.13, 0.21, 0.72, 0.54], [0.93, 0.31, 0.44, 0.83], [-0.2, 0.02, 0.53, 1.1]])
WHICH = np.int32([0, 1, 1, 0])


def _sampled(h, w, mode):
    """Sample with a grid of coordinates in -1..1, whose corners are pixels."""

    def expect(x, boxes, which):
        t = torch.from_numpy(np.ascontiguousarray(x[which]))
        y = boxes[:, :1] + (boxes[:, 2:3] - boxes[:, :1]) * np.linspace(0, 1, h)
        z = boxes[:, 1:2] + (boxes[:, 3:4] - boxes[:, 1:2]) * np.linspace(0, 1, w)
        grid = np.stack(
            [
                np.broadcast_to(2 * z[:, None] - 1, (len(boxes), h, w)),
                np.broadcast_to(2 * y[:, :, None] - 1, (len(boxes), h, w)),
            ],
            -1,
        )
        out = torch_nn.grid_sample(t.double(), torch.from_numpy(grid), mode, "border", align_corners=True).numpy()
        inside = ((y >= 0) & (y <= 1))[:, None, :, None] & ((z >= 0) & (z <= 1))[:, None, None, :]
        return np.where(inside, out, 5.0)

    return expect


@cases("image.crop_and_resize")
def _crop_and_resize(s: Sizes) -> Cases:
    yield call(
        s.real(2, 3, 6, 5),
        BOXES,
        WHICH,
        crop_size=(4, 3),
        layout="NCHW",
        extrapolation_value=5.0,
        expect=_sampled(4, 3, "bilinear"),
    )
    nearest = _sampled(5, 7, "nearest")
    yield call(
        s.real(2, 6, 5, s.c),
        BOXES,
        WHICH,
        crop_size=(5, 7),
        method="nearest_neighbor",
        extrapolation_value=5.0,
        expect=lambda x, *boxes: np.moveaxis(nearest(np.moveaxis(x, -1, 1), *boxes), 1, -1),
    )
