"""Types of values in Relax and Relay programs; shapes inside them are scalar expressions, so they may be symbolic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import force_setattr

from weft.error import InvalidArgument
from weft.ir.dtype import DataType, HandleType
from weft.ir.node import Node, OtherNames
from weft.ir.scalar import IntImm, PrimExpr, as_expr, int64

__all__ = [
    "AnyType",
    "DummyGlobalInfo",
    "FuncType",
    "PackedFuncType",
    "PointerType",
    "PrimType",
    "ShapeType",
    "TensorAffineType",
    "TensorType",
    "TupleAffineType",
    "TupleType",
    "Type",
    "VDevice",
    "as_shape",
    "tensor_type",
]


class Type(Node, abstract=True):
    """A type."""


_STRUCTURE: list[Callable[[Any, Any], bool]] = []  # what compares; it stands on a higher floor


class _Structural(Type, abstract=True):
    """A type that is equal to another of the same structure."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and _STRUCTURE[0](self, other))

    def __hash__(self) -> int:
        return hash((type(self), getattr(self, "ndim", None), getattr(self, "dtype", None)))


class AnyType(_Structural):
    """Any runtime value (TVM's ``ObjectType``)."""


class PackedFuncType(_Structural):
    """A packed function of unknown signature."""


class PrimType(Type):
    """A scalar value; ``value`` is its symbolic value when that is known."""

    dtype: str
    value: PrimExpr | None = None

    def __eq__(self, other: object) -> bool:
        """Whether both are the same data type; a data type in words is one, too."""
        if isinstance(other, PrimType):
            return self.dtype == other.dtype and self.value is other.value
        return str(self.dtype) == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self.dtype))

    def __str__(self) -> str:
        return super().__str__() if self.value is not None else str(self.dtype)


class PointerType(Type):
    """A pointer to elements, in a memory scope."""

    element_type: Type
    storage_scope: str = "global"


def _scalar_type(expr: PrimExpr) -> Any:
    """The type: of a pointer that knows it, to what; of anything else, the data type."""
    return expr.dtype.ty if isinstance(expr.dtype, HandleType) else PrimType(expr.dtype)


PrimExpr.ty = property(_scalar_type)  # type: ignore[attr-defined]


class VDevice(Node):
    """A virtual device: where a value lives. A target that is described by more than its kind is kept as JSON."""

    target: str = "llvm"
    vdevice_id: int = 0
    memory_scope: str = "global"

    def __post_init__(self) -> None:
        given: Any = self.target
        if type(given) is not str:
            described = isinstance(given, Mapping) and set(given) != {"kind"}
            kind = given["kind"] if isinstance(given, Mapping) and not described else given
            force_setattr(self, "target", json.dumps(dict(given), sort_keys=True) if described else str(kind))

    @property
    def kind(self) -> str:
        """The kind of the target, without its options."""
        return json.loads(self.target)["kind"] if self.target.startswith("{") else self.target.split()[0]


class DummyGlobalInfo(Node):
    """Global information of a module that says nothing: an example and a placeholder."""


class TensorType(_Structural):
    """A tensor: shape, data type and rank, each of which may be unknown.

    ``shape`` is a tuple of int64 scalar expressions, or None where only the rank (``ndim``) or not even that (-1) is
    known. An empty ``dtype`` is unknown. A shape may be given as any sequence of ints and expressions;
    :func:`tensor_type` also checks the data type. A variable as shape says what its type knows.
    """

    shape: tuple[PrimExpr, ...] | None = None
    dtype: str = "float32"
    ndim: int = -1
    vdevice: VDevice | None = None

    def __post_init__(self) -> None:
        if type(self.ndim) is not int:  # TVM's order: the device before the rank
            given: Any = self.vdevice
            rank = given if isinstance(given, int) else -1
            force_setattr(self, "vdevice", self.ndim)
            force_setattr(self, "ndim", rank)
        if self.dtype is None:  # pyright: ignore[reportUnnecessaryComparison] - in programs it may be
            force_setattr(self, "dtype", "")
        shape = self.shape
        if shape is not None and (self.ndim < 0 or not _canonical(shape)):
            value = getattr(shape, "ty", None)
            if isinstance(value, ShapeType) or isinstance(shape, Node):  # a shape value: of a variable, the rank
                shape = getattr(shape, "values", getattr(value, "values", None))
                force_setattr(self, "ndim", getattr(value, "ndim", -1))
            force_setattr(self, "shape", None if shape is None else as_shape(shape))
            if self.shape is not None:
                force_setattr(self, "ndim", len(self.shape))
        if self.ndim == 0 and self.shape is None:  # there is only one
            force_setattr(self, "shape", ())


class ShapeType(_Structural):
    """A shape value; its dimensions, or only its rank, or nothing (-1) may be known."""

    values: tuple[PrimExpr, ...] | None = None
    ndim: int = -1

    def __post_init__(self) -> None:
        if self.values is not None and (self.ndim < 0 or not _canonical(self.values)):
            force_setattr(self, "values", as_shape(self.values))
            force_setattr(self, "ndim", len(self.values))


class TupleType(_Structural):
    """A tuple of values."""

    fields: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        if type(self.fields) is not tuple:
            force_setattr(self, "fields", tuple(self.fields))


class FuncType(_Structural, metaclass=OtherNames):
    """A function; ``params`` is None for a function of any parameters."""

    __other_names__ = {"arg_types": "params", "ret_type": "ret"}

    params: tuple[Type, ...] | None
    ret: Type
    purity: bool = True


def _canonical(shape: Any) -> bool:
    return type(shape) is tuple and not any(type(d) is int for d in shape)


def as_shape(shape: Iterable[Any]) -> tuple[PrimExpr, ...]:
    """Convert ints and expressions to int64 scalar expressions; an InvalidArgument where a dimension is no number."""
    return tuple(_dimension(d) for d in shape)


def _dimension(d: Any) -> PrimExpr:
    if isinstance(d, int):
        return int64(d)
    if isinstance(d, IntImm) and d.dtype != "int64":
        return int64(d.value)
    if isinstance(d, (str, float)):
        raise InvalidArgument(
            "a dimension is no number",
            expected="an int or a scalar expression",
            found=repr(d),
            help=f"make a variable of it: tir.Var({d!r}, 'int64')" if isinstance(d, str) else None,
        )
    return as_expr(d, "int64")


class TensorAffineType(Node):
    """The real numbers that integers stand for: ``(x - zero_point) * scale``, along `axis` where those are vectors."""

    scale: Any
    zero_point: Any
    dtype: str
    axis: int = -1


class TupleAffineType(Node):
    """The numbers that the fields of a tuple stand for."""

    types: tuple[Any, ...]


def tensor_type(
    shape: Iterable[Any] | None, dtype: str = "", ndim: int | None = None, vdevice: VDevice | None = None
) -> TensorType:
    """Make a tensor type from ints or expressions.

    Parameters
    ----------
    shape : iterable of int or PrimExpr, or None
        None when unknown.
    dtype : str
        Empty when unknown.
    ndim : int, optional
        The rank, where `shape` is None; -1 when unknown.
    """
    dims = None if shape is None else as_shape(shape)
    rank = len(dims) if dims is not None else (-1 if ndim is None else ndim)
    return TensorType(dims, DataType(dtype) if dtype else "", rank, vdevice)
