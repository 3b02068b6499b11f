"""What every Relay operator promises, checked from its declaration: its type is that of its value.

This holds for known and unknown dimensions; macros that are not one-to-one have the value that NumPy gives.

A case is made like those of ``tests/op/contract.py``, from named sizes.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.op.contract import CASES as SHARED
from tests.op.contract import SIZES, Array, Dim, Fixed, Sizes, registering
from weft import relay
from weft.relay.op import declaration, list_ops, op_call
from weft.relay.types import TensorType, TupleType

__all__ = ["CASES", "SIZES", "Case", "Cases", "Known", "Sizes", "arguments", "call", "case", "cases", "drawn", "values"]


@dataclass
class Known:
    """An argument that is a constant where types are inferred."""

    array: Any


@dataclass
class Case:
    """One call: arguments in order, attributes, and the value by NumPy (a function of the arguments, or an array)."""

    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    expect: Any = None
    rtol: float = 1e-4
    atol: float = 1e-5


def call(*inputs: Any, expect: Any = None, rtol: float = 1e-4, atol: float = 1e-5, **attrs: Any) -> Case:
    return Case(inputs, attrs, expect, rtol, atol)


Cases = Iterator[Case]
Maker = Callable[..., "Case | None"]
CASES: dict[str, list[Maker]] = {}
cases, case = registering(CASES)


def take_cases_of_shared() -> None:
    """Register for operators that are shared ones by themselves the cases of those, whose contract checks values."""
    for name in list_ops():
        expand = declaration(name).expand
        if isinstance(expand, functools.partial):
            CASES.setdefault(name, []).extend(functools.partial(_of_shared, make) for make in SHARED[expand.args[0]])


def _of_shared(make: Maker, s: Sizes) -> Case | None:
    made = make(s)
    return made and Case(made.inputs, made.attrs)


def drawn(name: str, index: int) -> list[Case]:
    made = (CASES[name][index](Sizes(sizes, f"relay.{name}{index}{sizes}")) for sizes in SIZES)
    found = [c for c in made if c is not None]
    assert found, f"{name}: no case"
    return found


def values(case: Case) -> list[Any]:
    """The arguments as arrays."""
    return [_array(v) for v in case.inputs]


def _array(value: Any) -> Any:
    if isinstance(value, Known):
        return _array(value.array)
    if isinstance(value, Fixed):
        return value.array.value
    if isinstance(value, Array):
        return value.value
    return tuple(map(_array, value)) if isinstance(value, tuple) else np.asarray(value)


def expected(case: Case) -> Any:
    with np.errstate(all="ignore"):
        return case.expect(*values(case)) if callable(case.expect) else case.expect


def arguments(case: Case, dim: Callable[[int], Any]) -> list[Any]:
    """The arguments as typed expressions; `dim` turns each dimension into what types show."""
    return [_argument(v, dim, f"x{i}") for i, v in enumerate(case.inputs)]


def _argument(value: Any, dim: Callable[[int], Any], name: str) -> Any:
    if isinstance(value, Known):
        return relay.const(_array(value.array))
    if isinstance(value, tuple):
        fields = tuple(_argument(v, dim, f"{name}_{i}") for i, v in enumerate(value))
        return relay.Tuple(fields, ty=TupleType(tuple(f.ty for f in fields)))
    if isinstance(value, Fixed):
        return _argument(value.array, int, name)
    if isinstance(value, Array):
        return relay.Var(name, TensorType(tuple(dim(d) for d in value.dims), str(value.value.dtype)))
    array = np.asarray(value)
    return relay.Var(name, TensorType(array.shape, str(array.dtype)))


def typed_call(name: str, case: Case, dim: Callable[[int], Any] = int) -> Any:
    return op_call(name, *arguments(case, dim), **case.attrs)


def unknown(d: int) -> Any:
    """Make named sizes unknown."""
    return relay.Any() if isinstance(d, Dim) else int(d)
