"""``relay.op.op``: operators by name, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Op, register_op_attr
from weft.relay.op import registry
from weft.relay.op.pattern import OpPattern, register_pattern

__all__ = [
    "OpPattern", "get", "register_alter_op_layout", "register_convert_op_layout", "register_gradient",
    "register_infer_correct_layout", "register_legalize", "register_pattern",
]  # fmt: skip

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


def register_alter_op_layout(op_name: str, alter_layout: Registration | None = None, level: int = 10) -> Any:
    """Say what ``transform.AlterOpLayout`` makes of an operator's calls; without `alter_layout`, a decorator.

    Parameters
    ----------
    alter_layout : callable
        ``alter_layout(attrs, args, tinfos, out_type)`` returns a call in another layout, or None to keep the call.
    level : int
        A registration replaces those of lower levels.
    """
    return register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)


def register_convert_op_layout(op_name: str, convert_layout: Registration | None = None, level: int = 10) -> Any:
    """Say what ``transform.ConvertLayout`` makes of an operator's calls; without `convert_layout`, a decorator.

    Parameters
    ----------
    convert_layout : callable
        ``convert_layout(attrs, args, tinfos, desired_layouts)`` returns a call in those layouts.
    level : int
        A registration replaces those of lower levels.
    """
    return register_op_attr(op_name, "FTVMConvertOpLayout", convert_layout, level)


def register_infer_correct_layout(op_name: str, infer_layout: Registration | None = None, level: int = 10) -> Any:
    """Say which layouts an operator's tensors have; without `infer_layout`, a decorator.

    Parameters
    ----------
    infer_layout : callable
        ``infer_layout(attrs, new_in_layouts, old_in_layouts, old_in_types)`` returns an
        ``InferCorrectLayoutOutput``; the first list is None where the call stands as it was written.
    level : int
        A registration replaces those of lower levels.
    """
    return register_op_attr(op_name, "FInferCorrectLayout", infer_layout, level)
