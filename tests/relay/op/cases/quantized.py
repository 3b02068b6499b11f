"""Operators on quantized tensors; those whose scales must be constants are in ``tests/relay/qnn``."""

import numpy as np

import weft
from tests.relay.op.contract import Case, Cases, Known, Sizes, call, case, cases

SCALE, ZERO = Known(np.float32(0.037)), Known(np.int32(3))
PAIR = (Known(np.int32(3)), Known(np.int32(-2)), Known(np.float32(1)), Known(np.float32(1)))


def _real(q: np.ndarray, scale: float = 0.037, zero: int = 3) -> np.ndarray:
    return (q.astype("float64") - zero) * scale


def _q(s: Sizes, *dims: object) -> object:
    return s.integer(*dims, low=-100, high=100, dtype="int8")


@cases("qnn.quantize")
def _quantize(s: Sizes) -> Cases:
    yield call(
        s.real(s.a, s.b),
        SCALE,
        ZERO,
        out_dtype="int8",
        expect=lambda x, *_: np.clip(np.rint(x / np.float32(0.037) + 3), -128, 127),
    )
    yield call(
        s.real(s.a, 3),
        Known(np.array([0.5, 0.25, 1], "float32")),
        Known(np.array([1, 2, 3], "int32")),
        out_dtype="uint8",
        expect=lambda x, scale, zero: np.clip(np.rint(x / scale + zero.astype("float32")), 0, 255),
    )


case("qnn.dequantize", make=lambda s: call(_q(s, s.a, s.b), SCALE, ZERO, expect=lambda q, *_: _real(q)))


@cases("qnn.abs", "qnn.erf", "qnn.exp", "qnn.hardswish", "qnn.sigmoid", "qnn.tanh")
def _function(s: Sizes) -> Case:
    return call(_q(s, s.a, s.b), SCALE, ZERO, Known(np.float32(0.31)), ZERO)


@cases("qnn.log", "qnn.rsqrt", "qnn.sqrt")
def _of_positive(s: Sizes) -> Case:
    return call(s.integer(s.a, s.b, low=10, high=100, dtype="int8"), SCALE, ZERO, Known(np.float32(0.31)), ZERO)


case("qnn.leaky_relu", make=lambda s: call(_q(s, s.a, s.b), SCALE, ZERO, Known(np.float32(0.31)), ZERO, alpha=0.1))


@cases("qnn.softmax")
def _softmax(s: Sizes) -> Case:
    return call(_q(s, s.a, 5), SCALE, ZERO, Known(np.float32(1 / 128)), Known(np.int32(-128)), axis=-1)


CODES = weft.topi.nn.qnn.SQNN_DTYPE_TO_CODE


@cases("qnn.simulated_quantize")
def _simulated(s: Sizes) -> Case:
    return call(
        s.real(s.a, 4),
        Known(np.int32(CODES["uint8"])),
        SCALE,
        ZERO,
        expect=lambda x, *_: np.clip(np.rint(x / np.float32(0.037)) + 3, 0, 255),
    )


@cases("qnn.simulated_dequantize")
def _simulated_back(s: Sizes) -> Case:
    return call(s.real(s.a, 4), Known(np.int32(CODES["int8"])), SCALE, ZERO, expect=lambda x, *_: _real(x))


@cases("qnn.dense")
def _dense(s: Sizes) -> Case:
    return call(
        _q(s, s.a, s.c),
        _q(s, 4, s.c),
        *PAIR,
        units=4,
        expect=lambda x, w, *_: (x.astype("int64") - 3) @ (w.astype("int64") + 2).T,
    )


@cases("qnn.batch_matmul")
def _batch_matmul(s: Sizes) -> Case:
    return call(
        _q(s, 2, s.a, s.c),
        _q(s, 2, 3, s.c),
        *PAIR,
        expect=lambda x, w, *_: (x.astype("int64") - 3) @ (w.astype("int64") + 2).swapaxes(1, 2),
    )


@cases("qnn.conv2d")
def _conv2d(s: Sizes) -> Case:
    return call(
        _q(s, 2, 3, 6, 5),
        _q(s, 4, 3, 3, 3),
        *PAIR,
        kernel_size=(3, 3),
        channels=4,
        padding=(1, 1),
        expect=lambda x, w, *_: weft.topi.testing.conv2d_nchw_python(
            x.astype("int64") - 3, w.astype("int64") + 2, 1, 1
        ),
    )


@cases("qnn.conv2d_transpose")
def _conv2d_transpose(s: Sizes) -> Case:
    return call(
        _q(s, 1, 3, 4, 5),
        _q(s, 3, 2, 3, 3),
        *PAIR,
        strides=(2, 2),
        padding=(1, 1),
        expect=lambda x, w, *_: weft.topi.testing.conv2d_transpose_nchw_python(
            x.astype("int64") - 3, w.astype("int64") + 2, 2, 1, 0
        ),
    )
