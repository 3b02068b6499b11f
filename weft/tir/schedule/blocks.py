"""Inlining: compute_inline puts a producer into its consumers, reverse_compute_inline a consumer into its producer."""

from __future__ import annotations

from weft import arith, error, ir
from weft.tir.analysis import dependence
from weft.tir.analysis.access import access_regions, addressed, is_pure, loads_of
from weft.tir.analysis.cover import covers, covers_domain
from weft.tir.analysis.structure import (
    bind_domains,
    child_realizes,
    clone_fresh,
    conjuncts,
    iter_values_of,
    replace_node,
    used_vars,
)
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt, seq


def compute_inline(state: ScheduleState, name: str) -> None:
    """Compute the elements of a block where they are read, if anywhere, and drop its buffer."""
    _, scope, realize = state.located(name)
    store = _inlinable_store(state, realize, scope)
    state.check_loaded(store.buffer)
    index_vars = _index_vars(store, realize)
    consumers = dependence.consumers_of(realize.block, scope)
    if not consumers and state.allocating_block(store.buffer) is not scope:
        raise refuse(f"'{store.buffer.name}' may be read outside of the block's scope", block=name)
    for last in consumers[-1:]:
        check_inputs(realize, [*dependence.blocks_from_to(scope, realize, last), last])
    for consumer in consumers:
        _check_reads(store, index_vars, realize.block, consumer.block)
    only = {v: m for v, m in unit_vars(realize.block).items() if v not in index_vars}

    def inline(node: object) -> object:
        if isinstance(node, BufferLoad) and node.buffer is store.buffer:
            places = zip(index_vars, node.indices, strict=True)
            return ir.substitute(store.value, only | {v: ir.cast(v.dtype, i) for v, i in places if v is not None})
        if isinstance(node, Block) and any(r.buffer is store.buffer for r in node.reads):  # inside of a consumer
            return refresh_accesses(state, node, node.name_hint)
        return node

    for consumer in consumers:
        current = state.realize(consumer.block.name_hint)
        body = ir.rewrite(current.block.body, inline)
        init = ir.rewrite(current.block.init, inline) if current.block.init is not None else None
        block = refresh_accesses(state, replace_node(current.block, body=body, init=init), current.block.name_hint)
        values, predicate = ir.rewrite(current.iter_values, inline), ir.rewrite(current.predicate, inline)
        state.replace(current, replace_node(current, iter_values=values, predicate=predicate, block=block))
    state.remove(state.realize(name))
    state.dealloc(store.buffer)


def check_inputs(realize: BlockRealize, others: list[BlockRealize], outputs: bool = False) -> None:
    """Refuse to run a block at another place where `others` write what it reads, or touch what it writes."""
    block = realize.block
    inputs = [r.buffer for r in block.reads]
    for other in others:
        if dependence.touches(other.block, inputs, writes_only=True):
            raise refuse(f"'{other.block.name_hint}' overwrites what the block reads", block=block.name_hint)
        if outputs and dependence.touches(other.block, [w.buffer for w in block.writes]):
            raise refuse(f"'{other.block.name_hint}' uses what the block overwrites", block=block.name_hint)


def _check_reads(store: BufferStore, index_vars: list[ir.Var | None], block: Block, consumer: Block) -> None:
    """Refuse to compute elements outside of the block's domain, where what it loads may not exist."""
    analyzer = bind_domains(arith.Analyzer(), consumer)
    domains = {iv.var: iv.dom for iv in block.iter_vars}
    for load in loads_of((consumer.init, consumer.body), store.buffer):
        for v, index, size in zip(index_vars, load.indices, store.buffer.shape, strict=True):
            dom = domains[v] if v is not None else None
            if dom is None or (ir.is_const_int(dom.min, 0) and analyzer.can_prove(dom.extent >= size)):
                continue
            if not (analyzer.can_prove(index >= dom.min) and analyzer.can_prove(index < dom.min + dom.extent)):
                place = ", ".join(map(str, load.indices))
                raise refuse(
                    f"'{consumer.name_hint}' may read [{place}], which the block does not make", block=block.name_hint
                )


def _inlinable_store(state: ScheduleState, realize: BlockRealize, scope: Block) -> BufferStore:
    """Return the single store of a block that writes each element of an intermediate buffer once."""
    block = realize.block
    store = dependence.is_plain_store(block)
    if store is None or not dependence.is_data_parallel(block):
        raise refuse(
            "the block is not one element-wise store",
            block=block.name_hint,
            help="reductions and blocks with several statements cannot be inlined",
        )
    if state.is_argument(store.buffer):
        raise refuse(f"'{store.buffer.name}' is an output of the function", block=block.name_hint)
    if not dependence.is_complete(realize, scope):
        raise refuse("another block writes the same buffer, or the block reads what it writes", block=block.name_hint)
    if not dependence.has_trivial_predicate(realize):
        raise refuse(f"the block runs only where {realize.predicate}", block=block.name_hint)
    check_effects(store, block)
    return store


