"""Relax's own expressions: bindings, sequences, dataflow variables. The rest is shared with Relay in ``weft.ir``.

A function body in normal form is a :class:`SeqExpr`: blocks of bindings, each of one operation on atoms (variables,
constants, shapes, ...), then an atom as result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from msgspec.structs import force_setattr

from weft import error, te
from weft.ir import (
    BaseFunc,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExprVar,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    Node,
    OtherNames,
    PrimValue,
    ShapeExpr,
    Span,
    TensorType,
    Tuple,
    TupleGetItem,
    Type,
    TypedExpr,
    constant,
    prim_value,
    shape_expr,
    substitute,
)
from weft.ir import ExprStringImm as StringImm
from weft.spelling import also_called

__all__ = [
    "BaseFunc",
    "Binding",
    "BindingBlock",
    "Call",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "Expr",
    "ExternFunc",
    "Function",
    "GlobalVar",
    "If",
    "MatchCast",
    "PrimValue",
    "SeqExpr",
    "ShapeExpr",
    "Span",
    "StringImm",
    "Tuple",
    "TupleGetItem",
    "Type",
    "Var",
    "VarBinding",
    "const",
    "extern",
    "make_shape",
    "prim_value",
    "te_tensor",
]

Var = ExprVar


class DataflowVar(ExprVar):
    """A variable that is visible only inside its dataflow block."""


class Binding(Node):
    """Binds a variable. Every subclass has a ``value``."""

    if TYPE_CHECKING:

        def __getattr__(self, name: Literal["value"]) -> Any: ...

    var: ExprVar

    def __post_init__(self) -> None:
        if not isinstance(cast(Any, self.var), ExprVar):
            raise error.InvalidArgument(
                "a binding is of a variable of Relax",
                expected="relax.Var",
                found=str(self.var),
                help="name symbolic variables in the type of a relax.MatchCast",
            )


class VarBinding(Binding):
    """``var = value``."""

    value: Expr


class MatchCast(Binding, metaclass=OtherNames):
    """``var = match_cast(value, ty)``.

    Checks at run time that `value` has type `ty`, binding its new symbolic variables.
    """

    __other_names__ = {"struct_info": "ty"}

    value: Expr
    ty: Type


class BindingBlock(Node):
    """Bindings in order, which may have effects."""

    bindings: tuple[Binding, ...]


class DataflowBlock(BindingBlock):
    """Bindings without effects or control flow."""


class SeqExpr(TypedExpr):
    """Blocks, then the result."""

    blocks: tuple[BindingBlock, ...]
    body: Any


_NARROW = {"int64": "int32", "float64": "float32"}


def const(value: object, dtype: str | None = None) -> Constant:
    """Make a tensor constant by TVM's rule.

    Parameters
    ----------
    value : bool, int, float, list, numpy.ndarray or Tensor
    dtype : str, optional
        By default numbers, lists and arrays of 64 bits become int32 and float32, unless an integer needs more.
    """
    if dtype is not None:
        return constant(value, str(getattr(dtype, "dtype", dtype)))
    if isinstance(value, (bool, int, float, list, tuple, np.ndarray, np.generic)):
        value = np.asanyarray(value)  # a masked one is refused as such
        narrow = _NARROW.get(str(value.dtype))
        is_wide = narrow == "int32" and bool((value != value.astype("int32")).any())
        if narrow is not None and not is_wide:
            value = value.astype(narrow)
    return constant(value)


def _update_type(expr: Expr, ty: Type | None) -> None:
    """Give an expression that was just made, and that nobody else has, its type."""
    force_setattr(expr, "ty", ty)


_update_struct_info = _update_type


def make_shape(shape: Sequence[Any]) -> ShapeExpr:
    """Make a shape value of a list or tuple.

    Raises
    ------
    InvalidArgument
        When `shape` is neither.
    """
    if not isinstance(shape, (list, tuple)):
        raise error.InvalidArgument("a shape is a list or tuple of sizes", found=repr(shape))
    return shape_expr(shape)


@also_called(struct_info="ty")
def extern(name: str, ty: Type | None = None, span: Span | None = None) -> ExternFunc:
    """Refer to a packed function by its global name."""
    return ExternFunc(name, span=span, ty=ty)


def te_tensor(value: Expr, tir_var_map: Mapping[Any, Any], name: str = "rxplaceholder") -> te.Tensor:
    """Make a te placeholder for a tensor, the symbolic variables of its shape replaced by those that a map gives."""
    ty = value.ty
    if not isinstance(ty, TensorType) or ty.shape is None:
        raise error.InvalidArgument("te_tensor needs a tensor whose shape is known", found=str(ty))
    return te.placeholder(tuple(substitute(d, dict(tir_var_map)) for d in ty.shape), ty.dtype, name=name)
