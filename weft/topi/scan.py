"""Running sums and products."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.ir import cast, const, int64
from weft.topi.precision import accumulator, narrowed
from weft.topi.shape import normalize_axis, product, unravel

__all__ = ["cumulative", "cumprod", "cumsum"]


def cumulative(
    kind: str, x: Any, axis: Any = None, dtype: str = "", exclusive: bool = False, reverse: bool = False
) -> Any:
    """The running sum or product (`kind` "sum" or "prod") along an axis, or over all elements.

    Parameters
    ----------
    exclusive : bool
        Leave each element out of its own result.
    reverse : bool
        Begin at the end.
    """
    if axis is None:
        whole = x
        x = te.compute((product(x.shape),), lambda i: whole(*unravel(i, whole.shape)), name="flat")
    a = normalize_axis("cum" + kind, axis or 0, x.ndim)
    dtype = dtype or x.dtype
    wide = accumulator(dtype)

    def body(ins: Any, outs: Any) -> Any:
        return _rows(kind, ins[0], outs[0], x.shape, a, exclusive, reverse)

    return narrowed(te.extern(x.shape, [x], body, name="cum" + kind, dtype=wide), dtype)


def _rows(kind: str, source: Any, target: Any, shape: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Loops over the lines along the axis, in parallel, and along each line."""
    outer = [d for i, d in enumerate(shape) if i != axis]
    loops = [tir.Var(f"i{n}", "int64") for n in range(len(outer))]
    extent, j = shape[axis], tir.Var("j", "int64")
    running = tir.decl_buffer((int64(1),), target.dtype, "running", scope="local")
    zero = (int64(0),)

    def index(position: Any) -> tuple[Any, ...]:
        rest = iter(loops)
        return tuple(position if i == axis else next(rest) for i in range(len(shape)))

    at = index(extent - int64(1) - j if reverse else j)
    before, value = tir.BufferLoad(running, zero), tir.Var("value", target.dtype)
    after = before + value if kind == "sum" else before * value
    step = tir.seq(
        tir.BufferStore(target, before, at) if exclusive else tir.BufferStore(target, after, at),
        tir.BufferStore(running, after, zero),
    )
    step = tir.LetStmt(value, cast(target.dtype, tir.BufferLoad(source, at)), step)
    start = tir.BufferStore(running, const(0 if kind == "sum" else 1, target.dtype), zero)
    line = tir.AllocBuffer(running, tir.seq(start, tir.For(j, int64(0), extent, tir.ForKind.SERIAL, step)))
    for n, (var, d) in enumerate(reversed(list(zip(loops, outer, strict=True)))):
        kind_of_loop = tir.ForKind.PARALLEL if n == len(loops) - 1 else tir.ForKind.SERIAL
        line = tir.For(var, int64(0), d, kind_of_loop, line)
    return line


def cumsum(data: Any, axis: Any = None, dtype: str = "", exclusive: bool = False) -> Any:
    """The running sum."""
    return cumulative("sum", data, axis, dtype or "", bool(exclusive))


def cumprod(data: Any, axis: Any = None, dtype: str = "", exclusive: bool = False) -> Any:
    """The running product."""
    return cumulative("prod", data, axis, dtype or "", bool(exclusive))
