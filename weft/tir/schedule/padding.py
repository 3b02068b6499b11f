"""decompose_padding: a block that pads becomes one that fills with the padding and one that copies what is inside."""

from __future__ import annotations

from weft import arith, error, ir
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.cover import covers_domain
from weft.tir.analysis.dependence import is_complete, is_plain_store, reads_buffer
from weft.tir.analysis.structure import (
    around,
    child_realizes,
    conjuncts,
    init_nest,
    replace_node,
    subst_stmt,
    used_vars,
)
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt, seq


def can_decompose_padding(state: ScheduleState, name: str, var: ir.Var) -> bool:
    """Whether :func:`decompose_padding` would take the block apart."""
    before = state.func
    try:
        decompose_padding(state, name, var)
    except error.ScheduleError:
        return False
    finally:
        state.func = before
    return True


def decompose_padding(state: ScheduleState, name: str, var: ir.Var) -> str:
    """Fill the part of the result that is made under a loop with the padding before it, then copy what lies inside.

    The block stores ``if_then_else(inside, x, padding)`` with bounds on its variables as the condition, and a padding
    that is one number. Returns the name of the block that fills.
    """
    path, scope, realize = state.located(name)
    block, loops = realize.block, state.loops_of(name)
    at = next((i for i, f in enumerate(loops) if f.loop_var is var), None)
    if at is None:
        raise refuse("the loop is not around the block", loops=[var.name], block=name)
    store, condition, inside, padding = _padded(realize, scope)
    box = _box(block, condition)
    if all(ir.structural_equal(box[iv.var], iv.dom) for iv in block.iter_vars):
        raise refuse(f"nothing lies outside of {condition}", block=name)
    _may_fill_first(state, path, scope, loops, at)
    nest = _perfect_tail(loops[at:], realize)
    first = path.index(nest[0] if nest else path[-1])
    outside = state.analyzer_at(path[:first], inside=True)
    realize = replace_node(realize, iter_values=tuple(map(outside.simplify, realize.iter_values)))
    fill_name = state.fresh_name(f"{name}_pad_const")
    filling = replace_node(block, init=replace_node(store, value=padding), reads=())
    fill = init_nest(replace_node(realize, block=filling), loops[at:], fill_name)
    copied = replace_node(block, body=replace_node(store, value=inside))
    copy = _copy(nest, replace_node(realize, block=copied), box, outside)
    below = ir.substitute(loops[at], {path[first]: copy}) if len(nest) < len(loops) - at else copy
    state.replace(loops[at], seq(fill, below))
    current, accesses, simple = state.realize(name).block, (BufferLoad, BufferStore), arith.Analyzer().simplify

    def rule(n: object) -> object:
        return replace_node(n, indices=tuple(map(simple, n.indices))) if isinstance(n, accesses) else n

    state.replace(current, refresh_accesses(state, ir.rewrite(current, rule), name))
    return fill_name


def _may_fill_first(state: ScheduleState, path: list[Stmt], scope: Block, loops: list[For], at: int) -> None:
    """Refuse where the padding, stored for all iterations of a loop before the first of them, changes what is read."""
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    name, (written,) = realize.block.name_hint, realize.block.writes
    own = {f.loop_var for f in loops}
    if not used_vars(realize.block).isdisjoint(own):
        raise refuse("the block uses loops that none of its variables stands for", block=name)
    if not own & used_vars(realize.predicate) <= used_vars(*realize.iter_values):
        raise refuse(f"the condition {realize.predicate} is on loops that no variable of the block uses", block=name)
    if any(not isinstance(s, (For, SeqStmt, BlockRealize)) for s in path[path.index(loops[at]) :]):
        raise refuse("a condition or a definition stands between the loop and the block", loops=loops[at], block=name)
    order = child_realizes(loops[at])
    if any(reads_buffer(r.block, written.buffer) for r in order[: order.index(realize)]):
        raise refuse(f"'{written.buffer.name}' is read before it is made", loops=loops[at], block=name)
    together = [f for f in loops[:at] if f.kind not in (ForKind.SERIAL, ForKind.UNROLLED)]
    if together and not covers_domain(path, state.analyzer_at(path)):
        raise refuse(
            "iterations that run at the same time may fill what others have copied", loops=together[0], block=name
        )


def _perfect_tail(loops: list[For], realize: BlockRealize) -> list[For]:
    """Return the innermost loops, which hold the block and nothing else."""
    tail: list[For] = []
    below: Stmt = realize
    for f in reversed(loops):
        if f.body is not below:
            break
        tail.insert(0, f)
        below = f
    return tail


