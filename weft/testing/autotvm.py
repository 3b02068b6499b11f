"""A task to test tuners with, records of it, and a runner that measures nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from weft import autotvm, te
from weft.autotvm import MeasureInput, MeasureResult
from weft.autotvm.measure import Runner
from weft.target import Target


class DummyRunner(Runner):
    """Returns random times."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Make up a time for each input."""
        return [MeasureResult((random.random(),), 0, 0.2, time.time()) for _ in measure_inputs]

    def get_build_kwargs(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


def _product(n: int, l: int, m: int, dtype: str, short: int = 0) -> tuple[Any, list[Any]]:  # noqa: E741
    a = te.placeholder((n, l), name="A", dtype=dtype)
    b = te.placeholder((l, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, l - short), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_schedule(c.op), [a, b, c]


@autotvm.template("testing/matmul")
def matmul(n: int, l: int, m: int, dtype: str) -> Any:  # noqa: E741
    """A product whose rows and columns are split; the columns' loop is only there where it has several parts."""
    s, tensors = _product(n, l, m, dtype)
    c = tensors[-1]
    y, x = s[c].op.axis
    k = s[c].op.reduce_axis[0]
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    if cfg["tile_x"].size[-1] > 1:
        xo, xi = cfg["tile_x"].apply(s, c, x)
        s[c].reorder(yo, xo, k, yi, xi)
    else:
        s[c].reorder(yo, k, yi, x)
    return s, tensors


@autotvm.template("testing/bad_matmul")
def bad_matmul(n: int, l: int, m: int, dtype: str) -> Any:  # noqa: E741
    """A product that is wrong on a target with the key ``bad_device``."""
    target = Target.current()
    if target is None or "bad_device" not in str(target):
        return matmul(n, l, m, dtype)
    s, tensors = _product(n, l, m, dtype, short=1)
    y, x = s[tensors[-1]].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    return s, tensors


def get_sample_task(n: int = 128) -> tuple[Any, Target]:
    """Return a task, a product of square matrices, and its target."""
    target = Target("llvm")
    return autotvm.task.create("testing/matmul", args=(n, n, n, "float32"), target=target), target


def get_sample_records(n: int) -> list[tuple[MeasureInput, MeasureResult]]:
    """Make up `n` records of the task."""
    task, target = get_sample_task()
    space = task.config_space
    return [
        (MeasureInput(target, task, space.get(i % len(space))), MeasureResult((i + 1,), 0, i, time.time()))
        for i in range(n)
    ]
