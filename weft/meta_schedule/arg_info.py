"""What a kernel's arguments are, as records have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, tir, tune

__all__ = ["ArgInfo", "Seconds", "TensorInfo"]


class Seconds(float):
    """A time; its ``value`` is itself."""

    @property
    def value(self) -> float:
        """The number."""
        return float(self)

    @staticmethod
    def of(values: Sequence[Any] | None) -> list[Seconds] | None:
        """Make times of numbers and of constants."""
        return None if values is None else [Seconds(getattr(v, "value", v)) for v in values]


class ArgInfo:
    """An argument."""

    def as_json(self) -> list[Any]:
        """Return it as lists, strings and numbers."""
        raise NotImplementedError

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> ArgInfo:
        """Read what :meth:`as_json` returned."""
        return TensorInfo.from_json(json_obj)

    @staticmethod
    def from_prim_func(func: tir.PrimFunc) -> list[ArgInfo]:
        """List the arguments of a function, whose shapes are constant."""
        found: list[ArgInfo] = []
        for p in func.params:
            buffer = func.buffer_of(p)
            if buffer is None or not all(isinstance(d, ir.IntImm) for d in buffer.shape):
                raise error.InvalidArgument(f"the argument '{p.name}' is no tensor of a constant shape")
            found.append(TensorInfo(str(buffer.dtype), [d.value for d in buffer.shape]))  # type: ignore[union-attr]
        return found

    @staticmethod
    def from_entry_func(mod: ir.IRModule, remove_preproc: bool = True) -> list[ArgInfo]:
        """List the arguments of a module's function ``main``, or its only one."""
        return ArgInfo.from_prim_func(entry_of(mod))


class TensorInfo(ArgInfo):
    """A tensor: its data type and shape.

    Examples
    --------
    >>> TensorInfo("float32", [2, 3])
    TensorInfo("float32", [2, 3])
    """

    def __init__(self, dtype: str, shape: Sequence[int]) -> None:
        self.dtype, self.shape = str(dtype), [int(d) for d in shape]

    def as_json(self) -> list[Any]:
        """Return ``["TENSOR", dtype, shape]``."""
        return ["TENSOR", self.dtype, self.shape]

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> TensorInfo:
        """Read what :meth:`as_json` returned."""
        kind, dtype, shape = json_obj
        if kind != "TENSOR":
            raise error.InvalidArgument("unknown kind of argument", expected="TENSOR", found=str(kind))
        return TensorInfo(str(dtype), shape)

    def __repr__(self) -> str:
        return f'TensorInfo("{self.dtype}", {self.shape})'


def entry_of(mod: ir.IRModule | tir.PrimFunc) -> tir.PrimFunc:
    """Return the function of a module that is tuned."""
    if isinstance(mod, tir.PrimFunc):
        return mod
    functions = {v.name_hint: f for v, f in mod.items() if isinstance(f, tir.PrimFunc)}
    if not functions:
        raise error.InvalidArgument("the module has no TIR function")
    return functions.get("main") or next(iter(functions.values()))


def case_of(args_info: Sequence[ArgInfo], func: tir.PrimFunc | None = None) -> tune.Case:
    """Return the call of a kernel with such arguments."""
    if func is not None and (case := tune.Case.static(func)) is not None:
        return case
    return tune.Case(
        tuple(tune.Argument(a.dtype, tuple(a.shape), True) for a in args_info if isinstance(a, TensorInfo))
    )