def _copy(nest: list[For], realize: BlockRealize, box: dict[ir.Var, ir.Range], known: arith.Analyzer) -> Stmt:
    """Build the loops that run a block inside a box: shorter ones where a loop is a variable, else with conditions."""
    block = realize.block
    ranges = {f.loop_var: (f.min, f.extent) for f in nest}
    for f in nest:
        known.bind(f.loop_var, ir.Range.from_min_extent(f.min, f.extent))
    values, iter_vars = [], []
    predicate: ir.PrimExpr = realize.predicate
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        inside, uses = box[iv.var], sum(value in used_vars(v) for v in realize.iter_values if isinstance(value, ir.Var))
        assert iv.dom is not None
        whole = ir.structural_equal((inside.min, inside.extent), (iv.dom.min, iv.dom.extent))
        if (
            not whole
            and isinstance(value, ir.Var)
            and value in ranges
            and uses == 1
            and value not in used_vars(realize.predicate)
            and ir.structural_equal(ranges[value], (ir.const(0, value.dtype), ir.cast(value.dtype, iv.dom.extent)))
            and ir.is_const_int(iv.dom.min, 0)
        ):
            ranges[value] = (ir.const(0, value.dtype), ir.cast(value.dtype, inside.extent))
            values.append(value)
            iter_vars.append(replace_node(iv, dom=ir.Range.from_min_extent(ir.const(0, iv.dtype), inside.extent)))
            block = _subst_body(block, {iv.var: iv.var + inside.min})
            continue
        if not whole:
            low, high = value >= inside.min, value < inside.min + inside.extent
            predicate = ir.logical_and(predicate, high if known.can_prove(low) else ir.logical_and(low, high))
        values.append(value)
        iter_vars.append(iv)
    body: Stmt = BlockRealize(tuple(values), predicate, replace_node(block, iter_vars=tuple(iter_vars)))
    return around([replace_node(f, min=ranges[f.loop_var][0], extent=ranges[f.loop_var][1]) for f in nest], body)


def _subst_body(block: Block, mapping: dict[ir.Var, ir.PrimExpr]) -> Block:
    """Replace variables in what a block runs and touches."""
    return replace_node(
        block,
        body=subst_stmt(block.body, mapping),
        reads=subst_stmt(block.reads, mapping),
        writes=subst_stmt(block.writes, mapping),
    )


def _padded(realize: BlockRealize, scope: Block) -> tuple[BufferStore, ir.PrimExpr, ir.PrimExpr, ir.PrimExpr]:
    """Return the store of a block, the condition, what is stored inside and what outside."""
    block, name = realize.block, realize.block.name_hint
    store = is_plain_store(block)
    if store is None or not is_complete(realize, scope):
        raise refuse("the block is not one element-wise store", block=name)
    value = store.value
    if isinstance(value, ir.Select):
        condition, inside, padding = value.condition, value.true_value, value.false_value
    elif isinstance(value, ir.CallIntrin) and getattr(value.op, "name", "") == "tir.if_then_else":
        condition, inside, padding = value.args
    else:
        raise refuse("the block does not store if_then_else(inside, x, padding)", block=name)
    if used_vars(padding) or loads_of(padding):
        raise refuse(f"the padding {padding} is not one number", block=name)
    return store, condition, inside, padding


def _box(block: Block, condition: ir.PrimExpr) -> dict[ir.Var, ir.Range]:
    """Return the range of each variable of the block inside the padding."""
    low = {iv.var: iv.dom.min for iv in block.iter_vars if iv.dom is not None}
    high = {iv.var: iv.dom.min + iv.dom.extent for iv in block.iter_vars if iv.dom is not None}
    own = set(low)
    for c in conjuncts(condition):
        bound = _bound(c, own)
        if bound is None:
            raise refuse(
                f"the condition {c} is not a bound on one variable",
                block=block.name_hint,
                help="conditions like v >= 1 and v < n + 1 are understood",
            )
        v, least, end = bound
        low[v] = low[v] if least is None else ir.max_(low[v], least)
        high[v] = high[v] if end is None else ir.min_(high[v], end)
    analyzer = arith.Analyzer()
    return {
        v: ir.Range.from_min_extent(
            analyzer.simplify(low[v]), analyzer.simplify(ir.max_(high[v] - low[v], ir.const(0, v.dtype)))
        )
        for v in low
    }


def _bound(c: ir.PrimExpr, own: set[ir.Var]) -> tuple[ir.Var, ir.PrimExpr | None, ir.PrimExpr | None] | None:
    """Read ``v >= a``, ``v < a`` and the like; ``v + k`` and ``v - k`` move the number to the other side."""
    if not isinstance(c, (ir.LT, ir.LE, ir.GT, ir.GE)):
        return None
    a, b, kind = c.a, c.b, type(c)
    if used_vars(a).isdisjoint(own):
        a, b, kind = b, a, {ir.LT: ir.GT, ir.LE: ir.GE, ir.GT: ir.LT, ir.GE: ir.LE}[kind]
    if not used_vars(b).isdisjoint(own):
        return None
    if not isinstance(a, ir.Var):
        moved = [v for v in used_vars(a) & own]
        if len(moved) != 1:
            return None
        rest = ir.substitute(a, {moved[0]: ir.const(0, a.dtype)})
        if not _is_shift(a, moved[0]):
            return None
        a, b = moved[0], b - rest
    if kind in (ir.GE, ir.GT):
        return a, b if kind is ir.GE else b + 1, None
    return a, None, b if kind is ir.LT else b + 1


def _is_shift(expr: ir.PrimExpr, v: ir.Var) -> bool:
    return isinstance(expr, (ir.Add, ir.Sub)) and (expr.a is v or (isinstance(expr, ir.Add) and expr.b is v))
