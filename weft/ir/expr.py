"""Graph-level expressions that Relax and Relay share. Each carries its type in ``ty`` once that is inferred."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from msgspec.structs import force_setattr

from weft import error, runtime
from weft.ir.dtype import DataType, numpy_dtype
from weft.ir.int_range import beyond, wrap
from weft.ir.node import NO_ATTRS, Attrs, Node, OtherNames, own_name
from weft.ir.scalar import Op, PrimExpr, const
from weft.ir.types import PrimType, ShapeType, TupleType, Type, as_shape, tensor_type
from weft.spelling import also_called

__all__ = [
    "BaseFunc",
    "Call",
    "Constant",
    "DataTypeImm",
    "Expr",
    "ExprStringImm",
    "ExternFunc",
    "Function",
    "GlobalVar",
    "If",
    "PrimValue",
    "ShapeExpr",
    "Tuple",
    "TupleGetItem",
    "TypedExpr",
    "constant",
    "prim_value",
    "shape_expr",
]


class Expr(Node, abstract=True):
    """A graph-level expression. Every subclass has ``ty``: its type, None before inference."""

    if TYPE_CHECKING:  # a field of the subclasses, which decide what stands before it

        def __getattr__(self, name: Literal["ty"]) -> Any: ...

    @property
    def struct_info(self) -> Type | None:
        """The type, under the name that TVM used before types and structure information became one."""
        return self.ty  # type: ignore[attr-defined]

    @property
    def checked_type(self) -> Type | None:
        """The type, under Relay's name."""
        return self.ty  # type: ignore[attr-defined]


class TypedExpr(Expr, kw_only=True, abstract=True):
    """An expression whose type is a keyword argument of its constructor."""

    ty: Type | None = None


class BaseFunc(TypedExpr, abstract=True):
    """A function of an IRModule: Relax or Relay ``Function``, TIR ``PrimFunc``, ``ExternFunc``."""

    @also_called(attr_key_or_dict="key", attr_value="value")
    def with_attr(self, key: Any, value: Any = None) -> Any:
        """Return a copy with one attribute (or, from a dict, several) set."""
        from_dict = {own_name(k): v for k, v in (key if isinstance(key, dict) else {key: value}).items()}
        return self.replace(attrs=self.attrs.with_(**from_dict))  # type: ignore[attr-defined]

    @also_called(attr_map="attrs")
    def with_attrs(self, attrs: Mapping[str, Any]) -> Any:
        """Return a copy with several attributes set."""
        return self.with_attr(dict(attrs))

    @also_called(attr_key="key")
    def without_attr(self, key: str) -> Any:
        """Return a copy without an attribute."""
        return self.replace(attrs=self.attrs.without(own_name(key)))  # type: ignore[attr-defined]

    @property
    def ty_of_references(self) -> Type | None:
        """The type of variables that stand for the function; None where each call says what it gives."""
        return self.ty

    @staticmethod
    def global_var_class() -> type[GlobalVar]:
        """Return the class of the variables that modules make for such functions; a dialect may have its own."""
        return GlobalVar

    def replace(self, **changes: Any) -> Any:
        """Return the function with some fields changed; itself where it has just these."""
        if all(getattr(self, f) is v for f, v in changes.items()):
            return self
        fields = {f: getattr(self, f) for f in self.__struct_fields__}
        return type(self)(**{**fields, **changes})


class Var(Expr, metaclass=OtherNames):
    """A variable; identity is what distinguishes it, the name is a hint."""

    __other_names__ = {"name": "name_hint", "struct_info": "ty"}

    name_hint: str
    ty: Type | None = None

    @property
    def name(self) -> str:
        """The name, as TVM has called it since 0.26."""
        return self.name_hint


class GlobalVar(TypedExpr, metaclass=OtherNames):
    """A reference to a function of the module, by name."""

    __other_names__ = {"type_annot": "ty"}
    __further__ = ("ty",)

    name_hint: str

    @property
    def name(self) -> str:
        """The name, as TVM has called it since 0.26."""
        return self.name_hint


class Constant(TypedExpr, metaclass=OtherNames):
    """A tensor known at compile time; ``data`` is a ``weft.runtime.Tensor``."""

    __other_names__ = {"struct_info": "ty"}
    __further__ = ("ty",)

    data: Any

    def __post_init__(self) -> None:
        if not hasattr(self.data, "__dlpack__"):
            raise error.InvalidArgument("the data of a constant is a tensor", found=type(self.data).__name__)


class ShapeExpr(TypedExpr):
    """A shape value made of int64 scalar expressions, given as any sequence of ints and expressions."""

    values: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        if type(self.values) is not tuple or any(type(d) is int for d in cast(tuple[Any, ...], self.values)):
            force_setattr(self, "values", as_shape(self.values))
        if self.ty is None:
            force_setattr(self, "ty", ShapeType(self.values, len(self.values)))

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True


class PrimValue(TypedExpr):
    """A scalar expression as a graph-level value; a number becomes an immediate as :func:`prim_value` makes it."""

    value: PrimExpr

    def __post_init__(self) -> None:
        if not isinstance(cast(Any, self.value), PrimExpr):
            made = prim_value(self.value)
            force_setattr(self, "value", made.value)
            force_setattr(self, "ty", self.ty or made.ty)


class ExprStringImm(TypedExpr):
    """A string as a graph-level value (TVM's ``relax.StringImm``)."""

    value: str


