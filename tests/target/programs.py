"""Small TIR functions by hand, and the comparison of native code with the interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import Range, SizeVar, Var, const, int64, numpy_dtype
from weft.target import Target, build
from weft.tir import Buffer, BufferLoad, BufferStore, For, ForKind, PrimExpr, PrimFunc, decl_buffer

N = SizeVar("n", "int64")


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


__all__ = [
    "N",
    "Range",
    "assert_same",
    "check_native",
    "const",
    "elementwise",
    "function",
    "load",
    "loop",
    "sample",
    "store",
]


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
