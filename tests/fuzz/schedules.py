"""Small programs of many kinds, and random schedules of them."""

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import texts
from weft import ir, te, tir
from weft.error import WeftError
from weft.script import from_source
from weft.tir.schedule.block_buffers import buffer_at
from weft.tir.schedule.instruction import LoopRV

__all__ = ["PROGRAMS", "WITH_CALLS", "arrays_of", "random_schedule"]


def _func(*tensors: Any) -> tir.PrimFunc:
    return te.create_prim_func(list(tensors))


def matmul(r: random.Random) -> tir.PrimFunc:
    """Build a product with a ReLU."""
    m, n, k = (r.choice([1, 2, 3, 4, 6, 7, 8]) for _ in range(3))
    dtype = r.choice(["float32", "int32"])
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    q = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, q] * b[q, j], axis=q), "C")
    return _func(a, b, te.compute((m, n), lambda i, j: tir.max(c[i, j], tir.const(0, dtype)), "D"))


def conv(r: random.Random) -> tir.PrimFunc:
    """Build a padded convolution of one dimension with a stride."""
    n, w, s, p = r.choice([5, 7, 8]), r.choice([1, 2, 3]), r.choice([1, 2]), r.choice([0, 1, 2])
    x, f = te.placeholder((2, n), "float32", "X"), te.placeholder((3, 2, w), "float32", "F")
    pad = te.compute(
        (2, n + 2 * p),
        lambda c, i: tir.if_then_else(tir.all(i >= p, i < n + p), x[c, i - p], tir.const(0, "float32")),
        "P",
    )
    ci, k = te.reduce_axis((0, 2), "ci"), te.reduce_axis((0, w), "k")
    y = te.compute(
        (3, (n + 2 * p - w) // s + 1), lambda o, i: te.sum(pad[ci, i * s + k] * f[o, ci, k], axis=[ci, k]), "Y"
    )
    return _func(x, f, te.compute(y.shape, lambda o, i: y[o, i] + 1.0, "Z"))


def chain(r: random.Random) -> tir.PrimFunc:
    """Build element-wise steps, one of them transposed and one with two readers."""
    n, m = r.choice([1, 3, 4, 8]), r.choice([2, 5, 6])
    a = te.placeholder((n, m), "float32", "A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, "B")
    c = te.compute((m, n), lambda i, j: b[j, i] + 1.0, "C")
    d = te.compute((n, m), lambda i, j: b[i, j] - c[j, i], "D")
    return _func(a, d, te.compute((n * m,), lambda i: d[i // m, i % m] * 3.0, "E"))


def softmax(r: random.Random) -> tir.PrimFunc:
    """Build a maximum of rows, a sum of rows and what uses both."""
    n, m = r.choice([1, 3, 4]), r.choice([1, 4, 5, 6])
    x = te.placeholder((n, m), "float32", "X")
    k, q = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "q")
    top = te.compute((n,), lambda i: te.max(x[i, k], axis=k), "T")
    e = te.compute((n, m), lambda i, j: x[i, j] - top[i], "E")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), "S")
    return _func(x, te.compute((n, m), lambda i, j: e[i, j] * total[i], "Y"))


def window(r: random.Random) -> tir.PrimFunc:
    """Build two steps of a sliding window, the second from both sides."""
    n = r.choice([6, 9, 12])
    x = te.placeholder((n,), "int32", "X")
    p = te.compute((n,), lambda i: x[i] * 2, "P")
    q = te.compute((n - 2,), lambda i: p[i] + p[i + 1] * p[i + 2], "Q")
    return _func(x, te.compute((n - 4,), lambda i: q[i] - q[i + 2] + x[i], "Y"))


def total(r: random.Random) -> tir.PrimFunc:
    """Build sums of everything, plain and of squares."""
    n, m = r.choice([1, 4, 7]), r.choice([3, 4, 8])
    x = te.placeholder((n, m), "int32", "X")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, m), "j")
    s = te.compute((), lambda: te.sum(x[i, j], axis=[i, j]), "S")
    k = te.reduce_axis((0, n), "k")
    column = te.compute((m,), lambda c: te.min(x[k, c], axis=k), "M")
    return _func(x, te.compute((m,), lambda c: s[()] + column[c], "Y"))


