"""Types in Relax scripts.

``R.Tensor(("n", 4), "float32")`` and its kin, whose strings name symbolic dimensions of the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir import (
    AnyType,
    DataType,
    FuncType,
    PackedFuncType,
    PrimExpr,
    PrimType,
    ShapeExpr,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    VDevice,
    as_shape,
)

__all__ = ["Any_", "Callable_", "PackedFunc", "Prim", "Proxy", "Shape", "Tensor", "TupleOf", "as_type"]

Resolve = Callable[[str], PrimExpr]


class Proxy:
    """A type that still has strings in it: ``build(resolve)`` makes the type, ``resolve(text)`` a dimension."""

    def __init__(self, build: Callable[[Resolve], Type], sizes: tuple[str, ...] = ()) -> None:
        self.build = build
        self.sizes = sizes  # texts that stand as a dimension of a tensor


def _no_strings(text: str) -> PrimExpr:
    raise InvalidArgument(
        f"the dimension '{text}' is given as text",
        help="strings name dimensions in a function's signature; use the variable elsewhere",
    )


def as_type(value: Any, resolve: Resolve = _no_strings) -> Type:
    """Convert what stands as a type in a script.

    Raises
    ------
    InvalidArgument
        When it is no type.
    """
    if isinstance(value, Type):
        return value
    if isinstance(value, Proxy):
        return value.build(resolve)
    if isinstance(value, _Maker):
        return as_type(value(), resolve)
    if isinstance(value, (tuple, list)):
        return TupleType(tuple(as_type(v, resolve) for v in value))
    if value is None:
        return TupleType(())
    raise InvalidArgument(
        "a type is expected", expected="R.Tensor, R.Shape, R.Prim, R.Tuple, R.Callable or R.Any", found=repr(value)
    )


def _sizes_of(value: Any) -> tuple[str, ...]:
    return value.sizes if isinstance(value, Proxy) else ()


def _is_open(value: Any) -> bool:
    return isinstance(value, (Proxy, str))


def _dims(values: Any, resolve: Resolve) -> tuple[PrimExpr, ...]:
    return as_shape([resolve(v) if isinstance(v, str) else v for v in values])


class _Maker:
    """A type's name: called with arguments, or by itself a type of which nothing is known."""

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self._name, self._make = name, make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(*args, **kwargs)

    def __getitem__(self, items: Any) -> Any:
        return self._make(*items) if isinstance(items, tuple) else self._make(items)

    def __repr__(self) -> str:
        return f"R.{self._name}"


def _tensor(shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1) -> Any:
    """Make a tensor's type; parameters in TVM's order."""
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if isinstance(shape, ShapeExpr):
        shape = shape.values
    if shape is not None and ndim not in (-1, len(shape)):
        raise InvalidArgument("R.Tensor: ndim differs from the shape", expected=str(len(shape)), found=str(ndim))
    element = DataType(getattr(dtype, "dtype", dtype)) if dtype else ""
    device = _device(vdevice)
    if shape is None:
        return TensorType(None, element, ndim, device)
    dims: tuple[Any, ...] = tuple(shape)
    if any(isinstance(d, str) for d in dims):
        sizes = tuple(d for d in dims if isinstance(d, str))
        return Proxy(lambda resolve: TensorType(_dims(dims, resolve), element, len(dims), device), sizes)
    return TensorType(as_shape(dims), element, len(dims), device)


def _device(value: Any) -> VDevice | None:
    if value is None or isinstance(value, VDevice):
        return value
    parts = str(value).split(":")
    return VDevice(parts[0], int(parts[1]) if len(parts) > 1 else 0, parts[2] if len(parts) > 2 else "global")


def _shape(values: Any = None, ndim: int = -1) -> Any:
    if values is None:
        return ShapeType(None, ndim)
    dims = tuple(values)
    if any(isinstance(d, str) for d in dims):
        return Proxy(lambda resolve: ShapeType(_dims(dims, resolve), len(dims)))
    return ShapeType(as_shape(dims), len(dims))


def _prim(dtype: Any = None, value: Any = None) -> Any:
    if value is None:
        if dtype is None:
            raise InvalidArgument("R.Prim: a dtype or a value is needed", help='R.Prim("int64") or R.Prim(value=n)')
        return PrimType(DataType(getattr(dtype, "dtype", dtype)))
    if isinstance(value, str):
        return Proxy(lambda resolve: _prim_of(resolve(value)))
    return _prim_of(as_shape((value,))[0] if isinstance(value, int) else value)


def _prim_of(value: PrimExpr) -> PrimType:
    return PrimType(value.dtype, value)


def _tuple(*fields: Any) -> Any:
    items = tuple(fields[0]) if len(fields) == 1 and isinstance(fields[0], (tuple, list)) else fields
    if any(_is_open(f) for f in items):
        return Proxy(
            lambda resolve: TupleType(tuple(as_type(f, resolve) for f in items)), sum((_sizes_of(f) for f in items), ())
        )
    return TupleType(tuple(as_type(f) for f in items))


def _callable(params: Any = None, ret: Any = None, purity: bool = True, derive_func: Any = None) -> Any:
    if params is None:
        return FuncType(None, AnyType() if ret is None else as_type(ret), purity)
    items = tuple(params) if isinstance(params, (tuple, list)) else (params,)
    if any(_is_open(f) for f in (*items, ret)):
        return Proxy(lambda resolve: FuncType(tuple(as_type(f, resolve) for f in items), as_type(ret, resolve), purity))
    return FuncType(tuple(as_type(f) for f in items), as_type(ret), purity)


Tensor = _Maker("Tensor", _tensor)
Shape = _Maker("Shape", _shape)
Prim = _Maker("Prim", _prim)
TupleOf = _Maker("Tuple", _tuple)
Callable_ = _Maker("Callable", _callable)
Any_ = _Maker("Any", lambda: AnyType())
PackedFunc = _Maker("PackedFunc", lambda: PackedFuncType())
