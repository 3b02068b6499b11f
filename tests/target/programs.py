"""Small TIR functions by hand, and the comparison of native code with the interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft import te, tir
from weft.ir import SizeVar, Var, int64, numpy_dtype
from weft.target import Target, build
from weft.tir import Buffer, BufferLoad, BufferStore, For, ForKind, PrimExpr, PrimFunc, decl_buffer

N = SizeVar("n", "int64")


FUNCTIONS = """exp exp2 exp10 log log2 log10 log1p tanh sinh cosh asinh acosh atanh sigmoid erf sin cos tan asin acos
    atan sqrt rsqrt floor ceil trunc round abs""".split()
FUNCTIONS_OF_TWO = "fmod pow atan2 hypot copysign".split()
"""Of floats: every language has text for them."""


def function(params: Sequence[Buffer | Var], body: Any, name: str = "main", **attrs: Any) -> PrimFunc:
    """Make a function of buffers and scalars in order."""
    handles, buffer_map = [], []
    for p in params:
        if isinstance(p, Buffer):
            handle = Var(p.name + "_handle", "handle")
            handles.append(handle)
            buffer_map.append((handle, p))
        else:
            handles.append(p)
    values = {"global_symbol": name, "tir.noalias": True, **attrs}
    return PrimFunc(tuple(handles), body, None, tuple(buffer_map), tir.Attrs.of(values))


def bound(out: te.Tensor, factor: int = 32) -> te.Schedule:
    """Schedule a tensor whose elements, of all axes together, are the threads of blocks of `factor`."""
    s = te.create_schedule(out.op)
    block, thread = s[out].split(s[out].fuse(*out.op.axis), factor=factor)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    return s


def vector(f: Callable[[Any], Any], dtype: str = "float32") -> PrimFunc:
    """Make the function ``f`` of an array A of n elements to an array B, one a thread."""
    a = te.placeholder((te.var("n"),), dtype, name="A")
    b = te.compute(a.shape, lambda i: f(a[i]), name="B")
    return te.schedule.schedule_to_prim_func(bound(b, 64), [a, b], "f")


def pairwise(f: Callable[[Any, Any], Any], n: Any = None) -> list[te.Tensor]:
    """Two arrays of n elements, a variable by default, and what `f` makes of each two of their elements."""
    size = te.var("n") if n is None else n
    a, b = te.placeholder((size,), name="A"), te.placeholder((size,), name="B")
    return [a, b, te.compute((size,), lambda i: f(a[i], b[i]), name="C")]


def fadd(target: Any, n: Any = None) -> Any:
    """Build the sum of two arrays, one element a thread."""
    args = pairwise(lambda x, y: x + y, n)
    return weft.build(bound(args[2], 64), args, target, name="fadd")


def rows_by_their_sums() -> tuple[te.Schedule, list[te.Tensor]]:
    """Divide rows of 8 elements by their sums: a kernel writes the sums, and another reads them."""
    n, k = te.var("n"), te.reduce_axis((0, 8), name="k")
    a = te.placeholder((n, 8), name="A")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((n, 8), lambda i, j: a[i, j] / b[i], name="C")
    s = te.create_schedule(c.op)
    for t in (b, c):
        block, thread = s[t].split(s[t].fuse(*t.op.axis), factor=16)
        s[t].bind(block, te.thread_axis("blockIdx.x"))
        s[t].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [a, c]


def tiled_product(m: int, n: int, depth: int, scope: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """A product of matrices whose blocks of 4 by 4 threads fetch tiles of 4 rows and columns to memory of a scope."""
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(t, scope, [c]) for t in (a, b)]
    acc = s.cache_write(c, "local")
    axes = [te.thread_axis(tag) for tag in ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")]
    yo, yi = s[c].split(s[c].op.axis[0], factor=8)
    xo, xi = s[c].split(s[c].op.axis[1], factor=8)
    vy, yi = s[c].split(yi, nparts=4)
    vx, xi = s[c].split(xi, nparts=4)
    s[c].reorder(yo, xo, vy, vx, yi, xi)
    for axis, tag in zip((yo, xo, vy, vx), axes, strict=True):
        s[c].bind(axis, tag)
    s[acc].compute_at(s[c], vx)
    ko, ki = s[acc].split(s[acc].op.reduce_axis[0], factor=4)
    s[acc].reorder(ko, ki, *s[acc].op.axis)
    for t in shared:
        s[t].compute_at(s[acc], ko)
        first, then = s[t].split(s[t].fuse(*s[t].op.axis), nparts=4)
        then, _ = s[t].split(then, nparts=4)
        s[t].bind(first, axes[2])
        s[t].bind(then, axes[3])
    return s, [a, b, c]


def sum_of_many(count: int) -> PrimFunc:
    """Make the sum of so many arrays of 8 elements, the last argument; one element a thread."""
    parts = [te.placeholder((8,), name=f"A{i}") for i in range(count)]
    total = te.compute((8,), lambda i: sum((p[i] for p in parts[1:]), parts[0][i]), name="B")
    return te.schedule.schedule_to_prim_func(bound(total, 8), [*parts, total], "f")


def loop(extent: Any, body: Callable[[Var], Any], kind: ForKind = ForKind.SERIAL, name: str = "i", **notes: Any) -> For:
    """Make a loop."""
    i = Var(name, "int64")
    extent = int64(extent) if isinstance(extent, int) else extent
    return For(i, int64(0), extent, kind, body(i), None, tir.Attrs.of(notes))


def store(buffer: Buffer, index: Any, value: PrimExpr) -> BufferStore:
    """Make a store."""
    index = index if isinstance(index, tuple) else (index,)
    return BufferStore(buffer, value, tuple(tir.as_expr(i) for i in index))


def load(buffer: Buffer, *index: Any) -> BufferLoad:
    """Make a load."""
    return BufferLoad(buffer, tuple(tir.as_expr(i) for i in index))


def elementwise(
    fn: Callable[..., PrimExpr], dtypes: Sequence[str], out: str, extent: Any, lanes: int = 0, name: str = "main"
) -> PrimFunc:
    """``out[i] = fn(in0[i], ...)`` over `extent` elements, in vectors of `lanes` where that is not 0."""
    ins = [decl_buffer((extent,), d, f"x{n}") for n, d in enumerate(dtypes)]
    result = decl_buffer((extent,), out, "y")

    def body(i: PrimExpr) -> Any:
        return store(result, i, fn(*[load(b, i) for b in ins]))

    if not lanes:
        return function([*ins, result], loop(extent, body), name)
    blocks = tir.ceildiv(extent, int64(lanes)) if not isinstance(extent, int) else int64(-(-extent // lanes))
    end = int64(extent) if isinstance(extent, int) else extent

    def outer(o: Var) -> Any:
        def inner(v: Var) -> Any:
            index = o * lanes + v
            return tir.IfThenElse(index < end, body(index))

        return loop(lanes, inner, ForKind.VECTORIZED, "v")

    return function([*ins, result], loop(blocks, outer), name)


def sample(dtype: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw values of a data type, with its extremes among them."""
    dt = numpy_dtype(dtype)
    if dt.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dt.kind in "iu":
        info = np.iinfo(dt)
        values = rng.integers(-20 if dt.kind == "i" else 0, 20, n).astype(dt)
        edges = np.array([info.min, info.max, 0, 1, -1 if dt.kind == "i" else 2], dt)
    else:
        values = (rng.normal(size=n) * 10).astype(dt)
        edges = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.5, -2.5], dt)
    count = min(n // 2, len(edges))
    values[rng.permutation(n)[:count]] = rng.permutation(edges)[:count]
    return values


def check_native(
    func: PrimFunc, args: Sequence[np.ndarray], *outs: np.ndarray, target: Any = "llvm", **close: Any
) -> None:
    """Run `func` natively and in the interpreter; `outs` are the last arguments."""
    expected, found = [o.copy() for o in outs], [o.copy() for o in outs]
    tir.interpret(func, *args, *expected)
    build(func, target if isinstance(target, Target) else Target(target))["main"](*args, *found)
    for f, e in zip(found, expected, strict=True):
        assert_same(f, e, **close)


def assert_same(found: np.ndarray, expected: np.ndarray, **close: Any) -> None:
    """Compare arrays; NaN equals NaN."""
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    close = close or {"rtol": 0.0, "atol": 0.0}
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), equal_nan=True, **close)


def staged(n: int, k: int, tile: int):
    """A product of a matrix and a vector whose blocks fetch a tile of the vector, which their threads share."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k,), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n,), lambda i: te.sum(a[i, r] * b[r], axis=r), name="C")
    s = te.create_schedule(c.op)
    staged = s.cache_read(b, "shared", [c])
    block, thread = s[c].split(c.op.axis[0], factor=tile)
    outer, inner = s[c].split(c.op.reduce_axis[0], factor=tile)
    s[c].reorder(block, thread, outer, inner)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    lane = te.thread_axis("threadIdx.x")
    s[c].bind(thread, lane)
    s[staged].compute_at(s[c], outer)
    s[staged].bind(s[staged].op.axis[0], lane)
    return s, (a, b, c)
