"""Pairwise coupling: probabilities of classes from those of each class against each other one."""

from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, cast, const, logical_and, select
from weft.tir import max as tir_max
from weft.tir import min as tir_min
from weft.topi.typing import Buffers, IRBuilder
from weft.topi.written import written


def couple_pairs(pairs: te.Tensor) -> Any:
    """Couple the probabilities of pairs (Wu, Lin and Weng 2004, their second method), rows in parallel.

    It seeks the shares ``p`` with the least sum of ``(pairs[j, i] p[i] - pairs[i, j] p[j]) ** 2``, one class after the
    other, until each is within ``0.005 / classes`` of the optimum's condition, as LIBSVM does.

    Parameters
    ----------
    pairs : Tensor
        (rows, classes, classes): that a row is of class `i` if it is of `i` or `j`. The diagonal is not read.

    Returns
    -------
    Tensor
        (rows, classes): the shares; equal ones where pairs are not numbers.
    """
    rows, count, dtype = pairs.shape[0], pairs.shape[1], pairs.dtype

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, shares = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        classes = cast("int64", count)
        some = cast(dtype, tir_max(classes, const(1, "int64")))
        with ib.for_range(0, rows, kind="parallel") as row:
            names = ("total", "low", "high", "square", "cross", "step")
            total, low, high, square, cross, step = (ib.allocate(dtype, (1,), name=n, scope="local") for n in names)
            left = ib.allocate("int64", (1,), name="left", scope="local")

            def gradient(i: PrimExpr) -> PrimExpr:
                """Leave the `i`-th diagonal element in `square`; return the `i`-th element of the matrix by `p`."""
                square[0] = cross[0] = const(0, dtype)
                with ib.for_range(0, classes) as j:
                    ours, theirs = given[(row * classes + j) * classes + i], given[(row * classes + i) * classes + j]
                    own = i.equal(j)
                    square[0] = square[0] + select(own, const(0, dtype), ours * ours)
                    cross[0] = cross[0] + select(own, const(0, dtype), ours * theirs * shares[row * classes + j])
                return square[0] * shares[row * classes + i] - cross[0]

            with ib.for_range(0, classes) as i:
                shares[row * classes + i] = const(1, dtype) / some
            left[0] = tir_max(classes, const(100, "int64"))
            with ib.while_loop(left[0] > const(0, "int64")):
                total[0], low[0], high[0] = const(0, dtype), tir.max_value(dtype), tir.min_value(dtype)
                with ib.for_range(0, classes) as i:
                    cross[0] = gradient(i)
                    total[0] = total[0] + shares[row * classes + i] * cross[0]
                    low[0], high[0] = tir_min(low[0], cross[0]), tir_max(high[0], cross[0])
                error = tir_max(high[0] - total[0], total[0] - low[0])
                going = logical_and(classes > const(0, "int64"), error >= const(0.005, dtype) / some)
                left[0] = select(going, left[0] - const(1, "int64"), const(-1, "int64"))
                with ib.if_scope(left[0] >= const(0, "int64")), ib.for_range(0, classes) as i:
                    cross[0] = gradient(i)
                    step[0] = (total[0] - cross[0]) / square[0]
                    grown = const(1, dtype) + step[0]
                    total[0] = (total[0] + step[0] * (step[0] * square[0] + const(2, dtype) * cross[0])) / grown / grown
                    shares[row * classes + i] = shares[row * classes + i] + step[0]
                    with ib.for_range(0, classes) as j:
                        shares[row * classes + j] = shares[row * classes + j] / grown

    return written((rows, count), [pairs], body, name="couple_pairs", dtype=dtype)
