"""What a reduction block computes: the combiner of its outputs, read off what it stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft import arith, ir
from weft.tir.analysis import structure
from weft.tir.analysis.access import loads_of
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.reduce import CommReducer
from weft.tir.stmt import Block, BufferStore, LetStmt, SeqStmt, Stmt

COMBINERS = {ir.Add: "sum", ir.Mul: "prod", ir.Max: "max", ir.Min: "min"}
"""Binary nodes that are commutative and associative, and the name of the reduction each makes."""

_FLIPPED = {ir.GT: ir.LT, ir.GE: ir.LE, ir.LT: ir.GT, ir.LE: ir.GE}


class Reduction(NamedTuple):
    """What a reduction block computes: `reducer` joins `buffers` at `indices` with `values`."""

    reducer: CommReducer
    buffers: tuple[Buffer, ...]
    values: tuple[ir.PrimExpr, ...]
    indices: tuple[ir.PrimExpr, ...]


def reduction_of(block: Block) -> Reduction | str:
    """Recognise sums, products, extrema, and choices of several values by the order of one of them.

    Parameters
    ----------
    block : Block
        Sets its outputs and updates them, in stores whose values may be bound first.

    Returns
    -------
    Reduction or str
        What it computes; or why it is no such reduction.

    Notes
    -----
    Parts may be joined in any order, so that of equal values another may be chosen than in the order of the loops.
    """
    inits, updates = _stores(block.init), _stores(block.body)
    if inits is None or updates is None:
        return "it consists of more than stores"
    first = {s.buffer: s for s in inits}
    order = [s.buffer for s in updates]
    if set(order) != set(first) or not len(set(order)) == len(order) == len(inits):
        return "it does not set and update the same elements"
    if not all(ir.structural_equal(s.indices, updates[0].indices) for s in (*updates, *inits)):
        return "it updates several buffers at different places"
    values = [joined(s) for s in updates]
    if any(v is None or any(n.buffer in first for n in ir.find(v, BufferLoad)) for v in values):
        return "its update is no sum, product, extremum or choice of its old value and a new one"
    left = tuple(ir.Var(f"x{i}", s.buffer.dtype) for i, s in enumerate(updates))
    right = tuple(ir.Var(f"y{i}", s.buffer.dtype) for i, s in enumerate(updates))

    results = tuple(_over(k, updates, values, left, right) for k in range(len(updates)))
    if not structure.used_vars(results) <= {*left, *right} or ir.find(results, BufferLoad):
        return "its update is more than its old value and a new one"
    if not _is_one_order(results, left, right):
        return "its choices are not by the order of one of its values"
    reducer = CommReducer(left, right, results, tuple(first[b].value for b in order))
    return Reduction(reducer, tuple(order), tuple(v for v in values if v is not None), updates[0].indices)


def _over(
    k: int,
    updates: Sequence[BufferStore],
    values: Sequence[ir.PrimExpr | None],
    left: Sequence[ir.Var],
    right: Sequence[ir.Var],
) -> ir.PrimExpr:
    """Return the value of a store with `left` for old values and `right` for new ones, of equal ones its own."""
    new = sorted(zip(values, right, strict=True), key=lambda pair: pair[1] is not right[k])

    def rule(node: ir.Node) -> Any:
        for value, y in new:
            if isinstance(node, ir.PrimExpr) and ir.structural_equal(node, value):
                return y
        for s, x in zip(updates, left, strict=True):
            if isinstance(node, BufferLoad) and _is_own(node, s):
                return x
        return None

    return ir.rewrite(updates[k].value, lambda n: n, pre=rule)


def _stores(stmt: Stmt | None) -> list[BufferStore] | None:
    """List the stores of a sequence, with the values of bindings in the place of their variables."""
    if isinstance(stmt, LetStmt):
        return _stores(ir.substitute(stmt.body, {stmt.var: stmt.value}))
    if isinstance(stmt, SeqStmt):
        parts = [_stores(x) for x in stmt.seq]
        return None if None in parts else [s for part in parts if part is not None for s in part]
    return [stmt] if isinstance(stmt, BufferStore) else None


def joined(store: BufferStore) -> ir.PrimExpr | None:
    """Return what an update joins with the old value, and does not depend on it; None of another store."""
    value: Any = store.value
    sides = ()
    if type(value) in COMBINERS:
        sides = (value.a, value.b)
    elif isinstance(value, ir.Select):
        sides = (value.true_value, value.false_value)
    own = [_is_own(x, store) for x in sides]
    other = sides[own.index(False)] if sum(own) == 1 else None
    return None if other is None or loads_of(other, store.buffer) else other


def _is_own(e: ir.PrimExpr, store: BufferStore) -> bool:
    if not isinstance(e, BufferLoad) or e.buffer is not store.buffer:
        return False
    same = arith.Analyzer().can_prove_equal
    return all(a is b or same(a, b) for a, b in zip(e.indices, store.indices, strict=True))


def _is_one_order(results: Sequence[ir.PrimExpr], left: Sequence[ir.Var], right: Sequence[ir.Var]) -> bool:
    """Whether all choices among `results` are made by the order of the same value, so that they go together.

    Values other than that one are chosen by the same condition, whatever it says of equal ones.
    """
    swap = dict(zip((*left, *right), (*right, *left), strict=True))
    orders: list[tuple[int, bool]] = []
    others: list[ir.PrimExpr] = []
    for i, r in enumerate(results):
        if not isinstance(r, ir.Select):
            continue
        wins = r.condition if r.true_value is left[i] else ir.substitute(r.condition, swap)
        order = _order(wins, left, right)
        if order is None:
            return False
        orders.append(order)
        others += [wins] if order[0] != i else []
    return len(set(orders)) <= 1 and all(ir.structural_equal(others[0], o) for o in others)


def _order(wins: ir.PrimExpr, left: Sequence[ir.Var], right: Sequence[ir.Var]) -> tuple[int, bool] | None:
    """Return by which value, and whether by the greater, `left` wins; None of a condition that is no order."""
    if isinstance(wins, ir.Or) and isinstance(wins.b, ir.And):
        first, equal = _order(wins.a, left, right), wins.b.a
        if first is None or _order(wins.b.b, left, right) is None or not isinstance(equal, ir.EQ):
            return None
        return first if {equal.a, equal.b} == {left[first[0]], right[first[0]]} else None
    if not isinstance(wins, (ir.GT, ir.GE, ir.LT, ir.LE)):
        return None
    a, b, kind = wins.a, wins.b, type(wins)
    if a in right:
        a, b, kind = b, a, _FLIPPED[kind]
    at = next((i for i, (x, y) in enumerate(zip(left, right, strict=True)) if a is x and b is y), None)
    return None if at is None else (at, kind in (ir.GT, ir.GE))
