"""From legalized Relax back to Relay: calls of kernels become bindings of the lowered form (``relay.op.vm``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import InternalError, UnsupportedOperator
from weft.ir import Attrs, Dispatch, IntImm, Op, TensorType, as_int
from weft.relay.expr import Call, Constant, Tuple, TupleGetItem, Var
from weft.relay.types import Any as AnyDim
from weft.relay.types import FuncType, TupleType, unit_type
from weft.relay.types import TensorType as RelayTensorType

Bindings = list[tuple[Var, Any]]


def relay_type_of(ty: ir.Type | None) -> Any:
    """Turn Relax's type of tensors, tuples and functions into Relay's: dimensions that are no numbers are unknown."""
    if isinstance(ty, ir.TupleType):
        return TupleType(tuple(relay_type_of(f) for f in ty.fields))
    if isinstance(ty, ir.FuncType) and ty.params is not None:
        return FuncType(tuple(map(relay_type_of, ty.params)), relay_type_of(ty.ret))
    if not isinstance(ty, TensorType) or ty.ndim < 0:
        raise UnsupportedOperator(
            "a value has no type in Relay",
            expected="tensors of known rank, tuples, functions",
            found=str(ty),
            help="import the model to Relax (relax.frontend)",
        )
    dims = (None,) * ty.ndim if ty.shape is None else ty.shape
    return RelayTensorType(tuple(d if isinstance(d, IntImm) else AnyDim() for d in dims), ty.dtype)


def from_relax(
    func: ir.Function,
    args: list[Any],
    elements: list[Any],
    derived: list[tuple[ir.Var, ir.PrimExpr]],
    kernel: Callable[[ir.GlobalVar], Any],
) -> tuple[Bindings, list[Any]]:
    """Make the bindings that compute what a legalized function does.

    Parameters
    ----------
    func : Function
        One block of ``call_tir``, ``reshape``, tuples and projections; its result is a tuple. Behind the parameters
        that are tensors may stand shapes, whose dimensions are the elements of tensors.
    args : list of Expr
        Relay's expressions for the tensor parameters.
    elements : list of Expr
        Relay's tensors of dimensions, for the parameters that are shapes.
    derived : list of (Var, PrimExpr)
        Dimensions that are computed from others. If there are any, the last parameter is the shape of them.
    kernel : callable
        Gives the name of a kernel in the Relay module.

    Returns
    -------
    (bindings, results)
        The results are the fields of the function's tuple as atoms: variables of the bindings, `args`, constants.
    """
    made = LoweredBindings(kernel)
    seq: Any = func.body
    bindings = [b for block in seq.blocks for b in block.bindings]
    checks = [_check(b) for b in bindings if _is_check(b)]
    made.bind_dims(func.params[: len(func.params) - bool(derived)], args, elements, derived, checks)
    for b in bindings:
        if not _is_check(b):
            made.env[b.var] = _VALUE(b.value, made, b.var)
    return made.bindings, [made.atom(f) for f in (seq.body.fields if isinstance(seq.body, ir.Tuple) else (seq.body,))]


def _is_check(binding: ir.Node) -> bool:
    return binding.span is not None and binding.span.check is not None


def _check(binding: Any) -> tuple[Any, Any, str, str]:
    """What a relation compares, the error's class, and the message's beginning."""
    (found,), (expected,), (kind, what) = binding.value.values, binding.ty.values, binding.span.check
    return found, expected, kind, what


class LoweredBindings:
    """The bindings so far, and what the function's variables are in them."""

    def __init__(self, kernel: Callable[[ir.GlobalVar], Any]) -> None:
        self.kernel = kernel
        self.env: dict[ir.Expr, Any] = {}
        self.constants: dict[ir.Constant, Constant] = {}
        self.bindings: Bindings = []

    def bind_dims(self, params: Any, args: list[Any], elements: list[Any], derived: Any, checks: Any) -> None:
        """Say what the parameters are, and their dimensions, and what has to hold between these."""
        tensors = list(zip(params, [*args, *elements], strict=True))
        for p, a in tensors:
            self.env[p] = a
        shaped = [(p.ty.shape, a) for p, a in tensors[: len(args)] if not _is_constant(p.ty.shape)]
        values = [(p.ty.values, a) for p, a in tensors[len(args) :]]
        if shaped or values:
            attrs = Attrs.of(
                shapes=tuple(s for s, _ in shaped),
                elements=tuple(v for v, _ in values),
                derived=tuple(derived),
                checks=tuple(checks),
            )
            inputs = _tuple([a for _, a in shaped]), _tuple([a for _, a in values])
            self.bindings.append((Var("_", unit_type()), Call(Op.get("vm.bind_dims"), inputs, attrs, ty=unit_type())))

    def bind(self, hint: str, call: Any) -> Var:
        """Append a binding."""
        var = Var(hint, call.ty, span=call.span)
        self.bindings.append((var, call))
        return var

    def atom(self, expr: ir.Expr) -> Any:
        """Return Relay's expression for an atom."""
        if isinstance(expr, ir.Constant):
            known = self.constants.get(expr)
            if known is None:
                known = self.constants[expr] = Constant(expr.data, ty=relay_type_of(expr.ty))
            return known
        if isinstance(expr, ir.Tuple):
            return _tuple([self.atom(f) for f in expr.fields])
        if expr not in self.env:
            raise InternalError(f"a legalized function uses `{expr}`, which has no form in Relay", where=expr.span)
        return self.env[expr]


def _tuple(fields: list[Any]) -> Tuple:
    return Tuple(tuple(fields), ty=TupleType(tuple(f.ty for f in fields)))


def _is_constant(shape: Any) -> bool:
    return all(as_int(d) is not None for d in shape)


_VALUE = Dispatch("value of legalized Relax", (ir.Expr,), default=lambda value, made, var: made.atom(value))


@_VALUE.on(ir.TupleGetItem)
def _get_item(value: TupleGetItem, made: LoweredBindings, var: Any) -> Any:
    whole = made.atom(value.tuple_value)
    if isinstance(whole, Tuple):
        return whole.fields[value.index]
    return made.bind(var.name_hint, TupleGetItem(whole, value.index, ty=whole.ty.fields[value.index]))


@_VALUE.on(ir.Call)
def _call(value: Any, made: LoweredBindings, var: Any) -> Any:
    name = value.op.name if isinstance(value.op, Op) else ""
    shapes = _shapes(value.ty)
    constant = all(map(_is_constant, shapes))
    attrs: dict[str, Any] = {"ret_type": relay_type_of(value.ty), "shapes": None if constant else shapes}
    if name == "relax.call_tir":
        inputs = [made.atom(f) for f in value.args[1].fields]
        attrs["scalars"] = value.args[2].values if len(value.args) > 2 else ()
        args: tuple[Any, ...] = (made.kernel(value.args[0]), _tuple(inputs))
        op = "vm.call_kernel"
    elif name == "relax.reshape":
        op, args = "vm.view", (made.atom(value.args[0]),)
    else:
        raise InternalError(f"a region has a call of `{value.op}` after legalization", where=value.span)
    call = Call(Op.get(op), args, Attrs.of(attrs), span=value.span, ty=attrs["ret_type"])
    return made.bind(var.name_hint, call)


def _shapes(ty: ir.Type | None) -> tuple[Any, ...]:
    fields: Any = ty.fields if isinstance(ty, ir.TupleType) else (ty,)
    return tuple(f.shape for f in fields)
