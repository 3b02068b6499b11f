"""Attention as one kernel: recognised by what the blocks of a function compute, never by their names.

``O[i, d] = sum_j(softmax_j(f(sum_k Q[i, k] * K[j, k], i, j)) * V[j, d])`` for each batch and head, where ``f`` scales,
adds a bias or masks. Layouts are free: an operand is whatever load stands in the sum, so heads may be taken from the
middle of a row of all heads, from one tensor of queries, keys and values, or from a cache with heads first. Keys and
values may be of two tensors, ``if_then_else(j < n, past[j], new[j - n])``, as where a cache grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from weft import ir
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.dependence import is_data_parallel, is_plain_store
from weft.tir.analysis.pattern import Contraction, contraction_of, without_casts
from weft.tir.analysis.structure import child_realizes, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.schedule.reduction import combiner_of, numeric_max
from weft.tir.stmt import Block, BufferStore


@dataclass(frozen=True)
class AttentionParts:
    """An attention in a function, all of it in terms of the variables of the last sum.

    Attributes
    ----------
    outer : tuple of (Var, PrimExpr)
        The variables of batches and heads, with their extents.
    query, key, depth, column : (Var, PrimExpr)
        The variables ``i``, ``j``, ``k``, ``d`` with their extents.
    q, k, v : BufferLoad
        The operands of the two sums.
    score : BufferLoad
        What stands in `masked` for the first sum.
    masked : PrimExpr
        ``f``: what the softmax is taken of.
    store : BufferStore
        The last sum's store, for its buffer and indices.
    unseen : bool
        Whether queries that see no key give 0; else they give NaN.
    past : (PrimExpr, BufferLoad, BufferLoad) or None
        How many keys come before those of `k` and `v`, and the operands in their place for these.
    """

    outer: tuple[tuple[ir.Var, ir.PrimExpr], ...]
    query: tuple[ir.Var, ir.PrimExpr]
    key: tuple[ir.Var, ir.PrimExpr]
    depth: tuple[ir.Var, ir.PrimExpr]
    column: tuple[ir.Var, ir.PrimExpr]
    q: BufferLoad
    k: BufferLoad
    v: BufferLoad
    score: BufferLoad
    masked: ir.PrimExpr
    store: BufferStore
    unseen: bool
    past: tuple[ir.PrimExpr, BufferLoad, BufferLoad] | None = None


def attention_of(func: PrimFunc) -> AttentionParts | None:
    """Recognise a function that is one attention in float32, or return None."""
    tests: list[tuple[ir.Var, ir.PrimExpr]] = []
    found = _recognised(_one_side(func, 2, tests))
    if found is None or not tests:
        return None if found is None else found[0]
    before = _recognised(_one_side(func, 1, []))
    parts, keys = found
    n = tests[0][1]
    right = len(tests) == 2 and {v for v, _ in tests} == set(keys) and ir.structural_equal(n, tests[1][1])
    if before is None or not right or used_vars(n) & {v for v, _ in parts.outer}:
        return None
    return replace(parts, past=(n, before[0].k, before[0].v))


def _one_side(func: PrimFunc, side: int, tests: list[tuple[ir.Var, ir.PrimExpr]]) -> PrimFunc:
    """Take one of the loads wherever a comparison of a variable chooses between two, and note the comparisons."""

    def pick(node: Any) -> Any:
        if node.op.name != "tir.if_then_else":
            return node
        test, *loads = node.args
        var, end = (test.b, test.a) if isinstance(test, ir.GT) else (getattr(test, "a", None), getattr(test, "b", None))
        if not isinstance(test, (ir.GT, ir.LT)) or not isinstance(var, ir.Var) or end is None or var in used_vars(end):
            return node
        if not all(isinstance(x, BufferLoad) for x in loads):
            return node
        tests.append((var, end))
        return node.args[side]

    return func.replace(body=ir.rewrite(func.body, pick, only=(ir.CallIntrin,)))


def _recognised(func: PrimFunc) -> tuple[AttentionParts, tuple[Any, Any]] | None:
    """Recognise an attention, and find the variables of keys in both sums."""
    realizes = child_realizes(func.root)
    makers: dict[Buffer, Block] = {}
    for r in realizes:
        if not all(isinstance(v, ir.Var) for v in r.iter_values) or len(r.block.writes) != 1:
            return None
        makers[r.block.writes[0].buffer] = r.block
    blocks = [r.block for r in realizes]
    if len(blocks) < 7 or len(makers) != len(blocks):
        return None
    last = contraction_of(blocks[-1])
    if last is None or len(last.reduce) != 1 or last.output.buffer.dtype != "float32":
        return None
    found = _softmax(last.a, makers)
    if found is None:
        return None
    masked, used, unseen = found
    first = _scores(masked, makers)
    if first is None or used + 1 + (first[0].block is not masked) != len(blocks) - 1:
        return None
    parts = _assemble(last, masked, *first, unseen)
    keys = [i for i in _variables(first[0].output) if isinstance(i, ir.Var)]
    return None if parts is None or not keys else (parts, (keys[-1], parts.key[0]))


def _softmax(weights: BufferLoad, makers: dict[Buffer, Block]) -> tuple[Block, int, bool] | None:
    """Find the block whose values the softmax is taken of, the number of its blocks, and whether it may be all 0."""
    norm = _value(makers.get(weights.buffer))
    if not isinstance(norm, ir.Mul) or not isinstance(norm.a, BufferLoad) or not isinstance(norm.b, BufferLoad):
        return None
    block = makers[weights.buffer]
    inverse, e = makers.get(norm.b.buffer), makers.get(norm.a.buffer)
    by, power = _value(inverse), _value(e)
    guarded = _unless_zero(by)
    by = by if guarded is None else guarded
    if (
        not isinstance(by, ir.Div)
        or not isinstance(by.a, ir.FloatImm)
        or by.a.value != 1
        or not isinstance(by.b, BufferLoad)
    ):
        return None
    total = makers.get(by.b.buffer)
    if not isinstance(power, ir.CallIntrin) or power.op.name != "tir.exp" or not isinstance(power.args[0], ir.Sub):
        return None
    x, top = _unbounded(power.args[0]), power.args[0].b
    if not isinstance(x, BufferLoad) or not isinstance(top, BufferLoad):
        return None
    highest, masked = makers.get(top.buffer), makers.get(x.buffer)
    if masked is None or not (inverse and e and total and highest):
        return None
    rows = [(block, norm.b), (e, top), (inverse, by.b)]
    same = [(block, norm.a), (e, x)]
    right = (
        all(_in_order(b, load) for b, load in same)
        and all(_in_order(b, load, short=b is not inverse) for b, load in rows)
        and _reduces(total, norm.a.buffer, ir.Add)
        and _reduces(highest, x.buffer, ir.Max, numeric_max)
    )
    return (masked, 5, guarded is not None) if right else None


def _unbounded(less: ir.Sub) -> ir.PrimExpr:
    """Return the `x` of ``(top if x > top else x) - top``: scores that are stored are at most their greatest."""
    value = less.a
    if not isinstance(value, ir.Select) or not isinstance(value.condition, (ir.GT, ir.LT)):
        return value
    pair = value.condition.a, value.condition.b
    parts = zip(pair if isinstance(value.condition, ir.GT) else pair[::-1], (value.false_value, less.b), strict=True)
    same = ir.structural_equal(value.true_value, less.b) and all(ir.structural_equal(a, b) for a, b in parts)
    return value.false_value if same else value


def _unless_zero(value: Any) -> ir.Div | None:
    """Return the quotient of ``0 if total == 0 else 1 / total``."""
    test, quotient = getattr(value, "condition", None), getattr(value, "false_value", None)
    if not isinstance(test, ir.EQ) or not isinstance(quotient, ir.Div):
        return None
    zeros = all(isinstance(x, ir.FloatImm) and x.value == 0 for x in (test.b, value.true_value))
    return quotient if zeros and ir.structural_equal(test.a, quotient.b) else None


def _value(block: Block | None) -> ir.PrimExpr | None:
    store = is_plain_store(block) if block is not None and is_data_parallel(block) else None
    return None if store is None else store.value


def _in_order(block: Block, load: BufferLoad, short: bool = False) -> bool:
    """Whether a block loads at its own variables, in order; with `short`, at 0 in place of the last."""
    own = [iv.var for iv in block.iter_vars]
    indices = [without_casts(i) for i in load.indices]
    if len(own) != len(indices) or (short and not ir.is_const_int(indices[-1], 0)):
        return False
    ends = len(own) - 1 if short else len(own)
    return all(_at(i, v, e) for i, v, e in zip(indices[:ends], own, load.buffer.shape, strict=False))


def _reduces(block: Block, source: Buffer, *combiners: Any) -> bool:
    """Whether a block combines the elements of a buffer along its last dimension."""
    found = combiner_of(block)
    if found is None or found[0] not in combiners or not isinstance(found[2], BufferLoad):
        return False
    load = found[2]
    own = [iv.var for iv in block.iter_vars]
    indices = [without_casts(i) for i in load.indices]
    if load.buffer is not source or len(own) != len(indices) + 1 or block.iter_vars[-1].iter_type != "reduce":
        return False
    wanted = [*own[: len(indices) - 1], own[-1]]
    return all(_at(i, v, e) for i, v, e in zip(indices, wanted, source.shape, strict=True))


def _at(index: ir.PrimExpr, var: ir.Var, extent: ir.PrimExpr) -> bool:
    return index is var or (ir.is_const_int(index, 0) and ir.is_const_int(extent, 1))


def _scores(masked: Block, makers: dict[Buffer, Block]) -> tuple[Contraction, BufferLoad] | None:
    """Find the first sum, and where the masked scores load it: at their own variables, once."""
    direct = contraction_of(masked)
    if direct is not None:
        store = direct.output
        return direct, BufferLoad(store.buffer, store.indices)
    value = _value(masked)
    loads = [x for x in loads_of(value) if x.buffer in makers] if value is not None else []
    if not loads or any(x.buffer is not loads[0].buffer for x in loads) or not all(_in_order(masked, x) for x in loads):
        return None
    first = contraction_of(makers[loads[0].buffer])
    return None if first is None else (first, loads[0])


def _assemble(
    last: Contraction, masked: Block, first: Contraction, score: BufferLoad, unseen: bool
) -> AttentionParts | None:
    """Write everything in the variables of the last sum."""
    extents = {iv.var: iv.dom.extent for iv in last.block.iter_vars if iv.dom is not None}
    weights = [without_casts(i) for i in last.a.indices]
    j, column = last.reduce[0], last.vector
    if len(first.reduce) != 1 or not weights or weights[-1] is not j:
        return None
    own = [i for i in weights if isinstance(i, ir.Var)]
    rows = [v for v in last.rows if v in own]
    if len(own) != len(weights) or len(rows) != 1 or last.columns != [column] or weights[-2] is not rows[0]:
        return None
    depth = first.reduce[0]
    extents |= {iv.var: iv.dom.extent for iv in first.block.iter_vars if iv.dom is not None and iv.var is depth}
    if ir.as_int(extents[depth]) is None or ir.as_int(extents[column]) is None:
        return None
    names = dict(zip(_variables(first.output), weights, strict=False))
    q: Any = ir.substitute(first.a, names)
    k: Any = ir.substitute(first.b, names)
    value: Any = score
    if first.block is not masked:
        value = _value(masked)
        inside = dict(zip([iv.var for iv in masked.iter_vars], weights, strict=True))
        score, value = ir.substitute(score, inside), ir.substitute(value, inside)
    if not all(isinstance(x, BufferLoad) for x in (q, k, score)):
        return None
    i = rows[0]
    right = (
        {i, depth} <= used_vars(q)
        and j not in used_vars(q)
        and {j, depth} <= used_vars(k)
        and i not in used_vars(k)
        and all(b.dtype == "float32" for b in (q, k, last.b))
        and first.output.buffer.dtype == "float32"
    )
    if not right or value is None:
        return None
    outer = tuple((v, extents[v]) for v in own[:-2])
    return AttentionParts(
        outer,
        (i, extents[i]),
        (j, extents[j]),
        (depth, extents[depth]),
        (column, extents[column]),
        q,
        k,
        last.b,
        score,
        value,
        last.output,
        unseen,
    )


def _variables(store: BufferStore) -> list[Any]:
    return [without_casts(i) for i in store.indices]
