"""Types of calls of operators, from the types of their arguments."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from weft import error, ir
from weft.relay.expr import Call, Constant, Tuple, Var
from weft.relay.infer.state import Inference
from weft.relay.infer.unify import FAILED
from weft.relay.op.registry import RelayOp, infer_call
from weft.relay.op.registry import get as get_op
from weft.relay.types import Any as AnyDim
from weft.relay.types import TensorType, TupleType

_INFERRED: WeakSet[Any] = WeakSet()


def remember(call: Call) -> None:
    """Note that the ``ty`` of a call of an operator follows from those of its arguments; nodes never change."""
    _INFERRED.add(call)


def is_inferred(call: Call, args: tuple[ir.Type, ...]) -> bool:
    """Whether the ``ty`` of a call was inferred before, from arguments of the same types."""
    return call.ty is not None and all(a.ty is t for a, t in zip(call.args, args, strict=True)) and call in _INFERRED


def infer_operator(call: Call, args: tuple[ir.Type, ...], s: Inference) -> ir.Type:
    """Infer the type of a call whose arguments have these types, or note what is wrong."""
    if any(a is FAILED for a in args):
        return FAILED
    if is_inferred(call, args):
        return call.ty  # type: ignore[return-value]
    name = call.op.name  # type: ignore[union-attr]
    try:
        op = get_op(call.op)  # type: ignore[arg-type]
        wrong = _not_tensors(op, args) if op.infer is None and len(args) <= len(op.inputs) else None
        if wrong is not None:
            input_name, wanted, found = wrong
            return s.fail(f"'{name}' cannot take its argument '{input_name}'", call, expected=wanted, found=found)
        typed = [_with_type(a, t) for a, t in zip(call.args, args, strict=True)]
        return infer_call(Call(call.op, tuple(typed), call.attrs, span=call.span))
    except error.WeftError as e:
        what = e.what if name in e.what else f"in a call of '{name}': {e.what}"
        takes = f"it is called with {', '.join(f'`{t}`' for t in args)}" if args else None
        return s.fail(what, call, expected=e.expected, found=e.found, help=e.help or takes)


def _not_tensors(op: RelayOp, args: tuple[ir.Type, ...]) -> tuple[str, str, ir.Type] | None:
    """Find an argument that is no tensor where the operator computes with tensors."""
    for spec, ty in zip(op.inputs, args, strict=False):
        if spec.kind == "any":
            return None
        if spec.kind == "tensors":
            if not isinstance(ty, TupleType) or not all(isinstance(f, ir.TensorType) for f in ty.fields):
                return spec.name, "a tuple of tensors", ty
        elif not isinstance(ty, ir.TensorType) and spec.kind in ("tensor", "values"):
            return spec.name, "a tensor", ty
    return None


def _with_type(arg: ir.Expr, ty: ir.Type) -> Any:
    """Return an argument with its type, each unknown dimension of its own; what is no constant is a variable."""
    own = _own_dimensions(ty)
    if isinstance(arg, Tuple) and isinstance(own, TupleType):  # whose fields may have no types yet, or old ones
        return Tuple(tuple([_with_type(f, t) for f, t in zip(arg.fields, own.fields, strict=True)]), ty=own)
    if arg.ty is ty and (isinstance(arg, Constant) or (own is ty and not isinstance(arg, Var))):
        return arg
    if isinstance(arg, Constant):
        return Constant(arg.data, ty=ty)
    return Var("_", own)


def _own_dimensions(ty: ir.Type) -> ir.Type:
    if isinstance(ty, TensorType):
        if not any(type(d) is AnyDim for d in ty.shape or ()):
            return ty
        return TensorType(tuple(AnyDim() if type(d) is AnyDim else d for d in ty.shape or ()), ty.dtype)
    if isinstance(ty, TupleType):
        fields = tuple(_own_dimensions(f) for f in ty.fields)
        return ty if all(a is b for a, b in zip(fields, ty.fields, strict=True)) else TupleType(fields)
    return ty
