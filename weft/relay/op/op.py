"""``relay.op.op``: operators by name, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument, TypeInferenceError
from weft.ir import Attrs, Op, Type, register_op_attr
from weft.relay.expr import Var
from weft.relay.op import registry
from weft.relay.op.pattern import OpPattern, register_pattern
from weft.spelling import also_called

__all__ = [
    "OpPattern",
    "get",
    "register",
    "register_alter_op_layout",
    "register_convert_op_layout",
    "register_fake_quantization_to_integer",
    "register_gradient",
    "register_infer_correct_layout",
    "register_legalize",
    "register_pattern",
    "register_stateful",
]

Registration = Callable[..., Any]


@also_called(op_name="name")
def get(name: str) -> Op:
    """Return the node of an operator, which calls refer to: ``relay.op.get("nn.dense")``.

    Raises
    ------
    UnsupportedOperator
        When there is no such operator; the message lists near names.
    """
    return registry.get(name).op


def register(op_name: str, describe: str = "") -> None:
    """Add an operator; its node's methods (``add_type_rel``, ``set_num_inputs``) say more about it.

    It has types and passes move it; it runs where ``Legalize`` or a compiler outside replaces it.

    Raises
    ------
    InvalidArgument
        When there is one of that name.
    """

    def infer(types: tuple[Type, ...], attrs: Attrs) -> Type:
        return _related(Op.get(op_name), types, attrs)

    if registry.has(op_name):
        raise InvalidArgument(f"operator '{op_name}' is registered already")
    registry.declare(op_name, "args:any", infer=infer, doc=describe)


def _related(op: Op, types: tuple[Type, ...], attrs: Attrs) -> Type:
    """The type that a relation gives."""
    relation, n = op.get_attr("FTypeRelation"), op.num_inputs
    if relation is None:
        raise TypeInferenceError(f"'{op.name}' has no type relation", help="add_type_rel says its type")
    if n not in (-1, len(types)):
        raise TypeInferenceError(f"'{op.name}': number of arguments", expected=str(n), found=str(len(types)))
    name, func = relation
    if func is not None:
        try:
            made = func(list(types), attrs)
        except Exception as e:
            raise TypeInferenceError(f"'{op.name}': its type relation failed: {e}") from e
        if isinstance(made, Type):
            return made
        raise TypeInferenceError(f"'{op.name}': its type relation gives no type", found=type(made).__name__)
    if name == "Identity" and types:
        return types[0]
    if name == "Broadcast" and len(types) == 2:
        a, b = (Var(x, t) for x, t in zip("ab", types, strict=True))
        return registry.relay_type(registry.shared("add", a, b).ty)
    raise TypeInferenceError(f"'{op.name}': unknown type relation '{name}'", expected="Identity or Broadcast")


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


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> None:
    """Say whether calls have effects."""
    register_op_attr(op_name, "TOpIsStateful", stateful, level)
