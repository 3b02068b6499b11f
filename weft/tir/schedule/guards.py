"""Primitive on sums of guarded products: the guard becomes a branch, which loops that it does not depend on can leave.

Padding that is computed where it is read turns ``C += x * w`` into ``C += if_then_else(inside, x, 0) * w``.
"""

from __future__ import annotations

from weft.ir import Add, CallIntrin, FloatImm, IntImm, Mul, PrimExpr
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import BufferStore, IfThenElse


def guard_of(value: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
    """Split ``if_then_else(condition, x, 0)`` into the condition and `x`; None for anything else."""
    if not isinstance(value, CallIntrin) or getattr(value.op, "name", "") != "tir.if_then_else":
        return None
    condition, x, other = value.args
    zero = isinstance(other, (IntImm, FloatImm)) and other.value == 0
    return (condition, x) if zero else None


def skip_zeros(state: ScheduleState, name: str) -> None:
    """Turn ``C = C + if_then_else(c, x, 0) * w`` into ``if c: C = C + x * w``.

    Sums are the same but for a product of zero with an infinity or a NaN, which then is not added.
    """
    realize = state.realize(name)
    block = realize.block
    store = block.body
    if block.init is not None:
        raise refuse("skip_zeros", "the block still holds its init", block=name, help="decompose_reduction first")
    if not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        raise refuse("skip_zeros", "the block is not one sum", block=name)
    total = store.value
    own, product = (total.a, total.b) if isinstance(total.a, BufferLoad) else (total.b, total.a)
    if not isinstance(own, BufferLoad) or own.buffer is not store.buffer or not isinstance(product, Mul):
        raise refuse("skip_zeros", "the block does not add a product to what it writes", block=name)
    for guarded, factor in ((product.a, product.b), (product.b, product.a)):
        found = guard_of(guarded)
        if found is not None:
            condition, x = found
            added = replace_node(product, a=x, b=factor)
            plain = replace_node(store, value=replace_node(total, a=own, b=added))
            state.replace(block, replace_node(block, body=IfThenElse(condition, plain)))
            return
    raise refuse("skip_zeros", "no factor is zero where a condition fails", block=name)
