"""Convolutions."""

import numpy as np
import torch
import torch.nn.functional as torch_nn

from tests.relay.op.contract import Case, Cases, Sizes, call, cases

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
NEAR = {"rtol": 1e-3, "atol": 1e-3}


def _conv(rank: int, kind: str = "conv", **options):
    """PyTorch's convolution of arrays."""
    fn = getattr(torch_nn, f"{kind}{rank}d")
    return lambda *arrays: fn(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays), **options).numpy()


def _rank(name: str) -> int:
    return int(name[7])


def _image(s: Sizes, n: int, channels: int, rank: int):
    return s.real(n, channels, *[5, 4, 6][:rank])


@cases("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _plain(s: Sizes, name: str) -> Case:
    rank = _rank(name)
    return call(
        _image(s, s.a, 3, rank),
        s.real(4, 3, *[3] * rank),
        strides=(2,) * rank,
        padding=(1,) * rank,
        kernel_size=(3,) * rank,
        channels=4,
        expect=_conv(rank, stride=2, padding=1),
        **NEAR,
    )


@cases("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _groups_last(s: Sizes, name: str) -> Case:
    rank, space = _rank(name), LETTERS[_rank(name)]
    x, w = s.real(s.a, *[5, 4, 6][:rank], 4), s.real(*[2] * rank, 2, 6)
    to_first, to_oi = (0, rank + 1, *range(1, rank + 1)), (rank + 1, rank, *range(rank))
    conv = _conv(rank, groups=2, dilation=2)
    return call(
        x,
        w,
        groups=2,
        dilation=(2,) * rank,
        data_layout=f"N{space}C",
        kernel_layout=f"{space}IO",
        expect=lambda x, w: np.moveaxis(conv(x.transpose(to_first), w.transpose(to_oi)), 1, -1),
        **NEAR,
    )


@cases("nn.conv2d")
def _depthwise(s: Sizes) -> Cases:
    conv = _conv(2, groups=4)
    yield call(
        s.real(s.a, 5, 4, 4),
        s.real(3, 3, 4, 2),
        groups=4,
        data_layout="NHWC",
        kernel_layout="HWOI",
        channels=8,
        expect=lambda x, w: np.moveaxis(
            conv(x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1).reshape(8, 1, 3, 3)), 1, -1
        ),
        **NEAR,
    )
    yield call(
        s.real(s.a, 4, 5, 4),
        s.real(4, 1, 3, 3),
        groups=4,
        channels=4,
        padding=(1, 1, 1, 1),
        expect=_conv(2, groups=4, padding=1),
        **NEAR,
    )


@cases("nn.conv2d")
def _other_layouts(s: Sizes) -> Case:
    conv = _conv(2)
    return call(
        s.real(5, 4, s.a, 3),
        s.real(4, 3, 2, 3),
        data_layout="HWNC",
        kernel_layout="OIHW"[:2] + "WH",
        out_layout="NHWC",
        expect=lambda x, w: np.moveaxis(conv(x.transpose(2, 3, 0, 1), w.transpose(0, 1, 3, 2)), 1, -1),
        **NEAR,
    )


@cases("nn.conv2d")
def _outputs_before_inputs(s: Sizes) -> Case:
    conv = _conv(2, groups=2)
    return call(
        s.real(s.a, 4, 5, 4),
        s.real(3, 3, 6, 2),
        groups=2,
        kernel_layout="HWOI",
        channels=6,
        expect=lambda x, w: conv(x, w.transpose(2, 3, 0, 1)),
        **NEAR,
    )


def _unblocked(x, w):
    n, o = x.shape[0], w.shape[0] * w.shape[-1]
    return (
        x.transpose(0, 1, 4, 2, 3).reshape(n, -1, *x.shape[2:4]),
        w.transpose(0, 5, 1, 4, 2, 3).reshape(o, -1, *w.shape[2:4]),
    )


@cases("nn.contrib_conv2d_NCHWc", "nn.conv2d")
def _blocked(s: Sizes) -> Case:
    conv = _conv(2, padding=1)

    def expect(x, w):
        y = conv(*_unblocked(x, w))
        return y.reshape(y.shape[0], 1, 8, *y.shape[2:]).transpose(0, 1, 3, 4, 2)

    return call(
        s.real(s.a, 2, 5, 4, 4),
        s.real(2, 2, 3, 3, 4, 4),
        padding=(1, 1),
        channels=8,
        kernel_size=(3, 3),
        data_layout="NCHW4c",
        kernel_layout="OIHW4i4o",
        out_layout="NCHW8c",
        expect=expect,
        **NEAR,
    )


@cases("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _transpose(s: Sizes, name: str) -> Case:
    rank = _rank(name)
    return call(
        s.real(s.a, 4, *[3, 4, 2][:rank]),
        s.real(4, 3, *[3] * rank),
        strides=(2,) * rank,
        padding=(1,) * rank,
        output_padding=(1,) * rank,
        groups=2,
        channels=6,
        expect=_conv(rank, "conv_transpose", stride=2, padding=1, output_padding=1, groups=2),
        **NEAR,
    )


@cases("nn.conv2d_transpose")
def _outputs_first(s: Sizes) -> Case:
    conv = _conv(2, "conv_transpose", stride=2, groups=2)
    return call(
        s.real(s.a, 4, 3, 4),
        s.real(3, 4, 3, 3),
        strides=(2, 2),
        groups=2,
        kernel_layout="OIHW",
        channels=6,
        expect=lambda x, w: conv(x, w.transpose(1, 0, 2, 3)),
        **NEAR,
    )