def pool(r: random.Random) -> tir.PrimFunc:
    """Build a maximum of windows in two dimensions and a mean over what is left."""
    h, w, k, s = r.choice([4, 5]), r.choice([4, 7]), r.choice([2, 3]), r.choice([1, 2])
    x = te.placeholder((2, h, w), "float32", "X")
    a, b = te.reduce_axis((0, k), "a"), te.reduce_axis((0, k), "b")
    shape = (2, (h - k) // s + 1, (w - k) // s + 1)
    p = te.compute(shape, lambda c, i, j: te.max(x[c, i * s + a, j * s + b], axis=[a, b]), "P")
    u, v = te.reduce_axis((0, shape[1]), "u"), te.reduce_axis((0, shape[2]), "v")
    m = te.compute((2,), lambda c: te.sum(p[c, u, v], axis=[u, v]), "M")
    return _func(x, te.compute(shape, lambda c, i, j: p[c, i, j] - m[c], "Y"))


def symbolic(r: random.Random) -> tir.PrimFunc:
    """Build a product whose rows are counted when it is called."""
    n = te.size_var("n", "int64")
    a, b = te.placeholder((n, 4), "float32", "A"), te.placeholder((4, 6), "float32", "B")
    q = te.reduce_axis((0, 4), "k")
    c = te.compute((n, 6), lambda i, j: te.sum(a[i, q] * b[q, j], axis=q), "C")
    return _func(a, b, te.compute((n, 6), lambda i, j: c[i, j] + a[i, 0], "D"))


def argmax(r: random.Random) -> tir.PrimFunc:
    """Build the place of each row's largest element."""
    n, m = r.choice([2, 3, 4]), r.choice([3, 4, 6])
    value, where = te.placeholder((n, m), "int32", "V"), te.placeholder((n, m), "int32", "W")
    best = te.comm_reducer(
        lambda x, y: (tir.Select(x[1] >= y[1], x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])),
        lambda a, b: (tir.const(-1, a), tir.min_value(b)),
    )
    k = te.reduce_axis((0, m), "k")
    at, top = te.compute((n,), lambda i: best((where[i, k], value[i, k]), axis=k), "R")
    return _func(value, where, at, te.compute((n,), lambda i: top[i] + 1, "Y"))


