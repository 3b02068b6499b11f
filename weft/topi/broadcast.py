"""Element-wise and broadcasting computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import PrimExpr, as_int, const, equal, if_then_else, select
from weft.te import Tensor, compute
from weft.topi.shape import equal_dims


def broadcast_shape(*shapes: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """Broadcast shapes by NumPy's rule; of those that may or may not be 1, the other is taken at run time."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[PrimExpr] = []
    for i in range(-rank, 0):
        result: PrimExpr | None = None
        for s in shapes:
            if len(s) < -i:
                continue
            d = s[i]
            if result is None or as_int(result) == 1:
                result = d
            elif as_int(d) == 1 or equal_dims(d, result):
                continue
            elif as_int(d) is not None:
                result = d
            elif as_int(result) is None:
                result = select(equal(result, 1), d, result)
        assert result is not None
        out.append(result)
    return tuple(out)


def broadcast_index(
    shape: Sequence[PrimExpr], out_shape: Sequence[PrimExpr], indices: Sequence[Any]
) -> tuple[Any, ...]:
    """Map the indices of a broadcast result to those of an operand.

    Where equality is not provable, decide at run time.
    """
    out: list[Any] = []
    offset = len(out_shape) - len(shape)
    for d, extent in enumerate(shape):
        i = indices[offset + d]
        if as_int(extent) == 1:
            out.append(i if as_int(out_shape[offset + d]) == 1 else const(0, i.dtype))
        elif equal_dims(extent, out_shape[offset + d]):
            out.append(i)
        else:
            out.append(if_then_else(extent == 1, const(0, i.dtype), i))
    return tuple(out)


def elementwise(fn: Callable[..., PrimExpr], *operands: Any, name: str = "T_elementwise") -> Tensor:
    """Apply a scalar function to tensors, broadcasting them; other operands are scalars."""
    shape = broadcast_shape(*(t.shape for t in operands if isinstance(t, Tensor)))

    def element(*i: Any) -> PrimExpr:
        return fn(*(t(*broadcast_index(t.shape, shape, i)) if isinstance(t, Tensor) else t for t in operands))

    return compute(shape, element, name=name)


def broadcast_to(data: Tensor, shape: Sequence[PrimExpr], name: str = "T_broadcast_to") -> Tensor:
    """Repeat a tensor along dimensions of extent 1."""
    return compute(tuple(shape), lambda *i: data(*broadcast_index(data.shape, shape, i)), name=name)
