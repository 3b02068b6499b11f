"""Kernels of every schedule rule, compiled for SSE, AVX2 and AVX-512 and run here, give what NumPy gives."""

import re

import numpy as np
import pytest

import weft
from tests.arrays import floats
from tests.relax_models import computed
from weft import te, topi
from weft.target import Target, get_source, host_features
from weft.tir.schedule import default_schedule
from weft.topi.conv import conv

LEVELS = {"x86-64-v2": "sse4.2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
rand = floats(np.random.default_rng(11))


def product(a, b):
    r = te.reduce_axis((0, a.shape[1]), "r")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def convolve(x, w, stride=1):
    return conv(x, w, stride, 1, data_layout="NHWC", kernel_layout="HWIO")


def depthwise(x, w):
    return conv(x, w, 1, 1, groups=24, data_layout="NHWC", kernel_layout="HWC")


def direct(x, w, strides=1):
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO" if w.ndim == 4 else "HWC"}
    return computed("nn.conv2d", x, w, strides=strides, padding=1, groups=24 if w.ndim == 3 else 1, **layouts)


def normalised(x, g, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


KERNELS = {
    "product": (product, lambda a, b: a @ b, [(37, 50), (50, 70)]),
    "product of wide tiles": (product, lambda a, b: a @ b, [(64, 128), (128, 96)]),
    "convolution": (convolve, direct, [(1, 9, 11, 16), (3, 3, 16, 40)]),
    "convolution by twos": (
        lambda x, w: convolve(x, w, 2),
        lambda x, w: direct(x, w, 2),
        [(2, 9, 8, 8), (3, 3, 8, 32)],
    ),
    "depthwise": (depthwise, direct, [(1, 12, 15, 24), (3, 3, 24)]),
    "softmax": (lambda x: topi.nn.softmax(x, -1), lambda x: computed("nn.softmax", x), [(19, 133)]),
    "layer norm": (lambda x, g, b: topi.nn.layer_norm(x, g, b, (-1,)), normalised, [(13, 100), (100,), (100,)]),
    "transpose": (lambda x: topi.transpose(x, [1, 0]), lambda x: x.T, [(45, 67)]),
    "columns": (lambda x: topi.sum(x, [0], False), lambda x: x.sum(0), [(65, 33)]),
    "maximum": (lambda x: topi.max(x, [1], False), lambda x: x.max(1), [(33, 65)]),
    "functions": (lambda x: topi.tanh(topi.exp(x)), lambda x: np.tanh(np.exp(x)), [(7, 31)]),
    "winograd": (
        lambda x, u: topi.conv2d_winograd(x, u, 1, 2, 32),
        lambda x, u: WINOGRAD,
        [(1, 8, 6, 16), (4, 4, 1, 16, 32)],
    ),
}
_IMAGE, _FILTER = rand(1, 8, 6, 16), rand(32, 16, 3, 3)
WINOGRAD = direct(_IMAGE, _FILTER.transpose(2, 3, 1, 0))


def prepared(name, level):
    """The scheduled function, its inputs and what it should give."""
    make, reference, shapes = KERNELS[name]
    arrays = [_IMAGE, topi.winograd_weight(_FILTER, 2, 32)] if name == "winograd" else [rand(*s) for s in shapes]
    inputs = [te.placeholder(a.shape, name=f"x{i}") for i, a in enumerate(arrays)]
    target = Target(f"llvm -mcpu={level}")
    return default_schedule(te.create_prim_func([*inputs, make(*inputs)]), target), target, arrays, reference(*arrays)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name, level):
    if LEVELS[level] not in host_features():
        pytest.skip(f"this machine has no {LEVELS[level]}")
    func, target, arrays, expected = prepared(name, level)
    out = weft.runtime.tensor(np.full(expected.shape, np.nan, np.float32))
    weft.build(func, target=target)["main"](*(weft.runtime.tensor(a) for a in arrays), out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("level", "too_wide"), [("x86-64-v2", "[yz]mm"), ("x86-64-v3", "zmm")])
@pytest.mark.parametrize("name", KERNELS)
def test_registers_are_no_wider(name, level, too_wide):
    func, target, _, _ = prepared(name, level)
    assert not re.search(rf"%{too_wide}\d", get_source(func, target, "asm"))


def test_tile_of_a_product_stays_in_registers_on_avx2():
    func, target, _, _ = prepared("product of wide tiles", "x86-64-v3")
    blocks = re.split(r"^\.LBB\w+:", get_source(func, target, "asm"), flags=re.MULTILINE)
    hottest = max(blocks, key=lambda b: len(re.findall(r"vfmadd\w+ps", b)))
    assert len(re.findall(r"vfmadd\w+ps", hottest)) >= 12
    assert not re.search(r"\(%rsp\)[^\n]*%ymm|%ymm\d+, [^\n]*\(%rsp\)", hottest)