# A block of its own loops is one line, `A(v=6, w=5): B[v, w] = X[w, v]; C[w, v] = 1`; `k` sums, and has an init:
# `S(w=4, k=6): Z[w] = 0 | Z[w] = Z[w] + B[k, w]`.
_WRITTEN = """
def scatter(X: T.Buffer((8,), "int32"), Y: T.Buffer((4,), "int32")):
    Z(v=4): Y[v] = 0
    for i in range(8):
        with T.block("S"):
            v = T.axis.opaque(8, i)
            Y[v % 4] = Y[v % 4] * 2 + X[v]
def in_place(X: T.Buffer((6, 5), "int32"), Y: T.Buffer((6, 5), "int32")):
    B = T.alloc_buffer((6, 5), "int32")
    A(v=6, w=5): B[v, w] = X[v, w] + 1
    B(v=6, w=5): B[v, w] = B[v, w] * 3
    C(v=6, w=5): Y[v, w] = B[v, w] - B[0, w]
def prefix(X: T.Buffer((9,), "int32"), Y: T.Buffer((9,), "int32")):
    for i in range(9):
        with T.block("P"):
            v = T.axis.scan(9, i)
            Y[v] = X[v] + T.if_then_else(v > 0, Y[v - 1], 0)
def halves(X: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    L(v=4): B[v] = X[v] + 1
    R(v=4): B[v + 4] = X[v] * 5
    Y(v=8): Y[v] = B[7 - v]
def where(X: T.Buffer((10,), "int32"), Y: T.Buffer((10,), "int32")):
    B = T.alloc_buffer((10,), "int32")
    for i, j in T.grid(3, 4):
        with T.block("A"):
            T.where(i * 4 + j < 10)
            v = T.axis.spatial(10, i * 4 + j)
            B[v] = X[v] + 7
    for i, j in T.grid(4, 3):
        with T.block("B"):
            T.where(i * 3 + j < 10)
            v = T.axis.spatial(10, i * 3 + j)
            Y[v] = B[v] + B[9 - v]
def triangle(X: T.Buffer((6, 6), "int32"), Y: T.Buffer((6,), "int32")):
    for i in range(6):
        for j in range(i + 1):
            with T.block("S"):
                v = T.axis.spatial(6, i)
                k = T.axis.reduce(6, j)
                with T.init():
                    Y[v] = 0
                Y[v] = Y[v] + X[v, k]
def two_stores(X: T.Buffer((6, 4), "int32"), Y: T.Buffer((6, 4), "int32"), Z: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((6, 4), "int32")
    A(v=6, w=4): B[v, w] = X[5 - v, w]; Y[v, w] = B[v, w] * 2
    S(w=4, k=6): Z[w] = 1 | Z[w] = Z[w] + B[k, w]
def one_nest(X: T.Buffer((6, 4), "int32"), Y: T.Buffer((6, 4), "int32")):
    B = T.alloc_buffer((6, 4), "int32")
    for i in range(6):
        for j in range(4):
            with T.block("A"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = X[v, w] + 1
        for j in range(4):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                Y[v, w] = B[v, 3 - w] * 2
def overwritten(X: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32"), Z: T.Buffer((8,), "int32")):
    A(v=8): Y[v] = X[v] + 1
    B(v=8): Z[v] = Y[v] * 2
    C(v=8): Y[v] = X[7 - v]
def repeated(X: T.Buffer((6,), "int32"), Y: T.Buffer((6,), "int32")):
    B = T.alloc_buffer((6,), "int32")
    A(v=6): B[v] = X[v]
    for n in range(3):
        B(v=6): B[v] = B[v] * 2 + X[v]
    for n, i in T.grid(2, 6):
        with T.block("C"):
            v = T.axis.spatial(6, i)
            Y[v] = B[5 - v]
def strided(X: T.Buffer((4, 3), "int32"), Y: T.Buffer((4, 6), "int32")):
    B = T.alloc_buffer((4, 6), "int32")
    A(v=4, w=3): B[v, w * 2] = X[v, w]; B[v, w * 2 + 1] = X[3 - v, w] + 1
    E(v=4, w=3): Y[v, w * 2] = B[v, 5 - w]
    for i in range(12):
        with T.block("O"):
            v = T.axis.spatial(4, i // 3)
            w = T.axis.spatial(3, i % 3)
            Y[v, w * 2 + 1] = B[v, w] * 3
def stale(X: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32"), Z: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    A(v=8): B[v] = Y[v] + X[v]
    W(v=8): Y[v] = X[7 - v] * 3
    C(v=8): Z[v] = B[v] + Y[v]
def offset(X: T.Buffer((12,), "int32"), Y: T.Buffer((12,), "int32")):
    B = T.alloc_buffer((12,), "int32")
    for i in range(2, 10):
        with T.block("A"):
            v = T.axis.spatial((2, 10), i)
            B[v] = X[v] + X[v - 2]
    Y(v=8): Y[v] = B[v + 2] * B[9 - v]
def opaque(X: T.Buffer((4, 4), "int32"), Y: T.Buffer((4, 4), "int32")):
    B = T.alloc_buffer((4, 4), "int32")
    for i in range(4):
        with T.block("A"):
            v = T.axis.spatial(4, i)
            T.reads(X[v, 0:4])
            T.writes(B[v, 0:4])
            for j in range(4):
                B[v, j] = X[v, 3 - j]
    C(v=4, w=4): Y[v, w] = B[w, v] + T.Select(v < 2, X[v, w], 1)
def squares(X: T.Buffer((6, 10), "int32"), Y: T.Buffer((10,), "int32"), Z: T.Buffer((6,), "int32")):
    for i, j in T.grid(4, 4):
        with T.block("A"):
            v = T.axis.spatial(10, i * i // 2 + j)
            Y[v] = X[0, v] + 1
    for i, j in T.grid(4, 5):
        with T.block("S"):
            v = T.axis.spatial(6, i * i // 2)
            k = T.axis.reduce(10, j * j // 2)
            with T.init():
                Z[v] = 0
            Z[v] = Z[v] + X[v, k] * 2
def crossed(X: T.Buffer((4, 4), "int32"), Y: T.Buffer((4, 4), "int32"), Z: T.Buffer((4,), "int32")):
    S(v=4, w=4, k=4): Y[v, w] = 1 | Y[w, v] = Y[w, v] + X[v, k] * X[k, w]
    Z(v=4, k=4): Z[k] = 0 | Z[k] = Z[k] + X[v, k]
def pointers(X: T.Buffer((4, 6), "int32"), Y: T.Buffer((4, 6), "int32"), Z: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((4, 6), "int32")
    C = T.alloc_buffer((4, 6), "int32")
    A(v=4, w=6): B[v, w] = X[v, w] * 2 + w
    for i in range(4):
        with T.block("P"):
            v = T.axis.spatial(4, i)
            T.reads(B[v, 0:6])
            T.writes(C[v, 0:6])
            T.evaluate(T.call_extern("int32", "reversed_copy", C.access_ptr("w", offset=v * 6, extent=6),
                                     B.access_ptr("r", offset=v * 6, extent=6), 6))
    E(v=4, w=6): Y[v, w] = C[v, w] + B[v, w]
    Z(v=4): Z[v] = C[v, 0] * 2
def steps(X: T.Buffer((6,), "int32"), Y: T.Buffer((6,), "int32")):
    B = T.alloc_buffer((6,), "int32")
    A(v=6): Y[v] = X[v]
    for t in range(3):
        B(v=6): B[v] = Y[5 - v] + t
        C(v=6): Y[v] = B[v] * 2 - v
def leaving(X: T.Buffer((9,), "int32"), Y: T.Buffer((9,), "int32"), Z: T.Buffer((9,), "int32")):
    C(v=9): if X[v] > 0: Y[v] = X[8 - v]
    P(v=3): Z[v * 3] = Y[v] + 1; Z[v * 3 + 2] = X[v]
def shrinking(X: T.Buffer((8,), "int32"), Y: T.Buffer((4,), "int32"), Z: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((4,), "int32")
    A(v=8): B[v // 2] = X[v]
    E(v=4): Y[v] = B[v] + X[7 - v]
    Z(v=8): Z[v] = B[v // 2] - B[3 - v // 2]
"""


