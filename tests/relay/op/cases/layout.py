"""Other layouts, grids, and indices taken apart."""

import numpy as np
import torch

from tests.relay.op.contract import Case, Cases, Sizes, call, case, cases


@cases("nn.depth_to_space")
def _depth_to_space(s: Sizes) -> Case:
    return call(
        s.real(s.a, 8, s.c, 3),
        block_size=2,
        mode="CDR",
        expect=lambda x: torch.pixel_shuffle(torch.from_numpy(x), 2).numpy(),
    )


@cases("nn.space_to_depth")
def _space_to_depth(s: Sizes) -> Case:
    def expect(x):
        n, h, w, c = x.shape
        y = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
        return y.reshape(n, h // 2, w // 2, 4 * c)

    return call(s.real(s.a, 4, 6, s.c), block_size=2, layout="NHWC", expect=expect)


@cases("vision.yolo_reorg")
def _reorg(s: Sizes) -> Case:
    def expect(x):
        n, c, h, w = x.shape
        out = np.zeros((n, c * 4, h // 2, w // 2), x.dtype)
        blocks = x.reshape(n, c // 4, h, 2, w, 2)
        for a in range(2):
            for b in range(2):
                out[:, (a * 2 + b) * c :][:, :c] = blocks[:, :, :, a, :, b].reshape(n, c, h // 2, w // 2)
        return out

    return call(s.real(s.a, 4, 4, 6), stride=2, expect=expect)


@cases("nn.space_to_batch_nd")
def _space_to_batch(s: Sizes) -> Case:
    def expect(x):
        y = np.pad(x, ((0, 0), (1, 1), (0, 2), (0, 0)), constant_values=9)
        n, h, w, c = y.shape
        y = y.reshape(n, h // 2, 2, w // 3, 3, c).transpose(2, 4, 0, 1, 3, 5)
        return y.reshape(n * 6, h // 2, w // 3, c)

    return call(s.real(s.a, 4, 7, s.c), block_shape=(2, 3), paddings=((1, 1), (0, 2)), pad_value=9.0, expect=expect)


@cases("nn.batch_to_space_nd")
def _batch_to_space(s: Sizes) -> Case:
    def expect(x):
        n, h, w, c = x.shape
        y = x.reshape(2, 3, n // 6, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n // 6, h * 2, w * 3, c)
        return y[:, 1:-1, : w * 3 - 2]

    return call(s.real(6 * s.a, 4, 3, s.c), block_shape=(2, 3), crops=((1, 1), (0, 2)), expect=expect)


@cases("nn.dilate")
def _dilate(s: Sizes) -> Case:
    def expect(x):
        out = np.full((4, 2 * s.c - 1, 7), -1.0)
        out[:, ::2, ::3] = x
        return out

    return call(s.real(4, s.c, 3), strides=(1, 2, 3), dilation_value=-1.0, expect=expect)


@cases("meshgrid")
def _meshgrid(s: Sizes) -> Cases:
    yield call((s.real(s.a), s.real(s.b)), indexing="xy", expect=lambda t: tuple(np.meshgrid(*t, indexing="xy")))
    yield call((s.real(), s.real(s.b)), expect=lambda t: tuple(np.meshgrid(*t, indexing="ij")))


@cases("unravel_index")
def _unravel(s: Sizes) -> Case:
    return call(
        s.integer(s.a, s.b, low=0, high=30, dtype="int8"),
        np.int64([2, 1, 300]),
        expect=lambda i, n: np.stack(np.unravel_index(i, n)).astype("int8"),
    )


@cases("adv_index")
def _adv_index(s: Sizes) -> Case:
    return call(
        (s.real(4, 5, s.c), s.integer(s.a, 1, low=0, high=4), s.integer(s.b, low=0, high=5)),
        expect=lambda t: t[0][t[1], t[2]],
    )


case("trilu", make=lambda s: call(s.real(s.a, s.b, s.c), np.int64(1), expect=lambda x, k: np.triu(x, 1)))
case("trilu", make=lambda s: call(s.real(s.b, s.c), np.int32(-1), upper=False, expect=lambda x, k: np.tril(x, -1)))


def _diagonals(above: str, below: str):
    """Write each diagonal element by element."""

    def expect(x, d):
        out, longest = x.copy(), d.shape[-1]
        rows, columns = x.shape[-2:]
        for i, j in np.ndindex(rows, columns):
            k = j - i
            if -1 <= k <= 2:
                length = min(rows + min(k, 0), columns - max(k, 0))
                right = (above if k >= 0 else below) == "RIGHT"
                out[..., i, j] = d[..., 2 - k, min(i, j) + (longest - length if right else 0)]
        return out

    return expect


@cases("matrix_set_diag")
def _matrix_set_diag(s: Sizes) -> Cases:
    def expect(x, d):
        out = x.copy()
        for i in range(3):
            out[:, i, i + 1] = d[:, i]
        return out

    yield call(s.real(s.a, 3, 4), s.real(s.a, 3), k1=1, k2=1, expect=expect)
    yield call(s.real(s.a, 2, 3, 4), s.real(s.a, 2, 4, 3), k1=-1, k2=2, expect=_diagonals("RIGHT", "LEFT"))
    yield call(
        s.real(5, 4),
        s.real(4, 4),
        k1=-1,
        k2=2,
        super_diag_right_align=False,
        sub_diag_right_align=True,
        expect=_diagonals("LEFT", "RIGHT"),
    )
