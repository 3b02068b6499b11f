"""Relay's operators: names and attributes as Relay has them, each defined by expressions of the shared registry.

A Relay operator is a macro: ``nn.dense(data, weight)`` expands to ``matmul(data, permute_dims(weight))``. Its type,
its meaning (the references of what it expands to) and its kernels all come from the expansion.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import force_setattr

from weft import ir
from weft.error import InvalidArgument, TypeInferenceError, UnsupportedOperator, WeftError
from weft.op import Input, get_op_def
from weft.op import list_ops as list_shared_ops
from weft.op.registry import make_call
from weft.relay.expr import Call, as_expr
from weft.relay.types import Any as AnyDim
from weft.relay.types import TensorType, TupleType

REQUIRED: Any = ...  # the default of an attribute that every call must give


@dataclass(frozen=True)
class RelayOp:
    """One operator.

    ``expand(*args, **attrs)`` takes typed expressions and returns a typed expression of shared operators over them.
    Inputs of kind ``values`` are tensors whose elements become dimensions: `expand` takes a tuple of scalar expressions
    for them (for a rank of 0, too). Those of kind ``constant`` decide what a call expands to, which therefore has a
    form only where they are known. ``infer(types, attrs)`` gives the type where there is no expansion; such operators
    belong to the compiler (``memory.alloc_storage``). ``outputs`` is the length of the tuple that a call returns, or a
    function of the call that gives it; 0 where a call returns a tensor. ``completes(data, **attrs)`` gives, from the
    type of the first argument, the types that the others have where nothing else says (None where it cannot tell).
    """

    name: str
    inputs: tuple[Input, ...]
    attrs: dict[str, Any]
    expand: Callable[..., ir.Expr] | None
    infer: Callable[[tuple[ir.Type, ...], ir.Attrs], ir.Type] | None = None
    pure: bool = True
    outputs: int | Callable[[Call], int] = 0
    completes: Callable[..., Sequence[ir.Type | None]] | None = None
    doc: str = ""

    @property
    def op(self) -> ir.Op:
        """The operator's node, which calls refer to."""
        return ir.Op.get(self.name)

    @property
    def variadic(self) -> bool:
        """Whether it takes any number of arguments."""
        return bool(self.inputs) and self.inputs[-1].kind == "any"


_OPS: dict[str, RelayOp] = {}


def declare(
    name: str,
    inputs: str,
    attrs: dict[str, Any] | None = None,
    *,
    expand: Callable[..., ir.Expr] | str | None = None,
    infer: Callable[[tuple[ir.Type, ...], ir.Attrs], ir.Type] | None = None,
    pure: bool = True,
    outputs: int | Callable[[Call], int] = 0,
    completes: Callable[..., Sequence[ir.Type | None]] | None = None,
    doc: str = "",
) -> RelayOp:
    """Declare an operator.

    Parameters
    ----------
    name : str
        Relay's name, such as ``"nn.dense"``.
    inputs : str
        Names separated by spaces: ``"data"``, ``"bias?"`` (may be left out), ``"tensors:tensors"`` (a tuple),
        ``"newshape:values"`` (its elements become dimensions), ``"args:any"`` (any number of any type).
    attrs : dict
        Attribute names and defaults, in the order in which the constructor takes them; ``REQUIRED`` has no default.
    expand : callable or str
        The expansion; a str is the shared operator of the same inputs and attributes, where `attrs` are those whose
        defaults differ.
    """
    if name in _OPS:
        raise InvalidArgument(f"operator '{name}' is declared twice")
    if isinstance(expand, str):
        attrs, expand = {**get_op_def(expand).defaults, **(attrs or {})}, functools.partial(shared, expand)
    made = _OPS[name] = RelayOp(
        name,
        tuple(Input.parse(i) for i in inputs.split()),
        dict(attrs or {}),
        expand,
        infer,
        pure,
        outputs,
        completes,
        doc,
    )
    ir.register_op_attr(name, "num_inputs", -1 if made.variadic else len(made.inputs))
    return made


