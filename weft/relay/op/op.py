"""``relay.op.op``: operators by name, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Op, register_op_attr
from weft.relay.op import registry
from weft.relay.op.pattern import OpPattern, register_pattern

__all__ = [
    "OpPattern", "get", "register_alter_op_layout", "register_convert_op_layout",
    "register_fake_quantization_to_integer", "register_gradient", "register_infer_correct_layout",
    "register_legalize", "register_pattern",
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


# Without a function they are decorators; a registration replaces those of lower levels.


def register_gradient(op_name: str, fgradient: Registration | None = None, level: int = 10) -> Any:
    """``fgradient(call, adjoint)`` returns the adjoint of each argument."""
    return register_op_attr(op_name, "FPrimalGradient", fgradient, level)


def register_legalize(op_name: str, legal_op: Registration | None = None, level: int = 10) -> Any:
    """``legal_op(attrs, args, types)`` returns what ``Legalize`` puts in a call's place, or None."""
    return register_op_attr(op_name, "FTVMLegalize", legal_op, level)


def register_alter_op_layout(op_name: str, alter_layout: Registration | None = None, level: int = 10) -> Any:
    """``alter_layout(attrs, args, tinfos, out_type)`` returns a call in another layout, or None."""
    return register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)


def register_convert_op_layout(op_name: str, convert_layout: Registration | None = None, level: int = 10) -> Any:
    """``convert_layout(attrs, args, tinfos, layouts)`` returns a call in those layouts."""
    return register_op_attr(op_name, "FTVMConvertOpLayout", convert_layout, level)


def register_infer_correct_layout(op_name: str, infer_layout: Registration | None = None, level: int = 10) -> Any:
    """``infer_layout(attrs, new, old, types)`` returns an ``InferCorrectLayoutOutput``; `new` may be None."""
    return register_op_attr(op_name, "FInferCorrectLayout", infer_layout, level)


def register_fake_quantization_to_integer(op_name: str, func: Registration | None = None, level: int = 10) -> Any:
    """``func(call, types)`` returns an integer expression and its ``TensorAffineType``."""
    return register_op_attr(op_name, "FTVMFakeQuantizationToInteger", func, level)