def check_effects(store: BufferStore, block: Block) -> None:
    """Refuse to compute a value with an effect as often as it is read."""
    if not is_pure((store.value, store.indices)):
        raise refuse(
            f"'{store.value}' may do more than give a value",
            block=block.name_hint,
            help="use call_pure_extern, or register the operator with TCallEffectKind",
        )


def _index_vars(store: BufferStore, realize: BlockRealize) -> list[ir.Var | None]:
    """Return the block variable that each index of the store is; None for a dimension of one element."""
    result: list[ir.Var | None] = []
    own = {iv.var for iv in realize.block.iter_vars}
    for i in store.indices:
        if isinstance(i, ir.Var) and i in own and i not in result:
            result.append(i)
        elif ir.is_const_int(i, 0):
            result.append(None)
        else:
            raise refuse(
                f"an element is stored at [{', '.join(map(str, store.indices))}], "
                "which is not a plain list of block variables",
                block=realize.block.name_hint,
            )
    free = (used_vars(store.value) & own) - {v for v in result if v is not None}
    if free - set(unit_vars(realize.block)):
        raise refuse("the value depends on a variable that no index has", block=realize.block.name_hint)
    return result


def unit_vars(block: Block) -> dict[ir.Var, ir.PrimExpr]:
    """The variables of a block that have one value, and it."""
    domains = {iv.var: iv.dom for iv in block.iter_vars}
    return {v: dom.min for v, dom in domains.items() if dom is not None and ir.is_const_int(dom.extent, 1)}


def reverse_compute_inline(state: ScheduleState, name: str) -> None:
    """Apply an element-wise consumer where its only producer stores elements, and drop the buffer between."""
    path, scope, realize = state.located(name)
    block = realize.block
    store = dependence.is_plain_store(block)
    if store is None or not dependence.is_complete(realize, scope):
        raise refuse("the block is not one element-wise store", block=name)
    producers = dependence.producers_of(block, scope)
    if len(producers) != 1:
        raise refuse(f"the block has {len(producers)} producers, one is needed", block=name)
    producer = producers[0]
    target = dependence.is_plain_store(producer.block)
    if target is None or not dependence.is_complete(producer, scope):
        raise refuse(
            "the producer is not one element-wise store",
            block=producer.block.name_hint,
            help="decompose a reduction first, or use reverse_compute_at",
        )
    if len(dependence.consumers_of(producer.block, scope)) != 1 or state.is_argument(target.buffer):
        raise refuse(f"'{target.buffer.name}' is needed by others too", block=producer.block.name_hint)
    state.check_loaded(target.buffer)
    check_inputs(realize, dependence.blocks_from_to(scope, producer, realize), outputs=True)
    _check_all(state, path, producer, target)
    check_effects(target, producer.block)
    check_effects(store, block)
    mapping, is_read = _inverse(store, target, realize, producer, state)
    value = ir.substitute(store.value, mapping)

    def forward(node: object) -> object:
        return target.value if isinstance(node, BufferLoad) and node.buffer is target.buffer else node

    new_store = replace_node(
        store, value=ir.rewrite(value, forward), indices=tuple(ir.substitute(i, mapping) for i in store.indices)
    )
    new_block = refresh_accesses(state, replace_node(producer.block, body=new_store), producer.block.name_hint)
    held = conjuncts(producer.predicate)
    added = conjuncts(ir.substitute(is_read, iter_values_of(producer)))
    tests = (*held, *(t for t in added if not any(ir.structural_equal(t, h) for h in held)))
    state.replace(producer, replace_node(producer, block=new_block, predicate=ir.all_of(*tests)))
    state.remove(state.realize(name))
    state.dealloc(target.buffer)


def _check_all(state: ScheduleState, path: list[Stmt], producer: BlockRealize, target: BufferStore) -> None:
    """Refuse unless the producer makes each element, and the consumer uses each."""
    name, made = producer.block.name_hint, state.path_to_block(producer.block.name_hint)
    whole = tuple(ir.Range(d) for d in target.buffer.shape)
    places = ir.substitute(target.indices, iter_values_of(producer))
    if not covers(made, places, whole, state.analyzer_at(made)):
        raise refuse(f"'{name}' does not make all of '{target.buffer.name}'", block=name)
    if not covers_domain(path, state.analyzer_at(path)):
        raise refuse(
            "the loops do not run the block on its whole domain",
            block=path[-1].block.name_hint,  # type: ignore[union-attr]
        )


