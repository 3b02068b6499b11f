"""The machine's ceilings, measured by kernels of Weft's own: multiply-adds in registers, and reading memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import te, tir
from weft.ir import Var, cast, const, int64
from weft.runtime import tensor
from weft.target import Target, build
from weft.tir import BufferLoad, BufferStore, For, ForKind, PrimFunc, decl_buffer
from weft.tir.schedule import default_schedule

_STEPS = 20000
_BYTES = 1 << 28


def fma_peak(threads: int) -> float:
    """Return multiply-adds in registers, counted as two operations each, in 1e9 a second, on `threads` cores."""
    target = Target("llvm")
    lanes, vectors = target.vector_bits // 32, min(24, target.num_vector_registers - 4)
    source = decl_buffer((int64(lanes),), "float32", "a")
    sink = decl_buffer((int64(threads * vectors * lanes),), "float32", "c")
    sums = decl_buffer((int64(vectors * lanes),), "float32", "sums", scope="local")
    task, step, v, j = (Var(n, "int64") for n in ("task", "step", "v", "j"))
    at = v * int64(lanes) + j

    def loop(var: Var, extent: int, kind: ForKind, body: Any) -> For:
        return For(var, int64(0), int64(extent), kind, body)

    def tile(buffer: Any, value: Any, place: Any) -> For:
        lanes_of = loop(j, lanes, ForKind.VECTORIZED, BufferStore(buffer, value, (place,)))
        return loop(v, vectors, ForKind.UNROLLED, lanes_of)

    first = BufferLoad(source, (j,)) + cast("float32", v)  # all different, so that none is left out
    again = BufferLoad(sums, (at,)) * BufferLoad(source, (j,)) + const(0.5, "float32")
    steps = loop(step, _STEPS, ForKind.SERIAL, tile(sums, again, at))
    last = tile(sink, BufferLoad(sums, (at,)), task * int64(vectors * lanes) + at)
    body = tir.SeqStmt((tile(sums, first, at), steps, last))
    whole = loop(task, threads, ForKind.PARALLEL, tir.AllocBuffer(sums, body))
    func = _function([source, sink], whole)
    kernel = build(func, target)["main"]
    arguments = [tensor(np.full(lanes, 0.5, np.float32)), tensor(np.zeros(threads * vectors * lanes, np.float32))]
    seconds = _best(lambda: kernel(*arguments))
    return 2.0 * _STEPS * vectors * lanes * threads / seconds / 1e9


def _function(buffers: list[Any], body: Any) -> PrimFunc:
    params = [Var(b.name, "handle") for b in buffers]
    return PrimFunc(tuple(params), body, None, tuple(zip(params, buffers, strict=True)))


def read_bandwidth() -> float:
    """Return bytes read from memory by a sum of 256 MiB, in 1e9 a second, on the pool's threads."""
    x = te.placeholder((64, _BYTES // 256), name="x")
    r = te.reduce_axis((0, _BYTES // 256), name="r")
    func = te.create_prim_func([x, te.compute((64,), lambda i: te.sum(x[i, r], axis=r), name="y")])
    kernel = build(default_schedule(func, Target("llvm")), Target("llvm"))["main"]
    arguments = [tensor(np.ones((64, _BYTES // 256), np.float32)), tensor(np.zeros(64, np.float32))]
    return _BYTES / _best(lambda: kernel(*arguments)) / 1e9


def _best(call: Callable[[], Any], times: int = 30) -> float:
    call()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)
