"""Systems of linear equations, and the triangular factors of matrices."""

from typing import Any

from weft import ir, te, tir
from weft.ir import PrimExpr
from weft.topi.typing import Buffers, IRBuilder
from weft.topi.written import written


def solve(a: te.Tensor, b: te.Tensor, refusal: str = "") -> Any:
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

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        matrix, given, x, u, diagonal, sign, info = (ib.buffer_ptr(v) for v in (*ins, *outs))
        widths = ((u, n), (x, columns))
        with ib.for_range(0, batch, kind="parallel") as g:
            best = ib.allocate("int64", (1,), name="best", scope="local")
            kept = ib.allocate(dtype, (1,), name="kept", scope="local")
            sign[g], info[g] = ir.const(1, dtype), ir.const(0, "int32")
            with ib.for_range(0, n) as i:
                for (target, width), source in zip(widths, (matrix, given), strict=True):
                    with ib.for_range(0, width) as j:
                        target[g, i, j] = source[g, i, j]
            with ib.for_range(0, n) as k:
                best[0] = k
                with ib.for_range(0, n - k) as i, ib.if_scope(tir.abs(u[g, k + i, k]) > tir.abs(u[g, best[0], k])):
                    best[0] = k + i
                with ib.if_scope(best[0] != k):
                    sign[g] = ir.const(0, dtype) - sign[g]
                    for part, width in widths:
                        with ib.for_range(0, width) as j:
                            kept[0] = part[g, k, j]
                            part[g, k, j] = part[g, best[0], j]
                            part[g, best[0], j] = kept[0]
                diagonal[g, k] = u[g, k, k]
                with ib.if_scope(u[g, k, k] == ir.const(0, dtype)):
                    with ib.if_scope(info[g] == 0):
                        info[g] = tir.Cast("int32", k + 1)
                with ib.else_scope(), ib.for_range(0, n - 1 - k) as i:
                    row = k + 1 + i
                    kept[0] = u[g, row, k] / u[g, k, k]
                    u[g, row, k] = ir.const(0, dtype)
                    for part, width, first in ((u, n, k + 1), (x, columns, 0)):
                        with ib.for_range(0, width - first) as j:
                            part[g, row, first + j] = part[g, row, first + j] - kept[0] * part[g, k, first + j]
            with ib.for_range(0, n) as back, ib.for_range(0, columns) as j:
                i = n - 1 - back
                x[g, i, j] = x[g, i, j] / u[g, i, i]
                with ib.for_range(0, i) as above:
                    x[g, above, j] = x[g, above, j] - u[g, above, i] * x[g, i, j]
        _refuse(ib, info, batch, refusal)

    shapes = [b.shape, a.shape, (batch, n), (batch,), (batch,)]
    return written(shapes, [a, b], body, name="solve", dtype=[dtype] * 4 + ["int32"])


def cholesky(a: te.Tensor, refusal: str = "") -> Any:
    """The lower triangular L with ``L @ L.T == a``, and the order of the first leading part that has none, or 0.

    Parameters and results are those of :func:`solve`: (batch, n, n), and (batch,) int32.
    """
    batch, n, _ = a.shape
    dtype = a.dtype

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        matrix, low, info = (ib.buffer_ptr(v) for v in (*ins, *outs))
        with ib.for_range(0, batch, kind="parallel") as g:
            left = ib.allocate(dtype, (1,), name="left", scope="local")
            info[g] = ir.const(0, "int32")
            with ib.for_range(0, n) as i, ib.for_range(0, n) as j:
                left[0] = matrix[g, i, j]
                with ib.for_range(0, tir.if_then_else(j > i, ir.const(0, "int64"), j)) as k:
                    left[0] = left[0] - low[g, i, k] * low[g, j, k]
                with ib.if_scope(j > i):
                    low[g, i, j] = ir.const(0, dtype)
                with ib.else_scope(), ib.if_scope(j < i):
                    low[g, i, j] = left[0] / low[g, j, j]
                with ib.if_scope(i.equal(j)):
                    low[g, i, j] = tir.sqrt(left[0])
                    with ib.if_scope(tir.all(info[g] == 0, tir.Not(left[0] > ir.const(0, dtype)))):
                        info[g] = tir.Cast("int32", i + 1)
        _refuse(ib, info, batch, refusal)

    return written([a.shape, (batch,)], [a], body, name="cholesky", dtype=[dtype, "int32"])


