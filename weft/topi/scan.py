"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, as_int, cast, const, int64
from weft.topi.precision import accumulator, narrowed, widened
from weft.topi.shape import normalize_axis, product, unravel
from weft.topi.typing import Buffers, Scalar

Combine = Callable[[Any, Any], Any]


def cumulative(
    kind: str, x: te.Tensor, axis: int | None = None, dtype: str = "", exclusive: bool = False, reverse: bool = False
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
    wide, x = accumulator(dtype), widened(x)  # in vectors: sums are taken one by one
    identity = const(0 if kind == "sum" else 1, wide)
    combine = (lambda u, v: u + v) if kind == "sum" else (lambda u, v: u * v)

    def body(ins: Buffers, outs: Buffers) -> Any:
        return _rows(combine, identity, ins[0], outs[0], x.shape, a, exclusive, reverse)

    return narrowed(te.extern(x.shape, [x], body, name="cum" + kind, dtype=wide), dtype)


def scanop(
    data: te.Tensor,
    binop: Combine,
    identity_value: Scalar,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Any:
    """Combine each element with all before it along an axis, or in row-major order, by an associative function.

    Parameters
    ----------
    identity_value : PrimExpr
        What the first element of an exclusive scan is.
    """
    x = data
    if axis is None:
        x = te.compute((product(data.shape),), lambda i: data(*unravel(i, data.shape)), name="flat")
    a = normalize_axis(op_name, axis or 0, x.ndim)
    made = dtype or x.dtype
    identity = cast(made, identity_value)

    def body(ins: Buffers, outs: Buffers) -> Any:
        return _rows(binop, identity, ins[0], outs[0], x.shape, a, bool(exclusive), False)

    return te.extern(x.shape, [x], body, name=op_name, dtype=made)


def _rows(
    combine: Combine, identity: Any, source: Any, target: Any, shape: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    """Loops over the axes before, in parallel, along the axis, and over the axes after it.

    Each step reads the one before.
    """
    loops = [tir.Var(f"i{n}", "int64") for n in range(len(shape))]
    shape = [cast("int64", d) for d in shape]
    extent, j = shape[axis], loops[axis]
    around = list(zip(loops, shape, strict=True))[axis + 1 :]
    if len(around) > 1 and all(as_int(d) for d in shape[axis + 1 :]):  # one long loop, for they lie side by side
        around = [(around[0][0], product(shape[axis + 1 :]))]
        loops[axis + 1 :] = unravel(loops[axis + 1], shape[axis + 1 :])

    def index(position: PrimExpr) -> tuple[Any, ...]:
        return tuple(position if d == axis else v for d, v in enumerate(loops))

    at = extent - int64(1) - j if reverse else j
    before = at + int64(1) if reverse else at - int64(1)
    value = cast(target.dtype, tir.BufferLoad(source, index(before if exclusive else at)))
    previous = tir.BufferLoad(target, index(before))

    def inner(value: Any) -> Any:
        stmt: Any = tir.BufferStore(target, value, index(at))
        for variable, n in reversed(around):
            stmt = tir.For(variable, int64(0), n, tir.ForKind.SERIAL, stmt)
        return stmt

    start = inner(identity if exclusive else value)
    step = inner(combine(previous, value))
    stmt: Any = tir.For(j, int64(0), extent, tir.ForKind.SERIAL, tir.IfThenElse(j.equal(int64(0)), start, step))
    for d in reversed(range(axis)):
        stmt = tir.For(loops[d], int64(0), shape[d], tir.ForKind.SERIAL if d else tir.ForKind.PARALLEL, stmt)
    return stmt


def cumsum(data: te.Tensor, axis: int | None = None, dtype: str = "", exclusive: bool = False) -> Any:
    """The running sum."""
    return cumulative("sum", data, axis, dtype or "", bool(exclusive))


def cumprod(data: te.Tensor, axis: int | None = None, dtype: str = "", exclusive: bool = False) -> Any:
    """The running product."""
    return cumulative("prod", data, axis, dtype or "", bool(exclusive))
