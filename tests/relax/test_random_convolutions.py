"""Convolutions drawn at random, of known and of symbolic sizes, against sums in float64."""

import random

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import relax

TARGETS = ("llvm", "llvm -mcpu=haswell")


def draw(seed):
    """A convolution's channels, kernel, strides, paddings, dilation, groups and activation."""
    r = random.Random(seed)
    groups = r.choice([1, 1, 1, "depthwise", 2])
    c = r.choice([1, 3, 4, 7, 16, 24, 40])
    o = r.choice([1, 5, 8, 16, 24, 33, 64])
    if groups == "depthwise":
        groups, o = c, c
    elif groups == 2:
        c, o = 2 * c, 2 * o
    kernel = r.choice([(1, 1), (3, 3), (3, 3), (5, 5), (3, 1), (2, 4)])
    return {
        "c": c,
        "o": o,
        "groups": groups,
        "kernel": kernel,
        "strides": r.choice([(1, 1), (1, 1), (2, 2), (1, 2)]),
        "dilation": r.choice([(1, 1), (1, 1), (1, 1), (2, 1)]),
        "symbolic": r.choice(["", "nhw", "w", "hw"]),
        "padding": tuple(r.choice([0, k // 2]) for k in kernel) + tuple(r.choice([0, k // 2, k // 2]) for k in kernel),
        "after": r.choice([None, "relu", "hardswish", "residual"]),
        "batch": r.choice([1, 2]),
        "sizes": [(r.randint(9, 40), r.randint(9, 40)) for _ in range(3)],
    }


def reference(x, w, bias, d):
    """The sum in float64, of channels first."""
    (top, left, bottom, right), (sy, sx), (dy, dx) = d["padding"], d["strides"], d["dilation"]
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, bottom), (left, right)])
    rows, columns = ((x.shape[2 + i] - (w.shape[2 + i] - 1) * (dy, dx)[i] - 1) // (sy, sx)[i] + 1 for i in range(2))
    per_in, per_out = x.shape[1] // d["groups"], w.shape[0] // d["groups"]
    y = np.zeros((x.shape[0], w.shape[0], rows, columns))
    for g in range(d["groups"]):
        ins, outs = slice(g * per_in, (g + 1) * per_in), slice(g * per_out, (g + 1) * per_out)
        for i, j in np.ndindex(w.shape[2:]):
            part = x[:, ins, i * dy : i * dy + (rows - 1) * sy + 1 : sy, j * dx : j * dx + (columns - 1) * sx + 1 : sx]
            y[:, outs] += np.einsum("nchw,oc->nohw", part, w[outs, :, i, j].astype(np.float64))
    y += bias
    if d["after"] == "relu":
        return np.maximum(y, 0)
    return y * np.clip(y / 6 + 0.5, 0, 1) if d["after"] == "hardswish" else y + y if d["after"] == "residual" else y


def program(d, weight, bias):
    """The convolution with its bias and what follows, as a module."""
    op, known = relax.op, dict(zip("nhw", (d["batch"], *d["sizes"][0]), strict=True))
    n, h, w = (a if a in d["symbolic"] else known[a] for a in "nhw")

    def layers(x):
        attrs = {name: d[name] for name in ("strides", "padding", "dilation", "groups")}
        y = op.add(op.nn.conv2d(x, relax.const(weight), **attrs), relax.const(bias))
        if d["after"] == "relu":
            return op.nn.relu(y)
        if d["after"] == "hardswish":
            half = op.add(op.multiply(y, relax.const(1 / 6, "float32")), relax.const(0.5, "float32"))
            return op.multiply(y, op.clip(half, 0, 1))
        return op.add(y, y) if d["after"] == "residual" else y

    return model(layers, (n, d["c"], h, w))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(10))
def test_drawn_convolution(seed, target):
    check(seed, target)


def check(seed, target):
    d = draw(seed)
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((d["o"], d["c"] // d["groups"], *d["kernel"]), np.float32) / 4
    bias = rng.standard_normal((1, d["o"], 1, 1), np.float32)
    vm = relax.VirtualMachine(relax.build(program(d, weight, bias), target=target), weft.cpu())
    sizes = d["sizes"] if d["symbolic"] else d["sizes"][:1]
    for height, width in sizes:
        shape = (d["batch"], d["c"], height if "h" in d["symbolic"] else d["sizes"][0][0], width)
        x = rng.standard_normal(shape, np.float32)
        expected = reference(x, weight, bias, d)
        found = vm["main"](weft.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}: {d}")
