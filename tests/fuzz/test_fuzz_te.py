"""Random schedules of tensor expressions give NumPy's values, or are refused with a ScheduleError."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from tests.fuzz.budget import seeds
from weft import te
from weft.error import ScheduleError


class Program(NamedTuple):
    """Inputs, the output, the inputs' shapes, and what NumPy makes of them."""

    inputs: list[Any]
    output: Any
    shapes: list[tuple[int, ...]]
    reference: Callable[..., Any]


def product(n: Any, rows: int, m: int, k: int) -> Program:
    a, b, x = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B"), te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, x] * b[x, j], axis=x), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * 2.0 + 1.0, name="D")
    return Program([a, b], d, [(rows, k), (k, m)], lambda p, q: p @ q * 2 + 1)


def stencil(n: Any, rows: int, m: int, k: int) -> Program:
    a = te.placeholder((n + 2, m), name="A")
    b = te.compute((n + 2, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i + 1, j] + b[i + 2, j], name="C")
    d = te.compute((n, m), lambda i, j: c[i, m - 1 - j] - 1.0, name="D")
    return Program([a], d, [(rows + 2, m)], lambda p: 2 * (p[:-2] + p[1:-1] + p[2:])[:, ::-1] - 1)


def softmax(n: Any, rows: int, m: int, k: int) -> Program:
    a, x, y = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), "x"), te.reduce_axis((0, m), "y")
    most = te.compute((n,), lambda i: te.max(a[i, x], axis=x), name="M")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - most[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, y], axis=y), name="S")
    d = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="D")

    def reference(p: Any) -> Any:
        q = np.exp(p - p.max(1, keepdims=True))
        return q / q.sum(1, keepdims=True)

    return Program([a], d, [(rows, m)], reference)


def two_outputs(n: Any, rows: int, m: int, k: int) -> Program:
    a = te.placeholder((n, m), name="A")
    b0, b1 = te.compute((n, m), lambda i, j: (a[i, j] + 1.0, a[i, j] * 2.0), name="B")
    c = te.compute((n, m), lambda i, j: b0[i, j] * b1[i, m - 1 - j], name="C")
    return Program([a], c, [(rows, m)], lambda p: (p + 1) * (2 * p)[:, ::-1])


def diamond(n: Any, rows: int, m: int, k: int) -> Program:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: b[i, j] * c[i, m - 1 - j], name="D")
    return Program([a], d, [(rows, m)], lambda p: 2 * p * (2 * p + 1)[:, ::-1])


def recurrence(n: Any, rows: int, m: int, k: int) -> Program:
    a, w, h = te.placeholder((n, m), name="A"), te.placeholder((m, m), name="W"), te.placeholder((n, m), name="H")
    x = te.reduce_axis((0, m), "x")
    first = te.compute((1, m), lambda _, j: a[0, j] * 2.0, name="F")
    b = te.compute((n, m), lambda i, j: te.sum(w[j, x] * h[i - 1, x], axis=x), name="B")
    step = te.compute((n, m), lambda i, j: b[i, j] / m + a[i, j], name="S")
    c = te.scan(first, step, h, inputs=[a, w], name="C")
    d = te.compute((n, m), lambda i, j: c[i, m - 1 - j] + 1.0, name="D")

    def reference(p: Any, q: Any) -> Any:
        y = p * 2
        for i in range(1, len(p)):
            y[i] = q @ y[i - 1] / m + p[i]
        return y[:, ::-1] + 1

    return Program([a, w], d, [(rows, m), (m, m)], reference)


PROGRAMS = {f.__name__: f for f in (product, stencil, softmax, two_outputs, diamond, recurrence)}


def outputs(stage: Any) -> Any:
    tensors = [stage.op.output(i) for i in range(stage.op.num_outputs)]
    return tensors if len(tensors) > 1 else tensors[0]


