"""Relay's expressions: those of ``weft.ir`` with operators, and let, references and functions with type parameters.

``ty`` (or ``checked_type``) is what type inference found. A variable's ``ty`` is also its annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, dataclass_transform

import numpy as np
from msgspec.structs import force_setattr

from weft import error, ir, runtime
from weft.ir import NO_ATTRS, Attrs, Op, Type
from weft.ir.structural import BIND
from weft.operators import operator, operators
from weft.relay.types import FuncType, IncompleteType, TensorType, TypeVar

Expr = RelayExpr = ir.Expr

_DTYPES = {"float64": "float32", "int64": "int32"}  # of Python's numbers and of NumPy's arrays made from them


def binary(op: str, lhs: Expr, rhs: Expr) -> Call:
    """Call an operator of two tensors; a number becomes a constant of the other operand's type."""
    like = next((e.ty.dtype for e in (lhs, rhs) if isinstance(getattr(e, "ty", None), ir.TensorType)), None)
    return Call(Op.get(op), (as_expr(lhs, like), as_expr(rhs, like)))


class Operators:
    """Python's operators on expressions, as calls of Relay's operators; calling an expression makes a call."""

    __slots__ = ()
    __uncompared__ = ("ty",)

    __add__, __radd__ = operators(binary, "add")
    __sub__, __rsub__ = operators(binary, "subtract")
    __mul__, __rmul__ = operators(binary, "multiply")
    __truediv__, __rtruediv__ = operators(binary, "divide")
    __floordiv__ = operator(binary, "floor_divide")
    __mod__ = operator(binary, "mod")
    __lt__ = operator(binary, "less")
    __gt__ = operator(binary, "greater")
    __le__ = operator(binary, "less_equal")
    __ge__ = operator(binary, "greater_equal")

    def __neg__(self) -> Call:
        return Call(Op.get("negative"), (as_expr(self),))

    def __call__(self, *args: Any) -> Call:
        """Call this expression, whose value is a function."""
        return Call(as_expr(self), tuple(map(as_expr, args)))

    def in_function(self) -> Function:
        """Return a function of the expression's free variables, in the order of their use."""
        nodes = list(ir.walk(self))
        bound = {v for n in nodes for name, _ in getattr(type(n), "__binders__", ()) for v in _each(n, name)}
        return Function(tuple(n for n in nodes if isinstance(n, Var) and n not in bound), self)  # type: ignore[arg-type]

    def astype(self, dtype: str) -> Call:
        """Convert the elements to another data type."""
        return Call(Op.get("cast"), (as_expr(self),), Attrs.of(dtype=dtype))


def _each(node: ir.Node, field: str) -> tuple[Any, ...]:
    value = getattr(node, field)
    return value if type(value) is tuple else (value,)


@dataclass_transform(frozen_default=True, eq_default=False)
class Var(Operators, ir.ExprVar):
    """A variable; identity is what distinguishes it, the name is a hint.

    Parameters
    ----------
    name_hint : str
        The name.
    ty : Type, optional
        Its type, where it is annotated; also ``type_annotation``.
    """

    __uncompared__ = ()
    __other_names__ = {"type_annotation": "ty"}

    @property
    def vid(self) -> Var:
        """What distinguishes it from other variables of the name: itself."""
        return self


class GlobalVar(Operators, ir.GlobalVar):
    """A reference to a function of the module, by name."""


class Constant(Operators, ir.Constant):
    """A tensor known at compile time. Make it with :func:`const`."""


class Tuple(Operators, ir.Tuple):
    """A tuple of expressions."""

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


class TupleGetItem(Operators, ir.TupleGetItem):
    """Element `index` of a tuple."""


class Call(Operators, ir.Call):
    """A call of an operator, a constructor, a function of the module or a function value."""

    __uncompared__ = ("ty", "ty_args")  # inference finds both

    def __post_init__(self) -> None:  # a call of nothing is refused where it is checked, not here
        if type(self.args) is not tuple:
            force_setattr(self, "args", tuple(self.args))
        if type(self.attrs) is not Attrs:
            force_setattr(self, "attrs", Attrs.of(self.attrs))
        if type(self.ty_args) is not tuple:
            force_setattr(self, "ty_args", tuple(self.ty_args or ()))

    @property
    def type_args(self) -> tuple[Type, ...]:
        """What the type parameters of the callee stand for; of an operator, the types of the arguments."""
        if isinstance(self.op, Op) and not self.ty_args:
            return tuple(a.ty for a in self.args)
        return self.ty_args


class If(Operators, ir.If):
    """A choice between two expressions by a scalar bool."""


class Let(Operators, ir.TypedExpr):
    """``let var = value; body``; a function may refer to itself by its variable."""

    var: Var
    value: ir.Expr
    body: ir.Expr

    __binders__ = (("var", BIND),)


class RefCreate(Operators, ir.TypedExpr):
    """A new cell that holds a value."""

    value: ir.Expr


class RefRead(Operators, ir.TypedExpr):
    """What a cell holds."""

    ref: ir.Expr


class RefWrite(Operators, ir.TypedExpr):
    """Replace what a cell holds; the result is the empty tuple."""

    ref: ir.Expr
    value: ir.Expr


