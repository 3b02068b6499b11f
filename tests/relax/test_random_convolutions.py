"""Convolutions drawn at random, of known and of symbolic sizes, against the operators' references."""

import random

import numpy as np
import pytest

from tests.relax_models import computing, model
from weft import relax
from weft.relax.interpreter import evaluate

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
    d = draw(seed)
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((d["o"], d["c"] // d["groups"], *d["kernel"]), np.float32) / 4
    mod = program(d, weight, rng.standard_normal((1, d["o"], 1, 1), np.float32))
    main = computing(mod, target)
    for height, width in d["sizes"] if d["symbolic"] else d["sizes"][:1]:
        shape = (d["batch"], d["c"], height if "h" in d["symbolic"] else d["sizes"][0][0], width)
        x = rng.standard_normal(shape, np.float32)
        (expected,) = evaluate(mod, x)
        found = main(x)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}: {d}")
