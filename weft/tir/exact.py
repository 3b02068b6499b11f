"""Integers that programs count with at run time, such as sizes: where 64 bits are too few, they are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft import ir
from weft.ir import PrimExpr, int64, logical_and, logical_not, logical_or
from weft.tir.intrin import message
from weft.tir.stmt import AssertStmt, Stmt

_LEAST, _MOST = int64(-(1 << 63)), int64((1 << 63) - 1)
_SIZE = float((1 << 63) - (1 << 13))
"""A product of two numbers that were rounded to float64 is off by three parts in ``2**53``."""


def _quotient(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return logical_and(ir.not_equal(b, 0), logical_or(ir.not_equal(b, -1), ir.not_equal(a, _LEAST)))


_COMPUTABLE: dict[type, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    ir.Add: lambda a, b: logical_and(a <= _MOST - ir.max_(b, 0), a >= _LEAST - ir.min_(b, 0)),
    ir.Sub: lambda a, b: logical_and(a <= _MOST + ir.min_(b, 0), a >= _LEAST + ir.max_(b, 0)),
    ir.Mul: lambda a, b: ir.abs_(ir.cast("float64", a) * ir.cast("float64", b)) < _SIZE,
    ir.Div: _quotient,
    ir.FloorDiv: _quotient,
    **dict.fromkeys((ir.Mod, ir.FloorMod), lambda _, b: ir.not_equal(b, 0)),
}


def _operands(e: PrimExpr) -> list[tuple[PrimExpr, PrimExpr | None]]:
    """List the operands of an expression, each with the condition on which its value is used."""
    choice: tuple[PrimExpr, ...] = (e.condition, e.true_value, e.false_value) if isinstance(e, ir.Select) else ()
    if isinstance(e, ir.CallIntrin) and e.op.name == "tir.if_then_else":
        choice = e.args
    if choice:
        return [(choice[0], None), (choice[1], choice[0]), (choice[2], logical_not(choice[0]))]
    if isinstance(e, (ir.And, ir.Or)):
        return [(e.a, None), (e.b, e.a if isinstance(e, ir.And) else logical_not(e.a))]
    return [(c, None) for c in ir.children(e) if isinstance(c, PrimExpr)]


def checked(values: Iterable[tuple[PrimExpr, str, bool]], body: Stmt) -> Stmt:
    """Refuse, before `body`, int64 values that 64 bits do not hold, and divisions by zero.

    Parameters
    ----------
    values : iterable of (PrimExpr, str, bool)
        What `body` computes, where it stands, for the message, and whether it is so many bytes of memory. Parts that a
        condition leaves out are not checked.

    Returns
    -------
    Stmt
        `body` behind the checks, each an ``InvalidArgument`` or ``OutOfMemory`` that names the expression.
    """
    stack: list[tuple[PrimExpr, PrimExpr | None, str, bool]] = [(v, None, at, kind) for v, at, kind in values]
    done: set[tuple[PrimExpr, PrimExpr | None]] = set()
    while stack:
        e, when, place, is_memory = stack.pop()
        if (e, when) in done:
            continue
        done.add((e, when))
        rule = _COMPUTABLE.get(type(e))
        if rule is not None and isinstance(e, ir.BinaryOp) and e.dtype == "int64":
            holds = rule(e.a, e.b) if when is None else logical_or(logical_not(when), rule(e.a, e.b))
            text = f"cannot allocate {e} bytes" if is_memory else f"{e} cannot be computed"
            text = f"{place}: {text}".replace("%", "%%")
            text += "\n  expected a number of 64 bits, and no division by zero, found the operands %lld and %lld"
            body = AssertStmt(holds, message(text, e.a, e.b), body, "OutOfMemory" if is_memory else "InvalidArgument")
        for c, on in _operands(e):
            stack.append((c, when if on is None else on if when is None else logical_and(when, on), place, is_memory))
    return body
