"""Loops as recursive functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import ir
from weft.relay.expr import Function, If, Let, Tuple, Var


def while_loop(
    cond: Callable[..., ir.Expr], loop_vars: Sequence[ir.Expr], loop_bodies: Callable[..., Sequence[ir.Expr]]
) -> Let:
    """Make a function that repeats a body while a condition holds.

    Parameters
    ----------
    cond : callable
        Takes the loop's variables and returns a scalar bool.
    loop_vars : sequence of Expr
        Variables (or other expressions) whose types, where they have one, are those of the loop's variables.
    loop_bodies : callable
        Takes the loop's variables and returns their next values.

    Returns
    -------
    Let
        The function. It takes the first values of the variables and returns the last ones, as a tuple.
    """
    loop = Var("while_loop")
    own = [Var(v.name_hint if isinstance(v, Var) else f"arg{i}", v.ty) for i, v in enumerate(loop_vars)]
    body = If(cond(*own), loop(*loop_bodies(*own)), Tuple(tuple(own)))
    return Let(loop, Function(tuple(own), body), loop)