def get(op: ir.Op | str) -> RelayOp:
    """Return the declaration of an operator.

    Raises
    ------
    UnsupportedOperator
        When there is none; the message lists near names.
    """
    name = op if isinstance(op, str) else op.name
    found = _find(name)
    if found is None:
        last = name.rsplit(".", 1)[-1]
        near = sorted(n for n in _OPS if n.rsplit(".", 1)[-1][:4] == last[:4])
        raise UnsupportedOperator(
            f"Relay has no operator '{name}'", help=f"near names: {', '.join(near)}" if near else None
        )
    return found


def has(name: str) -> bool:
    """Whether there is an operator of that name."""
    return _find(name) is not None


def _find(name: str) -> RelayOp | None:
    found = _OPS.get(name)
    return _shared_op(name) if found is None and name.startswith("relax.") else found


@functools.cache
def _shared_op(name: str) -> RelayOp | None:
    """A shared operator under its full name, which is an operator of Relay, too; shapes are tensors there."""
    if name.removeprefix("relax.") not in list_shared_ops():
        return None
    known = get_op_def(name)
    inputs = tuple(Input(i.name, _SHARED_KINDS.get(i.kind, i.kind), i.optional) for i in known.inputs)
    prims = {i for i, spec in enumerate(known.inputs) if spec.kind == "prim"}

    def expand_shared(*args: Any, **attrs: Any) -> ir.Expr:
        return shared(known.name, *(a[0] if i in prims else a for i, a in enumerate(args)), **attrs)

    return RelayOp(name, inputs, known.defaults, expand_shared, pure=known.pure, doc=known.doc)


_SHARED_KINDS = {"shape": "values", "prim": "values"}


def list_ops() -> list[str]:
    """List the names of all operators, sorted."""
    return sorted(_OPS)


def op_call(name: str, *args: Any, **attrs: Any) -> Call:
    """Call an operator; numbers and arrays become constants, lists become tuples, missing attributes their defaults."""
    op = get(name)
    unknown = [k for k in attrs if k not in op.attrs]
    if unknown:
        raise InvalidArgument(
            f"{name}: unknown attribute '{unknown[0]}'", expected=", ".join(op.attrs) or "no attributes"
        )
    missing = [k for k, default in op.attrs.items() if default is REQUIRED and k not in attrs]
    if missing:
        raise InvalidArgument(f"{name}: missing attribute '{missing[0]}'")
    computed = [k for k, v in attrs.items() if isinstance(v, ir.Expr) and not isinstance(v, (ir.Constant, ir.PrimExpr))]
    if computed:
        raise InvalidArgument(
            f"{name}: attribute '{computed[0]}' is no constant", found=type(attrs[computed[0]]).__name__
        )
    given = [a for a in args if a is not None]
    return Call(op.op, tuple(as_expr(a) for a in given), ir.Attrs.of({**op.attrs, **attrs}))


def shared(name: str, *args: Any, **attrs: Any) -> ir.Call:
    """Call a shared operator and infer its type; for use in expansions."""
    call: Any = make_call(name)(*args, **attrs)
    if call.ty is None:
        definition = get_op_def(name)
        force_setattr(call, "ty", definition.infer(*call.args, **dict(call.attrs.items)))
    return call


def expand(call: ir.Call, values: Callable[[ir.Expr], tuple[ir.PrimExpr, ...]] | None = None) -> ir.Expr:
    """Replace a call of a Relay operator by shared operators over the same arguments, which have types.

    Parameters
    ----------
    call : Call
        The call.
    values : callable, optional
        Gives the scalar expressions that the elements of an argument of kind ``values`` are; by default the numbers
        of a constant, else fresh variables.

    Raises
    ------
    TypeInferenceError
        When the number of arguments or an attribute is not the operator's.
    """
    op = get(call.op)  # type: ignore[arg-type]
    if op.expand is None:
        raise TypeInferenceError(f"'{op.name}' is an operator of the compiler and has no expansion", where=call.span)
    check_arity(op, call)
    args: list[Any] = list(call.args)
    try:
        for i, spec in enumerate(op.inputs[: len(args)]):
            if spec.kind == "values":
                args[i] = (values or known_values)(args[i])
        return op.expand(*args, **{**op.attrs, **dict(call.attrs.items)})
    except WeftError as e:
        if op.name not in e.what:
            e.what = f"{op.name}: {e.what}"
        e.where = e.where or call.span
        raise


