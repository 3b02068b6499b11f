"""Primitives on reductions.

Decompose_reduction splits off the init, rfactor turns a reduction loop into a spatial one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, ir
from weft.tir.analysis import structure
from weft.tir.analysis.access import access_regions
from weft.tir.analysis.apart import instances_apart
from weft.tir.analysis.dependence import is_reduction, touches
from weft.tir.analysis.reductions import Reduction, joined, reduction_of
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, LetStmt, SeqStmt, Stmt, seq


def numeric_max(a: ir.PrimExpr, b: ir.PrimExpr) -> ir.PrimExpr:
    """``a if a > b else b``: the maximum where NaN need not win, one instruction instead of three."""
    return ir.Select(ir.GT(a, b), a, b)


_IDENTITY: dict[type, int] = {ir.Add: 0, ir.Mul: 1}


def _is_number(value: ir.PrimExpr, number: int) -> bool:
    return isinstance(value, (ir.IntImm, ir.FloatImm)) and value.value == number


def decompose_reduction(state: ScheduleState, name: str, var: ir.Var) -> tuple[str, str]:
    """Put the init of a reduction into a block of its own before a loop.

    Returns the names of the init and the update block.
    """
    _, scope, realize = state.located(name)
    block = realize.block
    if block.init is None:
        raise refuse("the block has no init", block=name)
    if not is_reduction(realize, scope):
        raise refuse("the block is not a whole reduction", block=name)
    loops = state.loops_of(name)
    at = next((i for i, f in enumerate(loops) if f.loop_var is var), None)
    if at is None:
        raise refuse("the loop is not around the block", loops=[var.name], block=name)
    reducing: set[ir.Var] = set()
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type == "reduce":
            reducing |= structure.used_vars(value)
    outer = [f for f in loops[:at] if f.loop_var in reducing]
    if outer:
        raise refuse(
            "a reduction loop runs outside of the given one",
            loops=outer,
            block=name,
            help="give the outermost reduction loop",
        )
    _check_once(realize, loops[at:])
    init_name, update_name = state.fresh_name(f"{name}_init"), state.fresh_name(f"{name}_update")
    nest = structure.init_nest(realize, loops[at:], init_name)
    update = structure.replace_node(block, init=None, name_hint=update_name, reads=with_self_reads(block))
    loop = loops[at]
    new_loop = structure.replace_stmt(loop, realize, structure.replace_node(realize, block=update))
    state.replace(loop, seq(nest, new_loop))
    return init_name, update_name


def _check_once(realize: BlockRealize, loops: list[For]) -> None:
    """Refuse loops in which an element is computed again: its first result would be added to."""
    name = realize.block.name_hint
    used = structure.used_vars(realize.iter_values)
    again = [f for f in loops if f.loop_var not in used and not ir.is_const_int(f.extent, 1)]
    if again:
        raise refuse(
            "the loops compute the same elements several times",
            loops=again,
            block=name,
            help="give a loop inside of those",
        )
    if all(isinstance(v, ir.Var) for v in realize.iter_values):
        return
    ranges = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in loops}
    moving = [v for v in realize.iter_values if not structure.used_vars(v).isdisjoint(ranges)]
    if not arith.detect_iter_map(moving, ranges, ir.TRUE, "bijective").indices and moving:
        raise refuse(
            "the loops are not known to compute each element once",
            loops=loops,
            block=name,
            help="give a loop inside of those that overlap",
        )


def with_self_reads(block: Block) -> tuple[BufferRegion, ...]:
    """List the reads of an update: first what it adds to."""
    return tuple(w for w in block.writes if not any(r.buffer is w.buffer for r in block.reads)) + block.reads


Combiner = Callable[[ir.PrimExpr, ir.PrimExpr], ir.PrimExpr]


def combiner_of(block: Block) -> tuple[Combiner, BufferStore, ir.PrimExpr] | None:
    """Recognise ``B[i] = op(B[i], f)``: return what combines, the store and ``f``; None for anything else."""
    store = block.body
    source = joined(store) if isinstance(store, BufferStore) else None
    if source is None or not isinstance(store, BufferStore):
        return None
    value: Any = store.value
    if not isinstance(value, ir.Select):
        return type(value), store, source
    return (numeric_max, store, source) if ir.structural_equal(value, numeric_max(value.true_value, source)) else None


def rfactor(state: ScheduleState, var: ir.Var, factor_axis: int = 0) -> str:
    """Turn a reduction loop into a spatial one.

    Partial results per iteration in a new buffer, then a reduction over them.

    The new dimension stands at `factor_axis` of the new buffer. Returns the name of the block of partial results.
    """
    path, loop = state.path_to_loop(var), state.loop(var)
    realizes = structure.child_realizes(loop.body)
    if len(realizes) != 1:
        raise refuse(f"{len(realizes)} blocks stand under the loop, one is needed", loops=loop)
    realize = realizes[0]
    block, name = realize.block, realize.block.name_hint
    found = reduction_of(block) if is_reduction(realize, state.scope_of(path)) else "it is not a whole reduction"
    if isinstance(found, str):
        raise refuse(
            "the block is not a reduction of the form B[i] = B[i] op f with a commutative op",
            block=name,
            help=f"{found}; +, *, max, min and choices by them are known",
        )
    for result, start in zip(found.reducer.result, found.reducer.identity_element, strict=True):
        if type(result) in _IDENTITY and not _is_number(start, _IDENTITY[type(result)]):
            raise refuse(f"the reduction starts from {start}, which every part would add again", block=name)
    analyzer = state.analyzer_at(path)
    reduce_value = [
        iv for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if var in structure.used_vars(v)
    ]
    unused = not reduce_value and ir.is_const_int(loop.extent, 1)
    if not (reduce_value or unused) or any(iv.iter_type != "reduce" for iv in reduce_value):
        raise refuse("the loop is not a reduction loop of the block", loops=loop, block=name)
    places = len(found.indices) + 1
    axis = factor_axis if factor_axis >= 0 else factor_axis + places
    if not 0 <= axis < places:
        raise refuse(f"factor_axis {factor_axis} is outside {places} dimensions", block=name)
    loops = state.loops_of(name)
    if loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
        raise refuse(
            f"the loop is {loop.kind.name.lower()}, so that its iterations have no order",
            loops=loop,
            block=name,
            help="apply it before the loop is scheduled",
        )
    own, conditions = _check_nest(loops, realize)
    if not instances_apart(loops, realize, ("data_par", "reduce")):
        raise refuse("the loops are not known to run the block once for each of its values", loops=loops, block=name)
    partials = [
        decl_buffer((*b.shape[:axis], loop.extent, *b.shape[axis:]), b.dtype, f"{b.name}_rf", scope=b.scope)
        for b in found.buffers
    ]
    rf_name = state.fresh_name(f"{name}_rf")
    rf = _partial_block(realize, loops, var, axis, partials, found, rf_name, conditions, analyzer)
    final = _final_nest(realize, own, loop, axis, partials, found)
    if own is loops:
        state.replace(loops[0], seq(structure.around(loops, rf), final))
    else:  # the results stay in the loops that others share
        state.replace(own[0], final)
        fresh = {f.loop_var: structure.replace_node(f.loop_var) for f in loops}
        copies = [structure.replace_node(f, loop_var=fresh[f.loop_var]) for f in loops]
        around, (values, predicate) = (
            state.loop(loops[0].loop_var),
            structure.subst_stmt((rf.iter_values, rf.predicate), fresh),
        )
        rf = BlockRealize(values, predicate, rf.block)
        state.replace(around, seq(structure.around(copies, rf), around))
    for partial in partials:
        state.alloc(state.scope_of_block(name), partial)
    return rf.block.name_hint


def _check_nest(loops: list[For], realize: BlockRealize) -> tuple[list[For], tuple[ir.PrimExpr, ir.PrimExpr]]:
    """Refuse a nest in which the block is not the first; return the loops inside of those that it shares with others.

    Also which elements it makes, and what of the reduction it runs.
    """
    name, shared = realize.block.name_hint, 0
    for i, (loop, inside) in enumerate(zip(loops, (*loops[1:], realize), strict=True)):
        if loop.body is not inside:
            if not isinstance(loop.body, SeqStmt) or loop.body.seq[0] is not inside:
                raise refuse("other statements stand between the loops", loops=loops, block=name)
            shared = i + 1
    others = [b for b in structure.blocks_in(loops[0]) if b is not realize.block]
    read = [r.buffer for r in realize.block.reads]
    if shared == len(loops) or (shared and any(touches(b, read, writes_only=True) for b in others)):
        raise refuse("others in the loops write what the block reads", loops=loops, block=name)
    own = {f.loop_var for f in loops}
    if any(not structure.used_vars(f.min, f.extent).isdisjoint(own) for f in loops):
        raise refuse("the range of a loop depends on another loop", loops=loops, block=name)
    reducing: set[ir.Var] = set()
    spatial: set[ir.Var] = set()
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (reducing if iv.iter_type == "reduce" else spatial).update(structure.used_vars(value) & own)
    if any(f.loop_var in reducing for f in loops[:shared]):
        raise refuse("other statements stand between the loops of the reduction", loops=loops, block=name)
    if reducing & spatial:
        raise refuse(
            "a loop feeds both the reduction and the elements",
            loops=list(reducing & spatial),
            block=name,
            help="fuse reduction loops among themselves only",
        )
    elements, running = ir.TRUE, ir.TRUE
    for c in structure.conjuncts(realize.predicate):
        if structure.used_vars(c).isdisjoint(reducing):
            elements = ir.logical_and(elements, c)
        elif structure.used_vars(c).isdisjoint(spatial):
            running = ir.logical_and(running, c)
        else:
            raise refuse(f"the condition {c} holds of the reduction and the elements together", loops=loops, block=name)
    return loops[shared:] if shared else loops, (elements, running)


def _partial_block(
    realize: BlockRealize,
    loops: list[For],
    var: ir.Var,
    axis: int,
    partials: Sequence[Buffer],
    found: Reduction,
    name: str,
    conditions: tuple[ir.PrimExpr, ir.PrimExpr],
    analyzer: arith.Analyzer,
) -> BlockRealize:
    """Build the block that computes one partial result per iteration of the factored loop."""
    block = realize.block
    extents = {f.loop_var: f for f in loops}
    dtype = var.dtype
    factored = ir.IterVar(
        ir.Range.from_min_extent(ir.const(0, dtype), extents[var].extent), ir.Var(f"v{var.name}", dtype), "data_par"
    )
    mapping: dict[ir.Var, ir.PrimExpr] = {}
    iter_vars, values = [factored], list[ir.PrimExpr]([var])
    inner: dict[ir.Var, ir.PrimExpr] = {var: factored.var}
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.iter_type == "data_par":
            new = structure.fresh_iter_var(iv)
            iter_vars.append(new)
            values.append(value)
            mapping[iv.var] = new.var
            continue
        for v in sorted(
            (v for v in structure.used_vars(value) if v in extents and v not in inner),
            key=lambda v: [f.loop_var for f in loops].index(v),
        ):
            new = ir.IterVar(
                ir.Range.from_min_extent(ir.const(0, v.dtype), extents[v].extent),
                ir.Var(f"v{v.name}", v.dtype),
                "reduce",
            )
            iter_vars.append(new)
            values.append(v)
            inner[v] = new.var
        mapping[iv.var] = analyzer.simplify(structure.subst_stmt(value, inner))
    indices = tuple(structure.subst_stmt(i, mapping) for i in found.indices)
    indices = (*indices[:axis], factored.var, *indices[axis:])
    starts = structure.subst_stmt(found.reducer.identity_element, mapping)
    condition = structure.subst_stmt(
        conditions[1],
        {**inner, **{v: iv.var for iv, v in zip(iter_vars, values, strict=True) if isinstance(v, ir.Var)}},
    )
    # a surplus iteration changes nothing, so that the partial results of each element are stored and read alike
    body = _update(partials, indices, found, structure.subst_stmt(found.values, mapping), starts, condition)
    init = seq(*(BufferStore(p, e, indices) for p, e in zip(partials, starts, strict=True)))
    reads, writes = access_regions([body], arith.Analyzer())
    reads = tuple(r for r in reads if r.buffer not in partials)
    part = Block(tuple(iter_vars), reads, writes, name, body, init, annotations=block.annotations)
    return BlockRealize(tuple(values), conditions[0], part)


def _update(
    buffers: Sequence[Buffer],
    indices: tuple[ir.PrimExpr, ...],
    found: Reduction,
    values: Sequence[ir.PrimExpr],
    starts: Sequence[ir.PrimExpr] = (),
    condition: ir.PrimExpr = ir.TRUE,
) -> Stmt:
    """Join elements with `values` where `condition` holds; several are computed before the first is stored."""
    reducer, own = found.reducer, [BufferLoad(b, indices) for b in buffers]
    if len(own) == 1 and starts:
        values = [ir.if_then_else(condition, values[0], starts[0])]
    joined = ir.substitute(reducer.result, dict(zip((*reducer.lhs, *reducer.rhs), (*own, *values), strict=True)))
    if len(own) == 1:
        return BufferStore(buffers[0], joined[0], indices)
    bound = [ir.Var(f"v_{b.name}", b.dtype) for b in buffers]
    kept = [ir.if_then_else(condition, new, old) for new, old in zip(joined, own, strict=True)]
    stores = seq(*(BufferStore(b, v, indices) for b, v in zip(buffers, bound, strict=True)))
    return structure.around([LetStmt(v, e) for v, e in zip(bound, kept, strict=True)], stores)


def _final_nest(
    realize: BlockRealize, loops: list[For], loop: For, axis: int, parts: Sequence[Buffer], found: Reduction
) -> Stmt:
    """Build the nest that reduces the partial results; it keeps the name of the block."""
    block = realize.block
    spatial = [
        (iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.iter_type == "data_par"
    ]
    over = ir.IterVar(
        ir.Range.from_min_extent(ir.const(0, loop.loop_var.dtype), loop.extent),
        structure.replace_node(loop.loop_var, name=f"v{loop.loop_var.name}"),
        "reduce",
    )
    indices = (*found.indices[:axis], over.var, *found.indices[axis:])
    body = _update(found.buffers, found.indices, found, [BufferLoad(p, indices) for p in parts])
    reads, writes = access_regions([body], arith.Analyzer())
    reads = tuple(r for r in reads if r.buffer in parts)
    new_block = structure.replace_node(
        block, iter_vars=(over, *[iv for iv, _ in spatial]), reads=reads, writes=writes, body=body
    )
    needed: set[ir.Var] = set()
    for _, v in spatial:
        needed |= structure.used_vars(v)
    kept = [f for f in loops if f.loop_var in needed]
    fresh = {f.loop_var: structure.replace_node(f.loop_var) for f in [*kept, loop]}
    known = set(fresh) - {loop.loop_var}
    outside = {f.loop_var for f in loops} - known
    kept_conditions = [c for c in structure.conjuncts(realize.predicate) if structure.used_vars(c).isdisjoint(outside)]
    predicate = ir.all_of(*(structure.subst_stmt(c, fresh) for c in kept_conditions))
    stmt: Stmt = BlockRealize(
        (fresh[loop.loop_var], *[structure.subst_stmt(v, fresh) for _, v in spatial]), predicate, new_block
    )
    stmt = For(fresh[loop.loop_var], loop.min, loop.extent, ForKind.SERIAL, stmt)
    return structure.around([structure.replace_node(f, loop_var=fresh[f.loop_var]) for f in kept], stmt)
