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


def _registrar(key: str, says: str) -> Callable[..., Any]:
    def register(op_name: str, func: Registration | None = None, level: int = 10) -> Any:
        return register_op_attr(op_name, key, func, level)

    register.__doc__ = f"""{says}

    Without `func`, a decorator. A registration replaces those of lower levels.
    """
    return register


register_gradient = _registrar("FPrimalGradient", "``func(call, adjoint)`` returns the adjoint of each argument.")
register_legalize = _registrar(
    "FTVMLegalize", "``func(attrs, args, types)`` returns what ``Legalize`` puts in a call's place, or None."
)
register_alter_op_layout = _registrar(
    "FTVMAlterOpLayout", "``func(attrs, args, tinfos, out_type)`` returns a call in another layout, or None."
)
register_convert_op_layout = _registrar(
    "FTVMConvertOpLayout", "``func(attrs, args, tinfos, desired_layouts)`` returns a call in those layouts."
)
register_infer_correct_layout = _registrar(
    "FInferCorrectLayout",
    "``func(attrs, new_layouts, old_layouts, old_types)`` returns an ``InferCorrectLayoutOutput``; the first list is "
    "None where the call stands as it was written.",
)
register_fake_quantization_to_integer = _registrar(
    "FTVMFakeQuantizationToInteger", "``func(call, types)`` returns an integer expression and its TensorAffineType."
)