def check_arity(op: RelayOp, call: ir.Call) -> None:
    """Raise unless a call has as many arguments, and only such attributes, as the operator takes."""
    least = sum(not i.optional for i in op.inputs)
    if not op.variadic and not least <= len(call.args) <= len(op.inputs):
        wanted = str(least) if least == len(op.inputs) else f"{least} to {len(op.inputs)}"
        raise TypeInferenceError(
            f"'{op.name}' takes {', '.join(i.name for i in op.inputs)}",
            expected=f"{wanted} arguments",
            found=f"{len(call.args)}",
            where=call.span,
        )
    unknown = [k for k in call.attrs.keys() if k not in op.attrs]
    if unknown:
        raise TypeInferenceError(
            f"'{op.name}' has no attribute '{unknown[0]}'", expected=", ".join(op.attrs) or "none", where=call.span
        )
    missing = [k for k, default in op.attrs.items() if default is REQUIRED and k not in call.attrs]
    if missing:
        raise TypeInferenceError(f"'{op.name}' needs the attribute '{missing[0]}'", where=call.span)


def known_values(arg: ir.Expr) -> tuple[ir.PrimExpr, ...]:
    """Return what the elements of an argument are as far as its text tells: numbers, else unknown dimensions."""
    ty = arg.ty
    dtype = "float64" if isinstance(ty, ir.TensorType) and ir.DataType(ty.dtype).is_float else "int64"
    if isinstance(arg, ir.Constant):
        number = float if dtype == "float64" else int
        return tuple(ir.const(number(v), dtype) for v in arg.data.numpy().reshape(-1))
    if not isinstance(ty, ir.TensorType) or ty.shape is None or ty.ndim > 1:
        raise TypeInferenceError(
            "an argument whose elements become dimensions is a vector", found=str(ty), where=arg.span
        )
    n = 1 if ty.ndim == 0 else ir.as_int(ty.shape[0])
    if n is None:
        raise TypeInferenceError(
            "a shape that is computed must have a known number of dimensions", found=str(ty), where=arg.span
        )
    return tuple(AnyDim(dtype=dtype) for _ in range(n))


def infer_call(call: ir.Call) -> ir.Type:
    """Return the type of a call of an operator whose arguments have types.

    Raises
    ------
    WeftError
        When the operator cannot take such arguments.
    """
    op = get(call.op)  # type: ignore[arg-type]
    if op.infer is not None:
        check_arity(op, call)
        return op.infer(tuple(a.ty for a in call.args), call.attrs)
    return relay_type(expand(call).ty)


def complete_arguments(call: ir.Call, types: Sequence[ir.Type | None]) -> list[ir.Type | None]:
    """Return the types that arguments of unknown type (None) must have, as far as the first one's type tells."""
    op = get(call.op)  # type: ignore[arg-type]
    first = types[0] if types else None
    if op.completes is None or not isinstance(first, TensorType):
        return [None] * len(types)
    try:
        found = op.completes(first, **{**op.attrs, **dict(call.attrs.items)})
    except (WeftError, IndexError):  # the data has too few dimensions, which inference says once all types are known
        return [None] * len(types)
    return [None, *(None if t is not None else f for t, f in zip(types[1:], found, strict=False))]


def relay_type(ty: Any) -> ir.Type:
    """Turn a type that shared operators infer into Relay's: what is computed from unknown dimensions is unknown."""
    if isinstance(ty, ir.TensorType):
        if ty.shape is None:
            raise TypeInferenceError("the rank of a tensor must be known", found=str(ty))
        return TensorType(tuple(_dimension(d) for d in ty.shape), ty.dtype)
    if isinstance(ty, ir.TupleType):
        return TupleType(tuple(relay_type(f) for f in ty.fields))
    return ty


def _dimension(d: ir.PrimExpr) -> ir.PrimExpr:
    if isinstance(d, (ir.IntImm, AnyDim)):
        return d
    return AnyDim() if ir.find(d, AnyDim) else d
