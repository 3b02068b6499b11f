"""Constructors of calls under TVM's names: made from the declarations, except where a signature differs from them.

``relay.nn.dense(data, weight, units=None)`` takes the operator's inputs, then its attributes, in the order of the
declaration. Constructors that do more (a shape that may be an expression, a default computed from other arguments) are
functions decorated with :func:`constructs`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from weft.error import InvalidArgument
from weft.relay.expr import TupleWrapper
from weft.relay.op.registry import REQUIRED, RelayOp, get, has, list_ops, op_call
from weft.spelling import named

_SPECIAL: dict[str, Callable[..., Any]] = {}


def constructs(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the constructor of that name, such as ``"nn.pad"``."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _SPECIAL[name] = fn
        return fn

    return register


def call(name: str, *args: Any, **attrs: Any) -> Any:
    """Call an operator as its constructor does: a result that is a tuple of known length is a TupleWrapper."""
    made = op_call(name, *args, **attrs)
    outputs = get(name).outputs
    size = outputs(made) if callable(outputs) else outputs
    return TupleWrapper(made, size) if size else made


@functools.cache
def constructor(name: str) -> Callable[..., Any]:
    """Return the constructor of that name.

    Raises
    ------
    UnsupportedOperator
        When there is no such operator.
    """
    return _SPECIAL[name] if name in _SPECIAL else _generated(get(name))


def _generated(op: RelayOp) -> Callable[..., Any]:
    """Make the constructor that follows from a declaration."""
    inputs = {i.name: i for i in op.inputs}
    signature = _signature(op)

    def construct(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise InvalidArgument(f"{op.name}: {e}", expected=str(signature)) from None
        if op.variadic:
            return call(op.name, *bound.args)
        attrs = {k: v for k, v in bound.arguments.items() if k not in inputs}
        return call(op.name, *(bound.arguments.get(i) for i in inputs), **attrs)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    return named(construct, op.name.rsplit(".", 1)[-1], op.doc)


def _signature(op: RelayOp) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for i in op.inputs:
        if i.kind == "any":
            parameters.append(inspect.Parameter(i.name, inspect.Parameter.VAR_POSITIONAL))
            continue
        parameters.append(
            inspect.Parameter(i.name, kind, default=None if i.optional else inspect.Parameter.empty, annotation=Any)
        )
    optional = any(i.optional for i in op.inputs)
    for name, default in op.attrs.items():
        value = inspect.Parameter.empty if default is REQUIRED and not optional else default
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY if op.variadic else kind, default=value)
        )
    return inspect.Signature(parameters)


def _names() -> list[str]:
    return sorted({*list_ops(), *_SPECIAL})


def namespace(prefix: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a module of constructors whose names begin with a prefix."""

    def __getattr__(name: str) -> Any:
        full = prefix + name
        if not name.startswith("__") and (full in _SPECIAL or has(full)):
            return constructor(full)
        if any(n.startswith(full + ".") for n in _names()):
            inner: Any = ModuleType(f"weft.relay.op.{full}")
            inner.__getattr__, inner.__dir__ = namespace(full + ".")
            return inner
        raise AttributeError(f"there is no Relay operator '{full}'")

    def __dir__() -> list[str]:
        return sorted({n.removeprefix(prefix).split(".")[0] for n in _names() if n.startswith(prefix)})

    return __getattr__, __dir__
