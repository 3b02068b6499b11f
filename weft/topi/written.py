"""Tensors that a program writes, where no expression says each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te, tir
from weft.topi.typing import Buffers, Shape


def written(
    shape: Shape | Sequence[Shape],
    inputs: Sequence[te.Tensor],
    body: Callable[[Any, Any, Any], None],
    name: str,
    dtype: str | Sequence[str],
) -> Any:
    """Return the tensor, or the tensors, that ``body(ib, ins, outs)`` writes with an IR builder."""

    def program(ins: Buffers, outs: Buffers) -> Any:
        ib = tir.ir_builder.create()
        body(ib, ins, outs)
        return ib.get()

    return te.extern(shape, inputs, program, name=name, dtype=dtype)


def in_pairs(values: Sequence[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Combine values in pairs, so that they do not wait for each other."""
    left = list(values)
    while len(left) > 1:
        left = [join(*left[i : i + 2]) if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)]
    return left[0]
