"""Values of Relay programs on their way to the virtual machine and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.ir import IRModule, Type, substitute
from weft.relay.adt import Constructor, type_data
from weft.relay.types import FuncType, TupleType, TypeCall
from weft.relay.values import ConstructorValue, inward
from weft.runtime import Tensor
from weft.runtime.relay_vm import ADT

__all__ = ["from_machine", "to_machine"]


def to_machine(value: Any, ty: Type | None) -> Any:
    """Turn what a caller gives for a parameter of a type into a value of the machine.

    Raises
    ------
    WeftError
        When the value is of another type, or is a function or cell, which the machine makes itself.
    """
    if type(value).__module__ == ADT.__module__:  # the machine's own
        return value
    return _built(inward(value, ty), _fields_of, _machine_value)


def from_machine(value: Any, ty: Type | None, mod: IRModule, call: Callable[..., Any]) -> Any:
    """Turn a value of the machine into what callers get from every executor.

    Parameters
    ----------
    value : object
        The value.
    ty : Type or None
        Its type, as far as it is known: it gives values of data types their constructors.
    mod : IRModule
        The definitions of data types.
    call : callable
        Calls a closure of the machine with arguments for it.
    """
    return _built((value, ty), lambda v: _typed_fields(v, mod), lambda v, fields: _value(v[0], v[1], fields, mod, call))


def _built(root: Any, fields_of: Callable[[Any], Any], make: Callable[[Any, list[Any]], Any]) -> Any:
    """Rebuild a value of any depth bottom-up, without recursion: ``make(value, rebuilt fields)``."""
    todo: list[tuple[Any, Any]] = [(root, None)]
    done: list[Any] = []
    while todo:
        value, fields = todo.pop()
        if fields is None:
            fields = list(fields_of(value))
            todo.append((value, fields))
            todo.extend((f, None) for f in reversed(fields))
        else:
            n = len(done) - len(fields)
            made = make(value, done[n:])
            del done[n:]
            done.append(made)
    return done[0]


def _fields_of(value: Any) -> Any:
    if isinstance(value, ConstructorValue):
        return value.items
    return value if isinstance(value, tuple) else ()


def _machine_value(value: Any, fields: list[Any]) -> Any:
    if isinstance(value, ConstructorValue):
        return ADT(value.tag, fields)
    if isinstance(value, tuple):
        return tuple(fields)
    if isinstance(value, np.ndarray):
        return value
    raise InvalidArgument("the virtual machine takes tensors, tuples and values of data types", found=repr(value))


def _typed_fields(typed: tuple[Any, Any], mod: IRModule) -> Any:
    """Return the fields of a value, with their types."""
    value, ty = typed
    if isinstance(value, tuple):
        return zip(value, ty.fields if isinstance(ty, TupleType) else (None,) * len(value), strict=True)
    if not isinstance(value, ADT):
        return ()
    if value.tag == 0:  # a tuple below many others
        types: Any = ty.fields if isinstance(ty, TupleType) else None
    else:
        constructor, types = _constructor(value, ty, mod), None
        if constructor is not None and isinstance(ty, TypeCall):
            known = dict(zip(type_data(mod, constructor).type_vars, ty.args, strict=True))
            types = [substitute(t, known) for t in constructor.inputs]
    return zip(value, types or (None,) * len(value), strict=True)


def _constructor(value: ADT, ty: Type | None, mod: IRModule) -> Constructor | None:
    """Find who made a value of a data type."""
    data = type_data(mod, ty.func.name_hint) if isinstance(ty, TypeCall) else None  # type: ignore[union-attr]
    return data.constructors[value.tag - 1] if data is not None else None


def _value(value: Any, ty: Any, fields: list[Any], mod: IRModule, call: Callable[..., Any]) -> Any:
    if isinstance(value, tuple) or (isinstance(value, ADT) and value.tag == 0):
        return tuple(fields)
    if isinstance(value, ADT):
        return ConstructorValue.of(value.tag, tuple(map(_inner, fields)), _constructor(value, ty, mod))
    if isinstance(ty, FuncType):
        return _closure(value, ty, mod, call)
    return value


def _inner(value: Any) -> Any:
    """Return a field as values of data types hold it."""
    if isinstance(value, tuple):
        return tuple(map(_inner, value))
    return value.numpy() if isinstance(value, Tensor) else value


def _closure(value: Any, ty: FuncType, mod: IRModule, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function that calls a closure of the machine."""

    def run(*args: Any) -> Any:
        if len(args) != len(ty.arg_types):
            raise InvalidArgument("a function takes other arguments", expected=str(ty), found=f"{len(args)}")
        given = [to_machine(a, t) for a, t in zip(args, ty.arg_types, strict=True)]
        return from_machine(call(value, *given), ty.ret_type, mod, call)

    return run