class DataTypeImm(TypedExpr):
    """A data type as a graph-level value."""

    value: str


class Tuple(TypedExpr):
    """A tuple of expressions. Its type is known where those of all elements are."""

    fields: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if type(self.fields) is not tuple:
            force_setattr(self, "fields", tuple(self.fields))
        if self.ty is None and type(self) is Tuple:
            types: list[Any] = [getattr(f, "ty", None) for f in self.fields]
            if None not in types:
                force_setattr(self, "ty", TupleType(tuple(types)))

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        return True


class TupleGetItem(TypedExpr):
    """Element `index` of a tuple."""

    tuple_value: Expr
    index: int


class Call(TypedExpr, metaclass=OtherNames):
    """A call of an operator, a function of the module, or a function value.

    ``ty_args`` are the type arguments (for ``call_packed`` and ``call_tir``: the types of the results).
    """

    __other_names__ = {"ret_ty": "ty", "sinfo_args": "ty_args"}

    op: Expr | Op
    args: tuple[Expr, ...]
    attrs: Attrs = NO_ATTRS
    ty_args: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        if type(self.args) is not tuple:
            force_setattr(self, "args", tuple(self.args))
        if type(self.attrs) is not Attrs:
            force_setattr(self, "attrs", Attrs.of(self.attrs))
        if type(self.ty_args) is not tuple:
            force_setattr(self, "ty_args", tuple(self.ty_args or ()))
        if self.op is None:  # pyright: ignore[reportUnnecessaryComparison] - in programs it may be
            raise error.InvalidArgument("a call needs a defined operator or function", found="None")


class If(TypedExpr):
    """A choice between two expressions by a scalar bool."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr


class ExternFunc(BaseFunc, metaclass=OtherNames):
    """A packed function by its global name; a type, also in the place of attributes, says what it takes and gives."""

    __other_names__ = {"struct_info": "ty"}

    global_symbol: str
    attrs: Attrs = NO_ATTRS

    def __post_init__(self) -> None:
        if isinstance(cast(Any, self.attrs), Type):
            force_setattr(self, "ty", self.attrs)
            force_setattr(self, "attrs", NO_ATTRS)


class Function(BaseFunc, metaclass=OtherNames):
    """A function. ``ret_ty`` may be None before inference."""

    __other_names__ = {"ret_struct_info": "ret_ty"}

    params: tuple[Var, ...]
    body: Expr
    ret_ty: Type | None = None
    is_pure: bool = True
    attrs: Attrs = NO_ATTRS


def shape_expr(values: Iterable[PrimExpr | int]) -> ShapeExpr:
    """Make a typed shape expression from ints and scalar expressions."""
    dims = as_shape(values)
    return ShapeExpr(dims, ty=ShapeType(dims, len(dims)))


def prim_value(value: PrimExpr | bool | int | float | np.generic | PrimValue, dtype: str | None = None) -> PrimValue:
    """Make a typed scalar value.

    Parameters
    ----------
    value : number or PrimExpr
    dtype : str, optional
        Of a number; by default integers become int64, bools bool, floats float64.

    Raises
    ------
    InvalidArgument
        When `value` is neither.
    """
    if isinstance(value, PrimValue):
        return value
    if not isinstance(value, PrimExpr):
        if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
            raise error.InvalidArgument(
                "Cannot convert to a scalar value",
                expected="a number or a scalar expression",
                found=f"{type(value).__name__}: {value!r}",
            )
        number = value.item() if isinstance(value, np.generic) else value
        default = "bool" if isinstance(number, bool) else "int64" if isinstance(number, int) else "float64"
        value = const(number, dtype or default)
    return PrimValue(value, ty=PrimType(value.dtype, value))


def _exact(given: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Numbers that a program wrote, in a type; one of integers holds them, but for what is behind their points."""
    whole = DataType(dtype).is_integer and given.dtype.kind in "iufO"
    for number in given.flat if whole else ():
        if not math.isfinite(number) or wrap(int(number), DataType(dtype)) != int(number):
            raise beyond(dtype, getattr(number, "item", lambda n=number: n)())
    with np.errstate(all="ignore"):
        return given.astype(numpy_dtype(dtype))


def constant(data: Any, dtype: str | None = None) -> Constant:
    """Make a typed constant.

    Parameters
    ----------
    data : weft.runtime.Tensor, numpy.ndarray, number or nested list
        NumPy data is viewed, not copied; do not change it afterwards. Python floats become float32, ints int64 unless
        `dtype` says.
    """
    if isinstance(data, (bool, int, float, list, tuple)):
        given = np.array(data)
        default = {"f": "float32", "i": "int64", "b": "bool"}.get(given.dtype.kind)
        data = _exact(given, dtype or default or str(given.dtype))
    elif dtype is not None and isinstance(data, (np.ndarray, np.generic)):
        data = np.asanyarray(data).astype(numpy_dtype(dtype), copy=False)
    if isinstance(data, (np.ndarray, np.generic)):
        data = runtime.constant_view(np.asanyarray(data))
    if not hasattr(data, "shape"):
        wanted = "an expression, an array, a number or a list of numbers"
        raise error.InvalidArgument("no tensor can be made of this", expected=wanted, found=f"{data!r:.60}")
    return Constant(data, ty=tensor_type(tuple(int(d) for d in data.shape), str(data.dtype)))
