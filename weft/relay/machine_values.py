"""Values of Relay programs on their way to the virtual machine and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import error, runtime
from weft.ir import IRModule, Type, substitute
from weft.relay.adt import Constructor, type_data
from weft.relay.types import FuncType, TupleType, TypeCall
from weft.relay.values import ConstructorValue, inward
from weft.runtime.relay_vm import ADT, TupleValue, tuple_object


def to_machine(value: object, ty: Type | None) -> Any:
    """Turn what a caller gives for a parameter of a type into a value of the machine.

    Raises
    ------
    WeftError
        When the value is of another type, or is a function or cell, which the machine makes itself.
    """
    if type(value) is not TupleValue and type(value).__module__ == ADT.__module__:  # the machine's own
        return value
    return _built(inward(value, ty), _fields_of, _machine_value)


def from_machine(value: object, ty: Type | None, mod: IRModule, call: Callable[..., Any]) -> Any:
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
    reader = _Reader(mod, call)
    return _built((value, ty), reader.fields, reader.value)


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
    raise error.InvalidArgument("the virtual machine takes tensors, tuples and values of data types", found=repr(value))


class _Reader:
    """Reads values of the machine: (value, type) pairs, of which the type may be None."""

    def __init__(self, mod: IRModule, call: Callable[..., Any]) -> None:
        self.mod, self.call = mod, call
        self.known: dict[tuple[int, int], tuple[Constructor, list[Type]]] = {}  # by id of type, and tag
        self.types: dict[Type, Type] = {}  # one object for equal types, so that those of a list's rest are its own

    def fields(self, typed: tuple[Any, Any]) -> Any:
        """Return the fields of a value, with their types."""
        value, ty = typed
        types: Any = ty.fields if isinstance(ty, TupleType) else None
        if isinstance(value, ADT):
            if value.tag > 0:  # else it is a tuple below many others
                types = self.constructor(value.tag, ty)[1]
        elif not isinstance(value, tuple):
            return ()
        return zip(value, types or (None,) * len(value), strict=True)

    def value(self, typed: tuple[Any, Any], fields: list[Any]) -> Any:
        """Return what callers get, given the same of the fields."""
        value, ty = typed
        if isinstance(value, tuple) or (isinstance(value, ADT) and value.tag == 0):
            return tuple_object(fields)
        if isinstance(value, ADT):
            return ConstructorValue.of(value.tag, tuple(map(_inner, fields)), self.constructor(value.tag, ty)[0])
        return self.closure(value, ty) if isinstance(ty, FuncType) else value

    def constructor(self, tag: int, ty: Any) -> tuple[Constructor | None, list[Type] | None]:
        """Find who made a value of a data type, and the types of its fields."""
        if not isinstance(ty, TypeCall):
            return None, None
        found = self.known.get((id(ty), tag))
        if found is None:
            ty = self.types.setdefault(ty, ty)
            data: Any = type_data(self.mod, ty.func.name_hint)  # type: ignore[union-attr]
            known = dict(zip(data.type_vars, ty.args, strict=True))
            types = [substitute(t, known) for t in data.constructors[tag - 1].inputs]
            types = [self.types.setdefault(t, t) for t in types]
            found = self.known[id(ty), tag] = data.constructors[tag - 1], types
        return found

    def closure(self, value: Any, ty: FuncType) -> Callable[..., Any]:
        """Return a Python function that calls a closure of the machine."""

        def run(*args: Any) -> Any:
            if len(args) != len(ty.arg_types):
                raise error.InvalidArgument("a function takes other arguments", expected=str(ty), found=f"{len(args)}")
            given = [to_machine(a, t) for a, t in zip(args, ty.arg_types, strict=True)]
            return from_machine(self.call(value, *given), ty.ret_type, self.mod, self.call)

        return run


def _inner(value: Any) -> Any:
    """Return a field as values of data types hold it."""
    if isinstance(value, tuple):
        return tuple(map(_inner, value))
    return value.numpy() if isinstance(value, runtime.Tensor) else value
