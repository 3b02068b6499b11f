"""Calls of kernels to be measured: what their arguments are, without the values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from weft import runtime, tir
from weft.ir import find


class Argument(NamedTuple):
    """An argument of a kernel: a tensor of random values, or with ``dtype`` ``"int"`` the number ``shape[0]``.

    ``written``: the kernel stores into it. ``cold``: no cache holds it when the kernel is called, such as the weights
    of a large model.
    """

    dtype: str
    shape: tuple[int, ...]
    written: bool = False
    cold: bool = False


class Case(NamedTuple):
    """A call of a kernel to be measured, and how many of them there are."""

    arguments: tuple[Argument, ...]
    calls: int = 1

    @classmethod
    def of(cls, func: tir.PrimFunc, values: Sequence[Any], cold: Collection[int] = ()) -> Case | None:
        """Describe a call by its arguments; None where one is neither a tensor nor an integer."""
        written = written_arguments(func)
        described: list[Argument] = []
        for i, value in enumerate(values):
            if isinstance(value, runtime.Tensor):
                shape = tuple(int(d) for d in value.shape)
                described.append(Argument(str(value.dtype), shape, i in written, i in cold and i not in written))
            elif isinstance(value, int):
                described.append(Argument("int", (int(value),)))
            else:
                return None
        return cls(tuple(described))

    @classmethod
    def static(cls, func: tir.PrimFunc) -> Case | None:
        """Describe the call of a function whose arguments have constant shapes; None where one has not."""
        written = written_arguments(func)
        described: list[Argument] = []
        for i, p in enumerate(func.params):
            buffer = func.buffer_of(p)
            sizes = [getattr(d, "value", None) for d in buffer.shape] if buffer is not None else [None]
            if buffer is None or None in sizes:
                return None
            described.append(Argument(str(buffer.dtype), tuple(int(d) for d in sizes), i in written))  # type: ignore[arg-type]
        return cls(tuple(described))


def written_arguments(func: tir.PrimFunc) -> set[int]:
    """The positions of the arguments that a function stores into."""
    stored = {n.buffer for n in find(func.body, tir.BufferStore)}
    stored |= {w.buffer for n in find(func.body, tir.Block) for w in n.writes}
    return {i for i, p in enumerate(func.params) if func.buffer_of(p) in stored}
