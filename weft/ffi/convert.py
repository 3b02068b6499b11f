"""Python callables and values as tvm-ffi sees them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeGuard

import msgspec
import tvm_ffi

from weft.ffi.function import PackedFunc, convert_argument, make_packed, packed, wrap

_PLAIN = frozenset((type(None), bool, int, float, str))


def convert_func(function: Callable[..., Any]) -> PackedFunc:
    """Make a packed function of a Python callable; tensors reach it as :class:`weft.runtime.Tensor`.

    Parameters
    ----------
    function : callable
        Called with positional arguments. What it raises travels to the caller with its traceback.
    """
    if isinstance(function, PackedFunc):
        return function
    if isinstance(function, tvm_ffi.Function):
        return packed(tvm_ffi.convert(function))

    def call(*args: Any) -> Any:
        out = function(*map(wrap, args))
        if type(out) in _PLAIN:
            return out
        if isinstance(out, FunctionType):  # what it is called with is wrapped, too
            return convert_func(out)
        return convert_argument(out)

    return packed(tvm_ffi.convert(call))


class CallbackTaker(PackedFunc):
    """A packed function whose arguments may be Python callables; tensors reach these as Weft's."""

    __slots__ = ()

    @staticmethod
    def of(function: PackedFunc) -> CallbackTaker:
        """Make one of a packed function."""
        return make_packed(CallbackTaker, function)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return super().__call__(*[convert_func(a) if _is_callback(a) else a for a in args])


def as_opaque(value: object) -> Any:
    """A Python object as the runtime holds those that are none of its own; what can be called stays what it is."""
    return tvm_ffi.core._convert_to_opaque_object(value)  # pyright: ignore[reportAttributeAccessIssue]


def _is_callback(value: object) -> TypeGuard[Callable[..., Any]]:
    return callable(value) and not isinstance(value, (PackedFunc, tvm_ffi.core.CObject))


def _is_of_a_program(value: Any) -> bool:
    """Whether a value is a node, or what nodes refer to: a tensor of expressions."""
    return isinstance(value, msgspec.Struct) or hasattr(type(value), "__saved_fields__")


def convert(value: object) -> Any:
    """Convert a Python value to what the runtime would hand back for it.

    Callables become packed functions, lists and tuples arrays, dicts maps; numbers, strings and nodes of programs stay
    what they are, and a list of nodes becomes a tuple.
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes, PackedFunc)):
        return value
    if _is_of_a_program(value):
        return value
    if isinstance(value, (list, tuple)):
        if any(map(_is_of_a_program, value)):
            return tuple(map(convert, value))
    elif _is_callback(value):
        return convert_func(value)
    return wrap(tvm_ffi.convert(convert_argument(value)))
