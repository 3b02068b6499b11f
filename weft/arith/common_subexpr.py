"""What an expression computes more than once."""

from collections.abc import Hashable

from weft import ir
from weft.arith.analyzer import Analyzer
from weft.arith.form import expr_key, is_stable
from weft.error import InvalidArgument


def detect_common_subexpr(expr: ir.PrimExpr, threshold: int) -> dict[ir.PrimExpr, int]:
    """Count the largest computations that an expression has at least `threshold` times.

    Parameters
    ----------
    expr : PrimExpr
        An expression of any type. Computations count that read no memory and have no effects, and that neither are
        leaves nor vectors made by ``Ramp`` and ``Broadcast``; what ``Let`` binds a variable for is not looked into.
    threshold : int
        The least number of occurrences, at least 0.

    Returns
    -------
    dict
        From the first occurrence of a computation to the number of its occurrences. Computations are the same where
        their integer parts have one normal form. One inside another that counts is not counted again there.

    Raises
    ------
    InvalidArgument
        The threshold is negative.
    """
    if threshold < 0:
        raise InvalidArgument("detect_common_subexpr: threshold is negative", expected=">= 0", found=str(threshold))
    cx = Analyzer().context
    place = {id(e): i for i, e in enumerate(ir.walk(expr))}
    known: dict[Hashable, _Computation] = {}
    by_size: dict[int, list[_Computation]] = {}

    def count(e: ir.Node, times: int) -> None:
        if not isinstance(e, ir.PrimExpr) or not _counts(e):
            for below in _inside(e):
                count(below, times)
            return
        same = (e.dtype, expr_key(cx, e))
        c = known.get(same)
        if c is None:
            c = known[same] = _Computation(e)
            by_size.setdefault(sum(1 for _ in ir.walk(e)), []).append(c)
        elif place[id(e)] < place[id(c.expr)]:
            c.expr = e
        c.times += times

    count(expr, 1)
    found: dict[ir.PrimExpr, int] = {}
    while by_size:
        for c in by_size.pop(max(by_size)):
            if c.times >= threshold:
                found[c.expr] = c.times
                continue
            for below in _inside(c.expr):
                count(below, c.times)
    return found


class _Computation:
    """An expression where it occurs first, and how often it is there."""

    def __init__(self, expr: ir.PrimExpr) -> None:
        self.expr, self.times = expr, 0


def _counts(e: ir.PrimExpr) -> bool:
    leaf = next(ir.children(e), None) is None
    return not leaf and not isinstance(e, (ir.Ramp, ir.Broadcast)) and is_stable(e)


def _inside(e: ir.Node) -> list[ir.Node]:
    return [e.value] if isinstance(e, ir.Let) else list(ir.children(e))