STEPS: dict[str, Callable[[random.Random, Any, Any, list[Any]], Any]] = {
    "split": lambda r, s, st, loops: st.split(r.choice(loops), factor=r.choice([1, 2, 3, 4, 8])),
    "split in parts": lambda r, s, st, loops: st.split(r.choice(loops), nparts=r.choice([1, 2, 3])),
    "tile": lambda r, s, st, loops: st.tile(loops[0], loops[-1], r.choice([2, 3, 4]), r.choice([2, 4])),
    "fuse": lambda r, s, st, loops: st.fuse(*loops[(i := r.randrange(len(loops))) : i + 2]),
    "reorder": lambda r, s, st, loops: st.reorder(*r.sample(loops, min(len(loops), 3))),
    "compute_at": lambda r, s, st, loops: st.compute_at(o := r.choice(s.stages), r.choice(o.leaf_iter_vars or loops)),
    "compute_inline": lambda r, s, st, loops: st.compute_inline(),
    "compute_root": lambda r, s, st, loops: st.compute_root(),
    "vectorize": lambda r, s, st, loops: st.vectorize(r.choice(loops)),
    "unroll": lambda r, s, st, loops: st.unroll(r.choice(loops)),
    "parallel": lambda r, s, st, loops: st.parallel(r.choice(loops)),
    "vthread": lambda r, s, st, loops: st.bind(r.choice(loops), te.thread_axis("vthread")),
    "pragma": lambda r, s, st, loops: st.pragma(r.choice(loops), "auto_unroll_max_step", 16),
    "prefetch": lambda r, s, st, loops: st.prefetch(r.choice(st.reads()), r.choice(loops), r.choice([1, 2])),
    "cache_read": lambda r, s, st, loops: s.cache_read(r.choice(st.reads()), r.choice(["local", "global"]), [st.op]),
    "cache_write": lambda r, s, st, loops: s.cache_write(outputs(st), r.choice(["local", "global"])),
    "rfactor": lambda r, s, st, loops: s.rfactor(outputs(st), r.choice(loops), r.choice([0, -1])),
    "double_buffer": lambda r, s, st, loops: st.double_buffer(),
    "storage_align": lambda r, s, st, loops: st.storage_align(
        r.choice(st.axis or loops), r.choice([4, 16]), r.choice([0, 1])
    ),
}


def scheduled(program: Program, r: random.Random, steps: int) -> tuple[Any, list[str]]:
    """Take random steps; those that are refused leave the schedule as it was."""
    s, log = te.create_schedule(program.output.op), []
    for _ in range(steps):
        stage = r.choice([x for x in s.stages if not isinstance(x.op, te.PlaceholderOp)])
        name = r.choice(sorted(STEPS))
        try:
            STEPS[name](r, s, stage, list(stage.leaf_iter_vars))
            log.append(f"{name} of {stage.op.name}")
        except ScheduleError:
            pass
    return s, log


def check(name: str, seed: int) -> None:
    r = random.Random(f"{name} {seed}")
    rows = r.choice([1, 3, 7, 12])
    n = te.size_var("n") if r.random() < 0.3 else rows
    program = PROGRAMS[name](n, rows, r.choice([1, 2, 5, 9, 16]), r.choice([0, 1, 4, 6]))
    s, log = scheduled(program, r, r.choice([1, 3, 6, 9]))
    given = [np.random.default_rng(seed).random(shape).astype("float32") for shape in program.shapes]
    want = program.reference(*given)
    found = np.full(want.shape, np.nan, "float32")
    try:
        weft.build(s, [*program.inputs, program.output], target="c" if seed % 8 == 7 else "llvm")(*given, found)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    except ScheduleError:
        return
    except Exception as error:
        raise AssertionError(f"{name}, seed {seed}: {'; '.join(log)}\n{error}") from error


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_schedule_keeps_the_result(name: str) -> None:
    for seed in seeds(share=0.2):
        check(name, seed)
