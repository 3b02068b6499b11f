"""Primitive on sums of guarded products: the guard becomes a branch, which loops that it does not depend on can leave.

Padding that is computed where it is read turns ``C += x * w`` into ``C += if_then_else(inside, x, 0) * w``.
"""

from __future__ import annotations

from typing import NamedTuple

from weft import ir
from weft.ir import LE, LT, Add, CallIntrin, FloatImm, IntImm, Mul, PrimExpr, Var
from weft.tir.analysis.access import evaluate_interval
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of, reduce_vars, writes_buffer
from weft.tir.analysis.structure import conjuncts, iter_values_of, replace_node, used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, IfThenElse


def guard_of(value: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
    """Split ``if_then_else(condition, x, 0)`` into the condition and `x`; None for anything else."""
    if not isinstance(value, CallIntrin) or getattr(value.op, "name", "") != "tir.if_then_else":
        return None
    condition, x, other = value.args
    zero = isinstance(other, (IntImm, FloatImm)) and other.value == 0
    return (condition, x) if zero else None


def skip_zeros(state: ScheduleState, name: str) -> None:
    """Turn ``C = C + if_then_else(c, x, 0) * w`` into ``if c: C = C + x * w``.

    Where a block before stores the zeros, iterations run inside the first summed loop as long as one of them reads
    something else. Sums are the same but for a product of zero with an infinity or a NaN, which then is not added.
    """
    realize = state.realize(name)
    block = realize.block
    store = block.body
    if block.init is not None:
        raise refuse("the block still holds its init", block=name, help="decompose_reduction first")
    if not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        raise refuse("the block is not one sum", block=name)
    total = store.value
    own, product = (total.a, total.b) if isinstance(total.a, BufferLoad) else (total.b, total.a)
    if not isinstance(own, BufferLoad) or own.buffer is not store.buffer or not isinstance(product, Mul):
        raise refuse("the block does not add a product to what it writes", block=name)
    for guarded, factor in ((product.a, product.b), (product.b, product.a)):
        found = guard_of(guarded)
        if found is not None:
            condition, x = found
            added = replace_node(product, a=x, b=factor)
            plain = replace_node(store, value=replace_node(total, a=own, b=added))
            state.replace(block, replace_node(block, body=IfThenElse(condition, plain)))
            return
        tests = _stored_guard(state, realize, guarded)
        if tests:
            guard = ir.all_of(realize.predicate, *[t.holds for t in tests])
            state.replace(realize, replace_node(realize, predicate=guard))
            _leave_unread(state, tests[0].maker)
            return
    raise refuse("no factor is zero where a condition fails", block=name)


class _Test(NamedTuple):
    """What `holds` where a block reads no mere zeros of its `maker`, and whether it `decides` the `condition`."""

    maker: Block
    condition: PrimExpr
    holds: PrimExpr
    decides: bool


def _leave_unread(state: ScheduleState, maker: Block) -> None:
    """Leave out zeros of a block that all its readers skip: rows of padding above and below an image."""
    left: list[PrimExpr] | None = None
    for reader in consumers_of(maker, state.root):
        store = reader.block.body
        loads = [x for x in ir.find(store, BufferLoad) if any(x.buffer is r.buffer for r in maker.writes)]
        tests = _stored_guard(state, reader, loads[0]) if len(loads) == 1 else []
        kept = conjuncts(reader.predicate)
        known = [t.condition for t in tests if t.decides and any(ir.structural_equal(t.holds, k) for k in kept)]
        left = known if left is None else [c for c in left if c in known]
    if left and not any(state.is_argument(w.buffer) for w in maker.writes):  # those the caller reads
        realize = state.realize(maker.name_hint)
        inside = ir.substitute(ir.all_of(*left), iter_values_of(realize))
        state.replace(realize, replace_node(realize, predicate=ir.all_of(realize.predicate, inside)))


def _stored_guard(state: ScheduleState, realize: BlockRealize, factor: PrimExpr) -> list[_Test]:
    """Return what holds, inside the first summed loop, where a factor is not zero as a block before stores it."""
    if not isinstance(factor, BufferLoad):
        return []
    makers = [p.block for p in producers_of(realize.block, state.root) if writes_buffer(p.block, factor.buffer)]
    made = is_plain_store(makers[0]) if len(makers) == 1 else None
    guard = guard_of(made.value) if made is not None else None
    if made is None or guard is None:
        return []
    values, summed = iter_values_of(realize), set(reduce_vars(realize.block))
    at = {i: ir.substitute(x, values) for i, x in zip(made.indices, factor.indices, strict=True) if isinstance(i, Var)}
    loops, reducing = state.loops_of(realize.block.name_hint), used_vars(*(x for v, x in values.items() if v in summed))
    first = next((i for i, x in enumerate(loops) if x.loop_var in reducing), len(loops))
    domains = {x.loop_var: (x.min, x.min + x.extent - 1) for x in loops[first:] if x.loop_var not in reducing}
    own = {iv.var for iv in makers[0].iter_vars} - set(at)
    tests = [c for c in conjuncts(guard[0]) if isinstance(c, LE | LT) and not used_vars(c) & own]
    ends = [(c, [evaluate_interval(ir.substitute(x, at), domains) for x in (c.a, c.b)]) for c in tests]
    return [
        _Test(makers[0], c, a[0] <= b[1] if isinstance(c, LE) else a[0] < b[1], a[0] is a[1] and b[0] is b[1])
        for c, (a, b) in ends
        if a and b
    ]