def _inverse(
    store: BufferStore, target: BufferStore, realize: BlockRealize, producer: BlockRealize, state: ScheduleState
) -> tuple[dict[ir.Var, ir.PrimExpr], ir.PrimExpr]:
    """Express the consumer's variables in those of the producer, and say when the consumer reads what is produced."""
    name = realize.block.name_hint
    loads, units = loads_of(store.value, target.buffer), unit_vars(realize.block)
    reads = [ir.substitute(i, units) for i in loads[0].indices]
    at = state.analyzer_at([*state.path_to_block(name), realize.block], inside=True)
    if not all(at.can_prove(r >= 0) and at.can_prove(r < d) for r, d in zip(reads, target.buffer.shape, strict=True)):
        raise refuse("some of the consumer's elements read nothing that is made", block=name)
    if any(not ir.structural_equal(x.indices, loads[0].indices) for x in loads[1:]):
        raise refuse("the consumer reads the producer at several places", block=name)
    domains = {iv.var: iv.dom for iv in realize.block.iter_vars if iv.var not in units}
    missing = [v for v in domains if v not in used_vars(*reads)]
    if missing:
        raise refuse("the consumer writes each element of the producer several times", block=name, loops=missing)
    places = [i for i, read in enumerate(reads) if used_vars(read) & domains.keys()]
    extents = [dom.extent for dom in domains.values() if dom is not None and ir.is_const_int(dom.min, 0)]
    there = IndexMap(tuple(domains), tuple(reads[i] for i in places))
    try:
        back = there.inverse(extents)
    except (error.WeftError, ValueError):  # of what is rounded up to whole tiles, there may be one
        try:
            back, _ = there.non_surjective_inverse(extents)
        except (error.WeftError, ValueError) as e:
            raise refuse("where the consumer reads has no inverse", block=name) from e
    analyzer = state.analyzer_at([*state.path_to_block(producer.block.name_hint), producer.block], inside=True)
    written = dict(zip(back.initial_indices, (target.indices[i] for i in places), strict=True))
    values = [analyzer.simplify(ir.substitute(e, written)) for e in back.final_indices]
    same = {r: w for r, w in zip(loads[0].indices, target.indices, strict=True) if isinstance(r, ir.Var) and r in units}
    mapping = units | same | {v: ir.cast(v.dtype, x) for v, x in zip(domains, values, strict=True)}
    tests = [t for x, e in zip(values, extents, strict=True) for t in (x >= 0, x < ir.cast(x.dtype, e))]
    tests += [ir.equal(ir.substitute(read, mapping), place) for read, place in zip(reads, target.indices, strict=True)]
    return mapping, ir.all_of(*(t for t in tests if not analyzer.can_prove(t)))


def refresh_accesses(state: ScheduleState, block: Block, place: str) -> Block:
    """Compute anew what a block reads and writes after its body changed; what it sums up only if it was listed."""
    analyzer = state.analyzer_at(state.path_to_block(place))
    stmts = [s for s in (block.init, block.body) if s is not None]
    reads, writes = access_regions(stmts, analyzer, block.alloc_buffers, block.match_buffers)
    if opaque := addressed(*stmts):  # what is reached by address, the regions that are there say
        reads, writes = (
            (*(r for r in found if r.buffer.data not in opaque), *(r for r in said if r.buffer.data in opaque))
            for said, found in ((block.reads, reads), (block.writes, writes))
        )
    listed = any(r.buffer is w.buffer for r in block.reads for w in block.writes)
    own = {w.buffer for w in writes} if block.init is not None and not listed else set()
    return replace_node(block, reads=tuple(r for r in reads if r.buffer not in own), writes=writes)


def split_consumers(state: ScheduleState, name: str, consumers: list[str]) -> list[str]:
    """Give each of the consumers its own copy of a block and of the buffer between; the first keeps the original.

    Returns the names of the copies in the order of `consumers`.
    """
    path, scope, realize = state.located(name)
    block = realize.block
    if len(block.writes) != 1 or state.is_argument(block.writes[0].buffer):
        raise refuse("the block does not write one intermediate buffer", block=name)
    if not dependence.is_complete(realize, scope) and not dependence.is_reduction(realize, scope):
        raise refuse("the block is neither complete nor a whole reduction", block=name)
    actual = {c.block.name_hint for c in dependence.consumers_of(block, scope)}
    if actual != set(consumers):
        raise refuse("not all consumers are listed", block=name, help="they are " + ", ".join(sorted(actual)))
    state.check_loaded(block.writes[0].buffer)
    at = max(i for i, s in enumerate(path[:-1]) if not isinstance(s, For)) + 1
    nest, old = path[at], block.writes[0].buffer
    if len(child_realizes(nest)) != 1:
        raise refuse("other blocks stand in the same loop nest", block=name)
    copies, names, buffers = [nest], [name], []
    for n, consumer in enumerate(consumers[1:], 1):
        new_name = state.fresh_name(f"{name}_{n}")
        new = replace_node(old, data=ir.Var(f"{old.name}_{n}", "handle"), name=f"{old.name}_{n}")
        copy, _, _ = clone_fresh(nest, lambda _, new_name=new_name: new_name)
        copies.append(ir.substitute(copy, {old: new}))
        current = state.realize(consumer).block
        state.replace(current, ir.substitute(current, {old: new}))
        names.append(new_name)
        buffers.append(new)
    state.replace(nest, seq(*copies))
    owner = state.allocating_block(old)
    assert owner is not None
    state.alloc(owner, *buffers)
    return names