class Function(Operators, ir.BaseFunc):
    """A function, which is a value. Its ``type_params`` stand for any types."""

    params: tuple[Var, ...]
    body: ir.Expr
    ret_type: Type | None = None
    type_params: tuple[TypeVar, ...] = ()
    attrs: Attrs = NO_ATTRS

    __binders__ = (("type_params", BIND), ("params", BIND))

    def __post_init__(self) -> None:
        for f in ("params", "type_params"):
            if type(getattr(self, f)) is not tuple:
                force_setattr(self, f, tuple(getattr(self, f) or ()))
        if type(self.attrs) is not Attrs:
            force_setattr(self, "attrs", Attrs.of(self.attrs))
        if any(_is_plain(v) for _, v in self.attrs.items):
            plain = {k: v.value if _is_plain(v) else v for k, v in self.attrs.items}
            force_setattr(self, "attrs", Attrs.of(plain))

    @staticmethod
    def global_var_class() -> type[GlobalVar]:
        """Return Relay's own class."""
        return GlobalVar

    def func_type_annotation(self) -> FuncType:
        """Return the type that the annotations give; a missing one is an IncompleteType."""
        return FuncType(
            tuple(p.ty or IncompleteType() for p in self.params), self.ret_type or IncompleteType(), self.type_params
        )


def is_external(func: ir.Node, compiler: str = "") -> bool:
    """Whether a function belongs to an external compiler, to `compiler` if that is given, and has its name."""
    if type(func) is not Function or not func.attrs or "global_symbol" not in func.attrs:
        return False
    found = str(func.attrs.get("Compiler") or "")
    return found == compiler if compiler else bool(found)


def _is_plain(value: Any) -> bool:
    """Whether an attribute is a number written as a node: ``with_attr("Primitive", IntImm("int32", 1))``."""
    return type(value) is ir.IntImm and value.dtype == "int32"


class TupleWrapper:
    """A call whose result is a tuple of known length: ``a, b = relay.split(x, 2)``, ``wrapper[0]``, ``len(wrapper)``.

    Parameters
    ----------
    tuple_value : Expr
        The tuple.
    size : int
        Its length.
    """

    def __init__(self, tuple_value: ir.Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> ir.Expr:
        """Return the expression."""
        return self.tuple_value

    def astext(self) -> str:
        """Return the expression as text."""
        return str(self.tuple_value)

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"item {index} of a tuple of {self.size}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size


def as_expr(value: object, dtype: str | None = None) -> ir.Expr:
    """Return an expression itself; make a constant of a number or array, a tuple of a tuple or list."""
    if isinstance(value, (ir.Expr, Op)):
        return value  # type: ignore[return-value]
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(as_expr(v) for v in value))
    return const(value, dtype)


def const(value: object, dtype: str | None = None) -> Constant:
    """Make a constant.

    Parameters
    ----------
    value : bool, int, float, list, numpy.ndarray or Tensor
        Its data. Numbers, NumPy's too, become int32 and float32 rather than 64 bits wide unless `dtype` says.
    dtype : str, optional
        The data type.
    """
    if isinstance(value, runtime.Tensor):
        made = ir.constant(value)
    elif isinstance(value, np.ndarray):
        made = ir.constant(value, dtype)
    elif isinstance(value, (bool, int, float, list, tuple, np.generic)):
        found = str(np.array(value).dtype)
        made = ir.constant(value, dtype or _DTYPES.get(found, found))
    else:
        raise error.InvalidArgument("a constant needs a number or an array", found=type(value).__name__)
    ty: Any = made.ty
    return Constant(made.data, ty=TensorType(ty.shape, ty.dtype))


def var(
    name_hint: str,
    type_annotation: ir.Type | str | None = None,
    shape: Sequence[ir.PrimExpr | int] | int | None = None,
    dtype: str = "float32",
    span: ir.Span | None = None,
) -> Var:
    """Make a variable.

    Parameters
    ----------
    name_hint : str
        Its name.
    type_annotation : Type or str, optional
        Its type; a str is the data type of a scalar.
    shape : sequence of int or expression, optional
        The shape of a tensor, instead of `type_annotation`.
    dtype : str
        The data type that goes with `shape`.
    """
    if type_annotation is not None and shape is not None:
        raise error.InvalidArgument("a variable is annotated by type_annotation or shape, not both", where=span)
    if shape is not None:
        dtype = "bool" if dtype == "uint1" else dtype
        dims: Any = shape if isinstance(shape, Sequence) else [shape]
        type_annotation = TensorType(tuple(dims), dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    return Var(name_hint, type_annotation, span=span)


def let_chain(expr: ir.Expr) -> tuple[list[tuple[Var, ir.Expr]], ir.Expr]:
    """Take nested lets apart: the bindings in order, and the body under the last."""
    bindings: list[tuple[Var, ir.Expr]] = []
    while isinstance(expr, Let):
        bindings.append((expr.var, expr.value))
        expr = expr.body
    return bindings, expr


def lets(bindings: list[tuple[Var, ir.Expr]], body: ir.Expr) -> ir.Expr:
    """Nest bindings around a body."""
    for v, value in reversed(bindings):
        body = Let(v, value, body, ty=body.ty)
    return body
