"""Group norm against NumPy: sizes that end inside a vector, one group, a group a channel, symbolic sizes."""

import numpy as np
import pytest

from tests.relax_models import computed
from weft import ir, target, te, tir, topi
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule

TARGET = target.Target("llvm")
AXES = {rank: tuple(range(2, rank)) for rank in (2, 3, 4, 5)}


def scheduled(shape, channels, groups):
    x = te.placeholder([ir.int64(d) if isinstance(d, int) else d for d in shape], name="x")
    g, b = te.placeholder((ir.int64(channels),), name="g"), te.placeholder((ir.int64(channels),), name="b")
    return default_schedule(
        te.create_prim_func([x, g, b, topi.nn.group_norm(x, g, b, groups, 1, AXES[len(shape)])]), TARGET
    )


def check(kernel, shape, groups):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, np.float32)
    g, b = rng.standard_normal(shape[1], np.float32), rng.standard_normal(shape[1], np.float32)
    y = np.zeros(shape, np.float32)
    kernel(x, g, b, y)
    wanted = computed("nn.group_norm", x, g, b, num_groups=groups, channel_axis=1, axes=AXES[x.ndim])
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 8, 5, 7), 4), ((1, 12, 9, 9), 3), ((2, 6, 4, 4), 1), ((2, 6, 3, 3), 6), ((3, 10, 17), 5), ((2, 64, 8, 8), 8)],
)
def test_static(shape, groups):
    check(target.build(scheduled(shape, shape[1], groups), TARGET)["main"], shape, groups)


def test_symbolic():
    n, h = te.size_var("n", "int64"), te.size_var("h", "int64")
    kernel = target.build(scheduled((n, 12, h, h), 12, 4), TARGET)["main"]
    for shape in ((1, 12, 1, 1), (2, 12, 7, 7), (1, 12, 16, 16)):
        check(kernel, shape, 4)


def test_a_group_is_one_row():
    func = scheduled((2, 64, 8, 8), 64, 8)
    assert isinstance(func.root.body, tir.For), "and one loop has its sum, its variance and its results"
    lowered = lower(func, TARGET)
    rows = [s for s in ir.walk(lowered.body) if isinstance(s, tir.For) and s.kind == tir.ForKind.PARALLEL]
    serial = [s for s in ir.walk(lowered.body) if isinstance(s, tir.For)]
    assert int((rows or serial)[0].extent) == 16
