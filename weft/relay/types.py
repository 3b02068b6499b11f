"""Relay's types: those of ``weft.ir`` with Relay's defaults, and what functional programs need besides.

Two types are equal (``==``) when their structure is; type variables are equal to themselves, and ``Any`` to ``Any``.
Dimensions of tensors are equal where they are the same integers, whatever computes them: ``n + n`` and ``n * 2``.
"""

from __future__ import annotations

import typing
from typing import ClassVar

from weft import arith, ir
from weft.ir import AnyDim as Any
from weft.ir import Cast, IntImm, Node, PrimExpr, Type, Var, VDevice, as_int, int64, rewrite, structural_equal
from weft.ir.structural import BIND, NAMED, NUMBERED

__all__ = [
    "Any",
    "FuncType",
    "GlobalTypeVar",
    "IncompleteType",
    "RefType",
    "TensorType",
    "TupleType",
    "TypeCall",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "scalar_type",
    "type_parts",
    "types_equal",
    "unit_type",
]


class TypeKind:
    """What a type variable stands for."""

    Type: ClassVar[int] = 0
    ShapeVar: ClassVar[int] = 1
    BaseType: ClassVar[int] = 2
    Shape: ClassVar[int] = 3
    Constraint: ClassVar[int] = 4
    AdtHandle: ClassVar[int] = 5
    TypeData: ClassVar[int] = 6


class _Structural:
    """Makes ``==`` of types compare their structure."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and (types_equal(self, other) or _same_numbers(self, other))

    def __ne__(self, other: object) -> bool:  # else that of the nodes, which compares identity
        return not self == other

    def __hash__(self) -> int:
        return hash(_shallow(self))


class TensorType(_Structural, ir.TensorType):
    """A tensor of known rank: dimensions are numbers, ``Any`` or scalar expressions; float32 unless `dtype` says."""

    shape: tuple[PrimExpr, ...] | None = ()
    dtype: str = "float32"
    ndim: int = -1
    vdevice: VDevice | None = None

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The dimensions as ints.

        Raises
        ------
        TypeError
            When one of them is not known.
        """
        dims = [as_int(d) for d in self.shape or ()]
        if any(d is None for d in dims):
            raise TypeError(f"{self} has a dimension that is not constant")
        return typing.cast(tuple[int, ...], tuple(dims))


class TupleType(_Structural, ir.TupleType):
    """A tuple of values."""


class FuncType(_Structural, Type):
    """A function from parameters to a result, for all types that the type parameters may be."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple[Node, ...] = ()

    __binders__ = (("type_params", BIND),)


class RefType(_Structural, Type):
    """A cell that holds a value of a type."""

    value: Type


class TypeVar(Type):
    """A type parameter of a function or data type; equal only to itself."""

    name_hint: str
    kind: int = TypeKind.Type

    __compared_as__ = NUMBERED


class GlobalTypeVar(Type):
    """The name of an algebraic data type of the module."""

    name_hint: str
    kind: int = TypeKind.AdtHandle

    __compared_as__ = NAMED

    def __call__(self, *args: Type) -> TypeCall:
        """Apply the data type to type arguments: ``list_type(elem)``."""
        return TypeCall(self, args)


class TypeCall(_Structural, Type):
    """An algebraic data type applied to type arguments: ``List[Tensor[(), int32]]``."""

    func: Type
    args: tuple[Type, ...] = ()


class TypeRelation(_Structural, Type):
    """A relation between types: `func` decides, from the first `num_inputs` of them, what the others are."""

    func: typing.Any
    args: tuple[Type, ...]
    num_inputs: int = 0
    attrs: typing.Any = None


class IncompleteType(Type):
    """A type that inference has still to find; equal only to itself."""

    kind: int = TypeKind.Type

    __compared_as__ = NUMBERED


def scalar_type(dtype: str) -> TensorType:
    """Return the type of a tensor of rank 0."""
    return TensorType((), dtype)


def unit_type() -> TupleType:
    """Return the type of the empty tuple, which effects return."""
    return TupleType(())


def type_parts(ty: typing.Any) -> tuple[Type, ...]:
    """Return the types that a compound type is made of, type parameters aside."""
    if isinstance(ty, ir.TupleType):
        return ty.fields
    if isinstance(ty, FuncType):
        return (*ty.arg_types, ty.ret_type)
    if isinstance(ty, RefType):
        return (ty.value,)
    return (ty.func, *ty.args) if isinstance(ty, TypeCall) else ()


def types_equal(a: typing.Any, b: typing.Any) -> bool:
    """Whether two types have the same structure."""
    return a is b or structural_equal(a, b)


def _same_numbers(a: typing.Any, b: typing.Any) -> bool:
    """Whether tensors differ at most in how dimensions are computed; without overflow, in 32 or in 64 bits."""
    if not (isinstance(a, ir.TensorType) and isinstance(b, ir.TensorType) and a.shape and b.shape):
        return False
    wide: dict[PrimExpr, PrimExpr] = {}

    def widened(e: typing.Any) -> typing.Any:
        if isinstance(e, IntImm):
            return int64(e.value)
        if isinstance(e, Cast):
            return e.value if e.value.dtype == "int64" else e
        return wide.setdefault(e, Var(e.name, "int64")) if isinstance(e, Var) and e.dtype == "int32" else e

    def same(x: typing.Any, y: typing.Any) -> bool:
        if as_int(x) != as_int(y):
            return False  # of which the hash is made
        x, y = rewrite(x, widened), rewrite(y, widened)
        return structural_equal(x, y) or (x.dtype == y.dtype == "int64" and arith.Analyzer().can_prove_equal(x, y))

    return (a.dtype, a.ndim, a.vdevice) == (b.dtype, b.ndim, b.vdevice) and all(map(same, a.shape, b.shape))


def _shallow(ty: typing.Any) -> tuple[typing.Any, ...]:
    """What of a type's structure goes into its hash: class, arity and numbers."""
    if isinstance(ty, ir.TensorType):
        return (ty.dtype, ty.ndim, tuple(as_int(d) for d in ty.shape or ()))
    return (type(ty).__name__, *(len(getattr(ty, f)) for f in ty.__struct_fields__ if type(getattr(ty, f)) is tuple))