def _nest(block: re.Match[str]) -> str:
    pad, name, axes, stores = block.groups()
    names, extents = zip(*(axis.split("=") for axis in axes.split(", ")), strict=True)
    loops, kinds = [f"i{n}" for n in names], "".join("R" if n == "k" else "S" for n in names)
    init, _, body = stores.rpartition(" | ")
    lines = [f"for {', '.join(loops)} in T.grid({', '.join(extents)}):", f'    with T.block("{name}"):']
    lines.append(f'        {", ".join(names)}, = T.axis.remap("{kinds}", [{", ".join(loops)}])')
    lines += ["        with T.init():", f"            {init}"] if init else []
    return "\n".join(pad + line for line in (*lines, *(f"        {s}" for s in body.split("; "))))


def _written(text: str) -> Callable[[random.Random], tir.PrimFunc]:
    text = re.sub(r"^( +)(\w)\((\w=[^)]*)\): (.*)$", _nest, text, flags=re.M)
    return lambda r: from_source("@T.prim_func\n" + text)


PROGRAMS: dict[str, Callable[[random.Random], tir.PrimFunc]] = {
    f.__name__: f for f in (matmul, conv, chain, softmax, window, total, pool, symbolic, argmax)
} | {name: _written(text) for name, text in texts.named(_WRITTEN, texts.FUNCTIONS).items()}


WITH_CALLS = {"pointers"}
"""Programs that call functions which only the runner of schedules has."""


