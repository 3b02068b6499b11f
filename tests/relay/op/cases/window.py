"""Windows that slide along axes."""

import numpy as np

from tests.relay.op.contract import Cases, Sizes, call, cases


@cases("sliding_window")
def _sliding(s: Sizes) -> Cases:
    def expect(x):
        return np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))[:, ::2, ::3]

    yield call(s.real(s.a, 8, 9, s.c), axis=1, window_shape=(3, 2), strides=(2, 3), expect=expect)
    yield call(
        s.real(s.a, 7),
        axis=-1,
        window_shape=(4,),
        strides=(1,),
        expect=lambda x: np.lib.stride_tricks.sliding_window_view(x, 4, 1),
    )


@cases("image.dilation2d")
def _dilation(s: Sizes) -> Cases:
    def expect(x, w):
        y = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), constant_values=-np.inf)
        rows, columns = (y.shape[2] - 3) // 2 + 1, y.shape[3] - 2
        out = np.full((*x.shape[:2], rows, columns), -np.inf)
        for i, j in np.ndindex(2, 3):
            seen = y[:, :, 2 * i : 2 * i + 2 * rows - 1 : 2, j : j + columns]
            out = np.maximum(out, seen + w[:, i, j, None, None])
        return out

    yield call(s.real(s.a, 3, 6, 5), s.real(3, 2, 3), strides=(2, 1), padding=(1, 2), dilations=(2, 1), expect=expect)
    yield call(
        s.integer(s.a, 4, 5, 2), s.integer(1, 1, 2), data_layout="NHWC", kernel_layout="HWI", expect=lambda x, w: x + w
    )
