"""Types in Relax scripts.

``R.Tensor(("n", 4), "float32")`` and its kin, whose strings name symbolic dimensions of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.core_ops import as_vdevice

Resolve = Callable[[str], ir.PrimExpr]


class Proxy:
    """A type that still has strings in it: ``build(resolve)`` makes the type, ``resolve(text)`` a dimension."""

    def __init__(self, build: Callable[[Resolve], ir.Type], sizes: tuple[str, ...] = ()) -> None:
        self.build = build
        self.sizes = sizes  # texts that stand as a dimension of a tensor


Note = ir.Type | Proxy | Callable[..., Any] | Sequence["Note"] | None
"""What stands as a type in a script: None is the empty tuple's, a maker such as ``R.Tensor`` that of anything."""


def _no_strings(text: str) -> ir.PrimExpr:
    raise InvalidArgument(
        f"the dimension '{text}' is given as text",
        help="strings name dimensions in a function's signature; use the variable elsewhere",
    )


def as_type(value: Note, resolve: Resolve = _no_strings) -> ir.Type:
    """Convert what stands as a type in a script; an InvalidArgument where it is none."""
    if isinstance(value, ir.Type):
        return value
    if isinstance(value, Proxy):
        return value.build(resolve)
    if isinstance(value, _Maker):
        return as_type(value(), resolve)
    if isinstance(value, (tuple, list)):
        return ir.TupleType(tuple(as_type(v, resolve) for v in value))
    if value is None:
        return ir.TupleType(())
    raise InvalidArgument(
        "a type is expected", expected="R.Tensor, R.Shape, R.Prim, R.Tuple, R.Callable or R.Any", found=repr(value)
    )


def _is_open(value: Any) -> bool:
    return isinstance(value, (Proxy, str))


def _dims(values: Any, resolve: Resolve) -> tuple[ir.PrimExpr, ...]:
    return ir.as_shape([resolve(v) if isinstance(v, str) else v for v in values])


class _Maker:
    """A type's name: called with arguments, or by itself a type of which nothing is known."""

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.__name__, self._make = name, make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(*args, **kwargs)

    def __getitem__(self, items: Any) -> Any:
        return self._make(*items) if isinstance(items, tuple) else self._make(items)

    def __repr__(self) -> str:
        return f"R.{self.__name__}"


def _tensor(shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1) -> Any:
    """Make a tensor's type; parameters in TVM's order."""
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if type(ndim) is not int or ndim < -1:
        raise InvalidArgument(
            "R.Tensor: ndim is no rank", expected="a number, or -1 where it is unknown", found=repr(ndim)
        )
    if isinstance(shape, ir.ShapeExpr):
        shape = shape.values
    if shape is not None and not isinstance(shape, ir.ExprVar) and ndim not in (-1, len(shape)):
        raise InvalidArgument("R.Tensor: ndim differs from the shape", expected=str(len(shape)), found=str(ndim))
    element = ir.DataType(getattr(dtype, "dtype", dtype)) if dtype else ""
    device = None if vdevice is None else as_vdevice(vdevice)
    if shape is None or isinstance(shape, ir.ExprVar):
        known = getattr(getattr(shape, "ty", None), "ndim", ndim)
        return ir.TensorType(None, element, known, device)
    dims: tuple[Any, ...] = tuple(shape)
    if any(isinstance(d, str) for d in dims):
        sizes = tuple(d for d in dims if isinstance(d, str))
        return Proxy(lambda resolve: ir.TensorType(_dims(dims, resolve), element, len(dims), device), sizes)
    wrong = next((d for d in dims if isinstance(d, ir.Var) and d.dtype != "int64"), None)
    if wrong is not None:
        raise InvalidArgument("R.Tensor: a symbolic dimension is an int64", found=f"{wrong.name}: {wrong.dtype}")
    if any(isinstance(d, int) and d < 0 for d in dims):
        raise InvalidArgument("R.Tensor: a dimension is negative", found=f"{dims}", help='name an unknown one: "n"')
    return ir.TensorType(ir.as_shape(dims), element, len(dims), device)


def _shape(values: Any = None, ndim: int = -1) -> Any:
    if values is None:
        return ir.ShapeType(None, ndim)
    dims = tuple(values)
    if any(isinstance(d, str) for d in dims):
        return Proxy(lambda resolve: ir.ShapeType(_dims(dims, resolve), len(dims)))
    return ir.ShapeType(ir.as_shape(dims), len(dims))


def _prim(dtype: Any = None, value: Any = None) -> Any:
    if value is None:
        if dtype is None:
            raise InvalidArgument("R.Prim: a dtype or a value is needed", help='R.Prim("int64") or R.Prim(value=n)')
        return ir.PrimType(ir.DataType(getattr(dtype, "dtype", dtype)))
    if isinstance(value, str):
        return Proxy(lambda resolve: _prim_of(resolve(value)))
    return _prim_of(ir.as_shape((value,))[0] if isinstance(value, int) else value)


def _prim_of(value: ir.PrimExpr) -> ir.PrimType:
    return ir.PrimType(value.dtype, value)


def _tuple(*fields: Any) -> Any:
    items = tuple(fields[0]) if len(fields) == 1 and isinstance(fields[0], (tuple, list)) else fields
    if any(_is_open(f) for f in items):
        return Proxy(
            lambda resolve: ir.TupleType(tuple(as_type(f, resolve) for f in items)),
            sum((f.sizes for f in items if isinstance(f, Proxy)), ()),
        )
    return ir.TupleType(tuple(as_type(f) for f in items))


def _callable(params: Any = None, ret: Any = None, purity: bool = True, derive_func: Any = None) -> Any:
    if params is None:
        return ir.FuncType(None, ir.AnyType() if ret is None else as_type(ret), purity)
    items = tuple(params) if isinstance(params, (tuple, list)) else (params,)
    if any(_is_open(f) for f in (*items, ret)):
        return Proxy(
            lambda resolve: ir.FuncType(tuple(as_type(f, resolve) for f in items), as_type(ret, resolve), purity)
        )
    return ir.FuncType(tuple(as_type(f) for f in items), as_type(ret), purity)


Tensor = _Maker("Tensor", _tensor)
Shape = _Maker("Shape", _shape)
Prim = _Maker("Prim", _prim)
TupleOf = _Maker("Tuple", _tuple)
Callable_ = _Maker("Callable", _callable)
Any_ = _Maker("Any", lambda: ir.AnyType())
PackedFunc = _Maker("PackedFunc", lambda: ir.PackedFuncType())

AnyProxy, TensorProxy, ShapeProxy, TupleProxy, CallableProxy = Any_, Tensor, Shape, TupleOf, Callable_  # as TVM says
ObjectProxy, PrimProxy, TypeProxy, StructInfoProxy = AnyProxy, Prim, Proxy, Proxy
