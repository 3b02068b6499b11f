"""Values of Relay programs: tensors, tuples, values of data types, cells and closures.

Inside the interpreter a tensor is a NumPy array and a tuple a Python tuple; :func:`inward` and :func:`outward` convert
at the border, where a tensor is a ``weft.runtime.Tensor``. Values of data types and cells convert what is read out of
them at the moment of reading, so a list of a million nodes crosses the border at no cost and a cell keeps its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft import error, ir, runtime
from weft.relay.adt import Constructor
from weft.relay.expr import Constant, Function
from weft.relay.types import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall
from weft.runtime.relay_vm import tuple_object
from weft.runtime.tensor import unmasked

_PYTHON_DTYPES = {bool: "bool", int: "int32", float: "float32"}


class ConstructorValue:
    """A value of an algebraic data type.

    Parameters
    ----------
    tag : int
        The constructor's number in its definition, from 1.
    fields : iterable
        The values that it holds: tensors, arrays, numbers, tuples, values of data types.
    constructor : Constructor, optional
        The constructor itself, where it is known.
    """

    __slots__ = ("constructor", "items", "tag")

    def __init__(self, tag: int, fields: Iterable[Any] = (), constructor: Constructor | None = None) -> None:
        types: Any = () if constructor is None else constructor.inputs
        given = tuple(fields)
        if constructor is not None and len(types) != len(given):
            raise error.InvalidArgument(
                f"constructor {constructor.name_hint} takes other fields",
                expected=f"{len(types)}",
                found=f"{len(given)}",
            )
        self.tag, self.constructor = int(tag), constructor
        self.items: tuple[Any, ...] = tuple(map(inward, given, types or (None,) * len(given)))

    @classmethod
    def of(cls, tag: int, items: tuple[Any, ...], constructor: Constructor | None) -> ConstructorValue:
        """Make a value from values of the interpreter."""
        made = cls.__new__(cls)
        made.tag, made.items, made.constructor = tag, items, constructor
        return made

    @property
    def fields(self) -> list[Any]:
        """The values that it holds."""
        return [outward(v) for v in self.items]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return outward(self.items[index])

    def __repr__(self) -> str:
        name = self.constructor.name_hint if self.constructor is not None else f"ADT#{self.tag}"
        return f"ConstructorValue({name}, {len(self.items)} fields)"


class RefValue:
    """A cell; what it holds can be replaced.

    Parameters
    ----------
    value : object
        What it holds at first.
    """

    __slots__ = ("item",)

    def __init__(self, value: Any) -> None:
        self.item = inward(value)

    @classmethod
    def of(cls, item: Any) -> RefValue:
        """Make a cell of a value of the interpreter."""
        made = cls.__new__(cls)
        made.item = item
        return made

    @property
    def value(self) -> Any:
        """What it holds."""
        return outward(self.item)

    @value.setter
    def value(self, value: Any) -> None:
        self.item = inward(value)

    def __repr__(self) -> str:
        return "RefValue()"


class Closure:
    """A function and the variables it was made among. Calling it runs it.

    ``call`` is the interpreter that runs it, given the closure and its arguments.
    """

    __slots__ = ("call", "env", "func", "name")

    def __init__(self, func: Function, env: Any, name: str, call: Callable[..., Any]) -> None:
        self.func, self.env, self.name, self.call = func, env, name, call

    def __call__(self, *args: Any) -> Any:
        """Call the function with tensors, arrays, numbers, tuples and other values."""
        return self.call(self, args)

    def __repr__(self) -> str:
        return f"Closure({self.name}, {len(self.func.params)} parameters)"


def inward(value: object, ty: ir.Type | None = None) -> Any:
    """Turn what a caller gives into a value of the interpreter.

    Parameters
    ----------
    value : object
        A tensor, array, number, tuple or list of such, or a value that a program returned.
    ty : Type, optional
        What is wanted: a number takes its data type (int32, float32 and bool without), arrays must have it.

    Raises
    ------
    WeftError
        When the value cannot be one of a program, or is of another type.
    """
    if isinstance(value, Constant):
        value = value.data
    if isinstance(value, (np.ndarray, np.generic)):
        made: Any = np.asarray(unmasked(value))
    elif isinstance(value, (bool, int, float)):
        made = _number(value, ty)
    elif isinstance(value, runtime.Tensor):
        made = value.numpy()
    elif isinstance(value, (tuple, list)):
        fields = ty.fields if isinstance(ty, TupleType) and len(ty.fields) == len(value) else (None,) * len(value)
        made = tuple(map(inward, value, fields))
    elif isinstance(value, (ConstructorValue, RefValue, Closure, Constructor)):
        made = value
    elif hasattr(value, "__dlpack__"):
        made = runtime.from_dlpack(value).numpy()  # type: ignore[arg-type]
    else:
        raise error.InvalidArgument(
            "this is no value of a Relay program", expected=str(ty or "a tensor, tuple or data type"), found=repr(value)
        )
    return made if ty is None else _checked(made, ty)


def outward(value: object) -> Any:
    """Turn a value of the interpreter into what callers get: arrays become tensors, tuples those of the machine."""
    if isinstance(value, np.ndarray):
        return runtime.from_dlpack(value)
    if isinstance(value, tuple):
        return tuple_object([outward(v) for v in value])
    return value


def _number(value: Any, ty: ir.Type | None) -> np.ndarray[Any, Any]:
    """Make a scalar of a number, of the wanted data type if that holds it."""
    default = "int64" if type(value) is int and not -(2**31) <= value < 2**31 else _PYTHON_DTYPES[type(value)]
    dtype = ir.numpy_dtype(ty.dtype if isinstance(ty, TensorType) else default)
    integral = dtype.kind in "iu"
    fits = type(value) is not float if integral or dtype.kind == "b" else True
    if fits and integral:
        fits = np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if not fits:
        raise error.DTypeMismatch("a number is of another data type", expected=str(dtype), found=repr(value))
    return np.array(value, dtype)


_KINDS: dict[type, Any] = {
    TensorType: np.ndarray,
    TupleType: tuple,
    TypeCall: ConstructorValue,
    RefType: RefValue,
    FuncType: (Closure, Constructor),
}


def _checked(value: Any, ty: ir.Type) -> Any:
    """Return a value that must be of a type, as far as that shows at its surface."""
    if not isinstance(value, _KINDS.get(type(ty), object)):
        raise error.InvalidArgument("a value is of another type", expected=str(ty), found=_describe(value))
    if isinstance(ty, TensorType):
        if value.dtype != ir.numpy_dtype(ty.dtype):
            raise error.DTypeMismatch("a tensor has another data type", expected=ty.dtype, found=str(value.dtype))
        dims = [ir.as_int(d) for d in ty.shape or ()]
        if value.ndim != len(dims) or any(d is not None and d != n for d, n in zip(dims, value.shape, strict=True)):
            raise error.ShapeMismatch("a tensor has another shape", expected=str(ty), found=str(tuple(value.shape)))
    elif isinstance(ty, TupleType) and len(value) != len(ty.fields):
        raise error.InvalidArgument("a tuple has other fields", expected=str(ty), found=f"{len(value)} fields")
    elif isinstance(ty, TypeCall) and value.constructor is not None:
        made_for, wanted = value.constructor.belong_to.name_hint, ty.func
        if isinstance(wanted, GlobalTypeVar) and made_for != wanted.name_hint:
            raise error.InvalidArgument("a value is of another data type", expected=str(ty), found=f"a {made_for}")
    return value


def _describe(value: Any) -> str:
    return f"a tensor of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
