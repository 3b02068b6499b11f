"""Systems of linear equations, and the triangular factors of matrices."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.ir import const
from weft.te import Tensor
from weft.tir import ir_builder


def solve(a: Tensor, b: Tensor, refusal: str = "") -> Any:
    """Solve ``a @ x == b`` by elimination, each column from its largest element.

    Parameters
    ----------
    a : Tensor
        (batch, n, n), of a float type.
    b : Tensor
        (batch, n, columns), of the same type.
    refusal : str
        What the kernel says when it finds a matrix singular; nothing lets it go on.

    Returns
    -------
    list of Tensor
        `x` (batch, n, columns); the triangular matrix (batch, n, n); its diagonal (batch, n); the sign of the order of
        rows (batch,); and, int32 (batch,), which element of the diagonal is the first zero, counted from 1, or 0.
    """
    batch, n, columns = b.shape
    dtype = a.dtype

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        matrix, given, x, u, diagonal, sign, info = (ib.buffer_ptr(v) for v in (*ins, *outs))
        widths = ((u, n), (x, columns))
        with ib.for_range(0, batch, kind="parallel") as g:
            best = ib.allocate("int64", (1,), name="best", scope="local")
            kept = ib.allocate(dtype, (1,), name="kept", scope="local")
            sign[g], info[g] = const(1, dtype), const(0, "int32")
            with ib.for_range(0, n) as i:
                for (target, width), source in zip(widths, (matrix, given), strict=True):
                    with ib.for_range(0, width) as j:
                        target[g, i, j] = source[g, i, j]
            with ib.for_range(0, n) as k:
                best[0] = k
                with ib.for_range(0, n - k) as i, ib.if_scope(tir.abs(u[g, k + i, k]) > tir.abs(u[g, best[0], k])):
                    best[0] = k + i
                with ib.if_scope(best[0] != k):
                    sign[g] = const(0, dtype) - sign[g]
                    for part, width in widths:
                        with ib.for_range(0, width) as j:
                            kept[0] = part[g, k, j]
                            part[g, k, j] = part[g, best[0], j]
                            part[g, best[0], j] = kept[0]
                diagonal[g, k] = u[g, k, k]
                with ib.if_scope(u[g, k, k] == const(0, dtype)):
                    with ib.if_scope(info[g] == 0):
                        info[g] = tir.Cast("int32", k + 1)
                with ib.else_scope(), ib.for_range(0, n - 1 - k) as i:
                    kept[0] = u[g, k + 1 + i, k] / u[g, k, k]
                    for part, width in widths:
                        with ib.for_range(0, width) as j:
                            part[g, k + 1 + i, j] = part[g, k + 1 + i, j] - kept[0] * part[g, k, j]
            with ib.for_range(0, n) as back, ib.for_range(0, columns) as j:
                i = n - 1 - back
                x[g, i, j] = x[g, i, j] / u[g, i, i]
                with ib.for_range(0, i) as above:
                    x[g, above, j] = x[g, above, j] - u[g, above, i] * x[g, i, j]
        _refuse(ib, info, batch, refusal)
        return ib.get()

    shapes = [b.shape, a.shape, (batch, n), (batch,), (batch,)]
    return te.extern(shapes, [a, b], body, name="solve", dtype=[dtype] * 4 + ["int32"])


def cholesky(a: Tensor, refusal: str = "") -> Any:
    """The lower triangular L with ``L @ L.T == a``, and the order of the first leading part that has none, or 0.

    Parameters and results are those of :func:`solve`: (batch, n, n), and (batch,) int32.
    """
    batch, n, _ = a.shape
    dtype = a.dtype

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        matrix, low, info = (ib.buffer_ptr(v) for v in (*ins, *outs))
        with ib.for_range(0, batch, kind="parallel") as g:
            left = ib.allocate(dtype, (1,), name="left", scope="local")
            info[g] = const(0, "int32")
            with ib.for_range(0, n) as i, ib.for_range(0, n) as j:
                left[0] = matrix[g, i, j]
                with ib.for_range(0, tir.if_then_else(j > i, const(0, "int64"), j)) as k:
                    left[0] = left[0] - low[g, i, k] * low[g, j, k]
                with ib.if_scope(j > i):
                    low[g, i, j] = const(0, dtype)
                with ib.else_scope(), ib.if_scope(j < i):
                    low[g, i, j] = left[0] / low[g, j, j]
                with ib.if_scope(i.equal(j)):
                    low[g, i, j] = tir.sqrt(left[0])
                    with ib.if_scope(tir.all(info[g] == 0, tir.Not(left[0] > const(0, dtype)))):
                        info[g] = tir.Cast("int32", i + 1)
        _refuse(ib, info, batch, refusal)
        return ib.get()

    return te.extern([a.shape, (batch,)], [a], body, name="cholesky", dtype=[dtype, "int32"])


def _refuse(ib: Any, info: Any, batch: Any, refusal: str) -> None:
    if refusal:
        with ib.for_range(0, batch) as g:
            ib.assert_stmt(info[g] == 0, refusal)
