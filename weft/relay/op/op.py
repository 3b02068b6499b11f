"""``relay.op.op``: operators by name, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Op, register_op_attr
from weft.relay.op import registry
from weft.relay.op.pattern import OpPattern, register_pattern

__all__ = ["OpPattern", "get", "register_gradient", "register_legalize", "register_pattern"]

Registration = Callable[..., Any]


def get(name: str) -> Op:
    """Return the node of an operator, which calls refer to: ``relay.op.get("nn.dense")``.

    Raises
    ------
    UnsupportedOperator
        When there is no such operator; the message lists near names.
    """
    return registry.get(name).op


def register_gradient(op_name: str, fgradient: Registration | None = None, level: int = 10) -> Any:
    """Say what flows back through an operator; without `fgradient`, a decorator.

    Parameters
    ----------
    fgradient : callable
        ``fgradient(call, adjoint)`` returns the adjoint of each argument.
    level : int
        A registration replaces those of lower levels.
    """
    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


def register_legalize(op_name: str, legal_op: Registration | None = None, level: int = 10) -> Any:
    """Say what ``transform.Legalize`` puts in place of an operator's calls; without `legal_op`, a decorator.

    Parameters
    ----------
    legal_op : callable
        ``legal_op(attrs, args, types)`` returns an expression, or None to keep the call.
    level : int
        A registration replaces those of lower levels.
    """
    return register_op_attr(op_name, "FTVMLegalize", legal_op, level)
