"""What ``topi.vision`` takes beyond the operators: thresholds and limits in tensors, modes as bytes and numbers."""

import numpy as np
import pytest

from tests.topi.running import check
from weft import topi
from weft.op import testing

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("mode", ["avg", b"avg", 1])
def test_modes_of_regions(mode):
    image = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)
    rois = np.array([[0, 0, 1, 3, 2.5]], np.float32)
    expected = testing.roi_align_nchw_python(image, rois, 2, 1.0, 2, "max" if mode == 1 else mode)
    check(lambda x, r: topi.vision.roi_align_nchw(x, r, 2, 1.0, mode, 2), [image, rois], expected)
    last = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    expected = np.ascontiguousarray(expected.transpose(0, 2, 3, 1))
    check(lambda x, r: topi.vision.roi_align_nhwc(x, r, 2, 1.0, mode, 2), [last, rois], expected)


def test_limits_in_tensors():
    data = RNG.random((2, 8, 6)).astype(np.float32)
    least, most, share = np.array([0.3], np.float32), np.array([2], np.int32), np.array([0.2], np.float32)
    counts, rows, places = expected = testing.get_valid_counts_python(data, 0.3)
    check(lambda x, t: topi.vision.get_valid_counts(x, t), [data, least], list(expected))
    expected = testing.non_max_suppression_python(rows, counts, places, 2, 0.2, True)
    check(
        lambda *x: topi.vision.non_max_suppression(*x, force_suppress=True),
        [rows, counts, places, most, share],
        list(expected),
    )
