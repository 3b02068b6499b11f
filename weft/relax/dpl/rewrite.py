"""Rewriting functions by patterns: each value that matches is offered to a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Expr, Function, IRModule
from weft.relax.analysis import get_var2val
from weft.relax.dpl.match import extract_matches
from weft.relax.dpl.pattern import DFPattern
from weft.relax.rewriter import rewrite_bindings

__all__ = ["rewrite_call"]


def rewrite_call(
    pattern: DFPattern, rewriter: Callable[[Expr, dict[Any, Expr]], Expr], func: Function, mod: IRModule | None = None
) -> Function:
    """Rewrite each value that matches a pattern, from the first binding to the last.

    Parameters
    ----------
    rewriter : callable
        ``rewriter(expr, matches) -> Expr``: the value, and what each part of the pattern stands for; the value itself
        means no change.
    func : Function
        In normal form.
    mod : IRModule, optional
        Where the functions that new expressions call are found.

    Returns
    -------
    Function
        `func` itself when nothing changed. Bindings that lost their last use stay.
    """
    values: dict[Any, Expr] = dict(get_var2val(func))

    def rule(binding: Any, value: Expr, bb: Any) -> Expr | None:
        for b in reversed(bb.bindings()):  # what was emitted since the last call
            if values.get(b.var) is b.value:
                break
            values[b.var] = b.value
        matches = extract_matches(pattern, value, values)
        return None if matches is None else rewriter(value, matches)

    return rewrite_bindings(func, mod or IRModule(), rule)