def arrays_of(func: tir.PrimFunc, seed: int) -> list[np.ndarray]:
    """Make small whole numbers for each parameter, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    sizes: dict[ir.Var, int] = {}
    result = []
    for p in func.params:
        buffer = func.buffer_of(p)
        assert buffer is not None
        shape = [sizes.setdefault(d, 5 + seed % 4) if isinstance(d, ir.Var) else ir.as_int(d) for d in buffer.shape]
        result.append(rng.integers(-4, 5, shape).astype(str(buffer.dtype)))
    return result


_MAPS: dict[int, list[Callable[..., Any]]] = {
    1: [lambda i: (i // 2, i % 2), lambda i: (i // 3, i % 3), lambda i: (i + 1,), lambda i: (i,), lambda i: (9 - i,)],
    2: [lambda i, j: (j, i), lambda i, j: (j // 2, i, j % 2), lambda i, j: (i * 7 + j,), lambda i, j: (i + j, j)],
    3: [lambda i, j, k: (k, i, j), lambda i, j, k: (i, j * 2 + k)],
}


def random_schedule(func: tir.PrimFunc, r: random.Random, steps: int = 7) -> tuple[tir.Schedule, list[str]]:
    """Apply random primitives; what is refused leaves the schedule as it was.

    Returns the schedule, and what was tried.
    """
    sch, log = tir.Schedule(func, seed=r.randrange(1 << 30)), []
    for _ in range(steps):
        names = [n for n in sch.state.block_names() if n != "root"]
        block = r.choice(names)
        mine = sch.state.loops_of(block)
        every = [f.loop_var for n in names for f in sch.state.loops_of(n)]
        if not mine:
            continue
        name = r.choice(list(_STEPS))
        loops = [LoopRV(f.loop_var) for f in mine]
        text = f"{name} {block} {[str(f.loop_var.name) for f in mine]}"
        try:
            _STEPS[name](sch, r, block, loops, [LoopRV(v) for v in every], names)
            log.append(text)
        except WeftError as error:
            log.append(f"# {text}: {error.what}")
        except Exception as error:
            raise AssertionError(f"\n{text}: {error!r}\n{sch.trace}\n{sch.func}") from error
    return sch, log


def _buffer(r: random.Random) -> tuple[str, int]:
    return r.choice(["read", "write"]), r.choice([0, 0, 1])


def _index_map(sch: tir.Schedule, r: random.Random, block: str, where: tuple[str, int]) -> Any:
    node = sch.state.realize(block).block
    regions = node.writes if where[0] == "write" else node.reads
    ndim = len(regions[min(where[1], len(regions) - 1)].buffer.shape) if regions else 1
    return r.choice(_MAPS.get(ndim, _MAPS[1]))


def _n_iters(sch: tir.Schedule, block: str) -> int:
    return len(sch.state.realize(block).block.iter_vars)


def _same_depth(sch: tir.Schedule, r: random.Random, mine: list[LoopRV], names: list[str]) -> list[LoopRV]:
    """Pick loops at the same depth in the nests of two blocks."""
    other = [LoopRV(f.loop_var) for f in sch.state.loops_of(r.choice(names))]
    at = r.randrange(min(len(mine), len(other))) if other else 0
    return [mine[at], *other[at : at + 1]]


def _layout(sch: tir.Schedule, r: random.Random, block: str) -> None:
    where = _buffer(r)
    if any(b is buffer_at(sch.state.realize(block).block, where) for _, b in sch.func.buffer_map):
        return  # would change what the function takes
    sch.transform_layout(block, where, _index_map(sch, r, block, where))


_Step = Callable[[tir.Schedule, random.Random, str, list[Any], list[Any], list[str]], Any]
_STEPS: dict[str, _Step] = {
    "split": lambda s, r, b, mine, every, bs: s.split(
        r.choice(mine), r.choice([[None, 2], [3, None], [None, 4], [2, None, 2], [None, 8]]), r.random() < 0.7
    ),
    "tile": lambda s, r, b, mine, every, bs: s.split(mine[0], s.sample_perfect_tile(mine[0], 2, 4)),
    "partitioned": lambda s, r, b, mine, every, bs: s.split(mine[0], s.sample_partitioned_tile(mine[0], 2, 1, 2)),
    "fuse": lambda s, r, b, mine, every, bs: s.fuse(
        *mine[(at := r.randrange(len(mine))) : at + r.choice([2, 2, 3])], preserve_unit_iters=r.random() < 0.7
    ),
    "reorder": lambda s, r, b, mine, every, bs: s.reorder(*r.sample(mine, r.randint(1, len(mine)))),
    "partition": lambda s, r, b, mine, every, bs: s.loop_partition(
        r.choice(mine), r.choice([[2, None], [None, 1], [1]])
    ),
    "specialize": lambda s, r, b, mine, every, bs: (
        s.specialize(mine[-1], mine[0].var < 2) if len(mine) > 1 else s.add_unit_loop(b)
    ),
    "unit": lambda s, r, b, mine, every, bs: s.add_unit_loop(r.choice([b, r.choice(mine)])),
    "parallel": lambda s, r, b, mine, every, bs: s.parallel(r.choice(mine)),
    "vectorize": lambda s, r, b, mine, every, bs: s.vectorize(r.choice(mine)),
    "unroll": lambda s, r, b, mine, every, bs: s.unroll(r.choice(mine)),
    "inline": lambda s, r, b, mine, every, bs: s.compute_inline(b),
    "reverse_inline": lambda s, r, b, mine, every, bs: s.reverse_compute_inline(b),
    "compute_at": lambda s, r, b, mine, every, bs: s.compute_at(
        b, r.choice(every), r.random() < 0.5, r.choice([-1, -2, 0, 1])
    ),
    "reverse_at": lambda s, r, b, mine, every, bs: s.reverse_compute_at(
        b, r.choice(every), r.random() < 0.5, r.choice([-1, -2, 0, 1])
    ),
    "decompose": lambda s, r, b, mine, every, bs: s.decompose_reduction(b, r.choice(mine)),
    "rfactor": lambda s, r, b, mine, every, bs: s.rfactor(r.choice(mine), r.choice([0, 1, -1])),
    "cache_read": lambda s, r, b, mine, every, bs: s.cache_read(b, r.choice([0, 1]), "global"),
    "cache_write": lambda s, r, b, mine, every, bs: s.cache_write(b, 0, "global"),
    "reindex": lambda s, r, b, mine, every, bs: s.reindex(b, _buffer(r)),
    "layout": lambda s, r, b, mine, every, bs: _layout(s, r, b),
    "pad_einsum": lambda s, r, b, mine, every, bs: s.pad_einsum(b, [r.choice([1, 2, 4]) for _ in mine]),
    "blockize": lambda s, r, b, mine, every, bs: s.blockize(r.choice(mine)),
    "align": lambda s, r, b, mine, every, bs: s.storage_align(b, 0, r.choice([0, -1]), 4, 1),
    "merge": lambda s, r, b, mine, every, bs: s.merge(*_same_depth(s, r, mine, bs)),
    "padding": lambda s, r, b, mine, every, bs: s.decompose_padding(b, r.choice(mine)),
    "iter_order": lambda s, r, b, mine, every, bs: s.reorder_block_iter_var(b, r.sample(range(len(mine)), len(mine))),
    "iter_space": lambda s, r, b, mine, every, bs: s.transform_block_layout(
        b, r.choice(_MAPS.get(_n_iters(s, b), _MAPS[1]))
    ),
    "reindex_read": lambda s, r, b, mine, every, bs: s.reindex_cache_read(
        b, r.choice([0, 1]), "global", r.choice(_MAPS.get(_n_iters(s, b), _MAPS[1]))
    ),
    "reindex_write": lambda s, r, b, mine, every, bs: s.reindex_cache_write(
        b, 0, "global", r.choice(_MAPS.get(_n_iters(s, b), _MAPS[1]))
    ),
    "read_at": lambda s, r, b, mine, every, bs: s.read_at(r.choice(mine), b, r.choice([0, 1]), "global"),
    "write_at": lambda s, r, b, mine, every, bs: s.write_at(r.choice(mine), b, 0, "global"),
    "location": lambda s, r, b, mine, every, bs: s.compute_at(b, s.sample_compute_location(b), r.random() < 0.5),
    "cache_reader": lambda s, r, b, mine, every, bs: s.cache_write(b, 0, "global", s.get_consumers(b)),
    "cache_readers": lambda s, r, b, mine, every, bs: s.cache_read(b, 0, "global", [b, r.choice(bs)]),
    "consumers": lambda s, r, b, mine, every, bs: s.split_consumers(b, s.get_consumers(b)),
}