def qr(a: te.Tensor, columns: ir.PrimExpr) -> Any:
    """Factor by Householder's reflections, with the signs that LAPACK gives.

    Parameters
    ----------
    a : Tensor
        (batch, m, n), of a float type.
    columns : PrimExpr
        How many columns of Q are wanted: at least min(m, n), at most m.

    Returns
    -------
    list of Tensor
        Q (batch, m, columns), and (batch, m, n): R in the upper triangle, reflections below it.
    """
    batch, m, n = a.shape
    dtype, one, zero = a.dtype, ir.const(1, a.dtype), ir.const(0, a.dtype)
    steps = tir.min(m, n)

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        matrix, q, r, tau = (ib.buffer_ptr(v) for v in (*ins, *outs))
        with ib.for_range(0, batch, kind="parallel") as g:
            total = ib.allocate(dtype, (1,), name="total", scope="local")
            first = ib.allocate(dtype, (1,), name="first", scope="local")
            with ib.for_range(0, m) as i, ib.for_range(0, n) as j:
                r[g, i, j] = matrix[g, i, j]

            def reflect(target: Any, k: PrimExpr, j: PrimExpr) -> None:
                total[0] = target[g, k, j]
                with ib.for_range(0, m - 1 - k) as i:
                    total[0] = total[0] + r[g, k + 1 + i, k] * target[g, k + 1 + i, j]
                total[0] = total[0] * tau[g, k]
                target[g, k, j] = target[g, k, j] - total[0]
                with ib.for_range(0, m - 1 - k) as i:
                    target[g, k + 1 + i, j] = target[g, k + 1 + i, j] - r[g, k + 1 + i, k] * total[0]

            with ib.for_range(0, steps) as k:
                total[0], tau[g, k], first[0] = zero, zero, r[g, k, k]
                with ib.for_range(0, m - 1 - k) as i:
                    total[0] = total[0] + r[g, k + 1 + i, k] * r[g, k + 1 + i, k]
                with ib.if_scope(total[0] > zero):
                    total[0] = tir.sqrt(total[0] + first[0] * first[0])
                    with ib.if_scope(first[0] > zero):
                        total[0] = zero - total[0]
                    tau[g, k] = (total[0] - first[0]) / total[0]
                    r[g, k, k] = total[0]
                    with ib.for_range(0, m - 1 - k) as i:
                        r[g, k + 1 + i, k] = r[g, k + 1 + i, k] / (first[0] - r[g, k, k])
                with ib.for_range(0, n - 1 - k) as j:
                    reflect(r, k, k + 1 + j)
            with ib.for_range(0, m) as i, ib.for_range(0, columns) as j:
                q[g, i, j] = tir.Select(i.equal(j), one, zero)
            with ib.for_range(0, steps) as back, ib.for_range(0, columns) as j:
                reflect(q, steps - 1 - back, j)

    shapes = [(batch, m, columns), a.shape, (batch, steps)]
    return written(shapes, [a], body, name="qr", dtype=[dtype] * 3)


_SWEEPS = 60
"""Of rotations, far more than any matrix takes; they end where a whole one finds nothing to do."""


def orthogonal_rows(a: te.Tensor) -> Any:
    """Rotate pairs of rows until all are orthogonal: one-sided Jacobi.

    Parameters
    ----------
    a : Tensor
        (batch, n, m) float64.

    Returns
    -------
    list of Tensor
        The rows (batch, n, m), the rotation (batch, n, n) that makes them of `a`, and their squares' sums (batch, n).
    """
    batch, n, m = a.shape
    dtype, one, zero = a.dtype, ir.const(1, a.dtype), ir.const(0, a.dtype)

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        matrix, rows, turn, squares = (ib.buffer_ptr(v) for v in (*ins, *outs))
        with ib.for_range(0, batch, kind="parallel") as g:
            busy = ib.allocate("int32", (1,), name="busy", scope="local")
            part = ib.allocate(dtype, (3,), name="part", scope="local")  # two squares and a product; cosine, sine
            kept = ib.allocate(dtype, (1,), name="kept", scope="local")
            busy[0] = ir.const(1, "int32")
            with ib.for_range(0, n) as i:
                with ib.for_range(0, m) as j:
                    rows[g, i, j] = matrix[g, i, j]
                with ib.for_range(0, n) as j:
                    turn[g, i, j] = tir.Select(i.equal(j), one, zero)
            with ib.for_range(0, _SWEEPS), ib.if_scope(busy[0] != 0):
                busy[0] = ir.const(0, "int32")
                with ib.for_range(0, n) as p, ib.for_range(0, n - 1 - p) as rest:
                    q = p + 1 + rest
                    for i in range(3):
                        part[i] = zero
                    with ib.for_range(0, m) as j:
                        for i, (x, y) in enumerate(((p, p), (q, q), (p, q))):
                            part[i] = part[i] + rows[g, x, j] * rows[g, y, j]
                    with ib.if_scope(tir.abs(part[2]) > ir.const(1e-15, dtype) * tir.sqrt(part[0]) * tir.sqrt(part[1])):
                        busy[0] = ir.const(1, "int32")
                        kept[0] = (part[1] - part[0]) / (ir.const(2, dtype) * part[2])
                        part[2] = one / (tir.abs(kept[0]) + tir.hypot(one, kept[0]))
                        with ib.if_scope(kept[0] < zero):
                            part[2] = zero - part[2]
                        part[0] = one / tir.sqrt(one + part[2] * part[2])
                        part[1] = part[0] * part[2]
                        for target, width in ((rows, m), (turn, n)):
                            with ib.for_range(0, width) as j:
                                kept[0] = target[g, p, j]
                                target[g, p, j] = part[0] * kept[0] - part[1] * target[g, q, j]
                                target[g, q, j] = part[1] * kept[0] + part[0] * target[g, q, j]
            with ib.for_range(0, n) as i:
                squares[g, i] = zero
                with ib.for_range(0, m) as j:
                    squares[g, i] = squares[g, i] + rows[g, i, j] * rows[g, i, j]

    return written([a.shape, (batch, n, n), (batch, n)], [a], body, name="orthogonal_rows", dtype=[dtype] * 3)


def _refuse(ib: IRBuilder, info: Any, batch: Any, refusal: str) -> None:
    if refusal:
        with ib.for_range(0, batch) as g:
            ib.assert_stmt(info[g] == 0, refusal)
