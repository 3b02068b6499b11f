"""fuse_reduction_epilogue: what is added to a finished reduction becomes what the reduction starts from."""

from __future__ import annotations

from weft import arith, ir
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.cover import covers_domain
from weft.tir.analysis.dependence import consumers_of, is_complete, is_plain_store, is_reduction, touches
from weft.tir.analysis.structure import child_realizes, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.blocks import check_effects, check_inputs, refresh_accesses, unit_vars
from weft.tir.schedule.cache import statements_with
from weft.tir.schedule.reduction import Combiner, combiner_of
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BufferStore


def fuse_reduction_epilogue(state: ScheduleState, name: str, epilogue: str) -> None:
    """Let a reduction start from what the block `epilogue` joins to its results, and store where that block does.

    ``T = sum(f)`` and ``D = T + c`` become ``D = c + sum(f)``: one of the same associative operation, or of
    differences where it is a sum, so that floats may be rounded otherwise. Anything else of the finished result, as
    clipping it, is not the same when it is done to parts of it.
    """
    path, scope, realize = state.located(name)
    last_path, last_scope, last = state.located(epilogue)
    block, end = realize.block, last.block
    name = block.name_hint  # handles of decomposed reductions have the old one
    found, store = combiner_of(block), is_plain_store(end)
    if found is None or not isinstance(block.init, BufferStore) or not is_reduction(realize, scope):
        raise refuse("the block is not a whole reduction of the form B[i] = B[i] op f", block=name)
    if store is None or last_scope is not scope or not is_complete(last, scope):
        raise refuse("the epilogue is not one element-wise store in the scope of the reduction", block=epilogue)
    combine, update, source = found
    old = update.buffer
    if [r.block for r in consumers_of(block, scope)] != [end] or state.allocating_block(old) is not scope:
        raise refuse(f"'{old.name}' is needed by others than '{epilogue}'", block=name)
    state.check_loaded(old)
    state.check_loaded(store.buffer)
    loads = loads_of(store.value, old)
    if len(loads) != 1 or loads_of(store.indices, old) or loads_of((source, block.init.value), old):
        raise refuse(f"'{old.name}' is read at more places than one", block=epilogue)
    if not _joins(store.value, loads[0], combine):
        raise refuse(
            f"'{store.value}' does more than to join something to '{old.name}' as the reduction joins its terms",
            block=epilogue,
            help="use reverse_compute_at, which runs the epilogue where an element of the reduction is done",
        )
    check_effects(store, end)
    for r, way in ((realize, path), (last, last_path)):
        if not covers_domain(way, state.analyzer_at(way)):
            raise refuse("the loops do not run the block on its whole domain", block=r.block.name_hint)
    around = [r for s in statements_with(scope, [name, end.name_hint]) for r in child_realizes(s)]
    if around.index(last) < around.index(realize) or touches(block, [store.buffer]):
        raise refuse(f"the reduction uses '{store.buffer.name}', or does not run before the epilogue", block=name)
    check_inputs(last, [r for r in around if r is not realize and r is not last], outputs=True)
    mapping = _same_elements(block, end, update, loads[0])
    places = tuple(ir.substitute(i, mapping) for i in store.indices)
    first = block.init.value
    value = ir.rewrite(store.value, lambda n: first if n is loads[0] else n)
    start = BufferStore(store.buffer, ir.substitute(value, mapping), places)

    def stored(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=store.buffer, indices=places)
        return node

    fused = replace_node(block, init=start, body=ir.rewrite(update, stored))
    state.replace(block, refresh_accesses(state, fused, block.name_hint))
    state.remove(state.realize(epilogue))
    state.dealloc(old)


def _joins(value: ir.PrimExpr, result: BufferLoad, combine: Combiner) -> bool:
    """Whether a value is a result of a reduction joined with others by the operation of the reduction, or less some."""
    if value is result:
        return True
    if isinstance(value, ir.Sub) and combine is ir.Add:
        return _joins(value.a, result, combine)
    if not isinstance(value, ir.BinaryOp) or type(value) is not combine:
        return False
    return _joins(value.a, result, combine) or _joins(value.b, result, combine)


def _same_elements(block: Block, end: Block, made: BufferStore, read: BufferLoad) -> dict[ir.Var, ir.PrimExpr]:
    """Express the variables of an epilogue in those of the reduction whose elements it reads, one for one."""
    domains = {iv.var: iv.dom for iv in (*block.iter_vars, *end.iter_vars)}
    mapping: dict[ir.Var, ir.PrimExpr] = dict(unit_vars(end))
    pairs = [(m, r) for m, r in zip(made.indices, read.indices, strict=True) if r not in mapping]
    for m, r in pairs:
        same = isinstance(m, ir.Var) and isinstance(r, ir.Var) and r not in mapping
        if same and _alike(domains.get(m), domains.get(r)):  # type: ignore[arg-type]
            mapping[r] = ir.cast(r.dtype, m)  # type: ignore[index]
        elif not (ir.is_const_int(m, 0) and ir.is_const_int(r, 0)):
            break
    if len(mapping) < len(end.iter_vars) or any(r not in mapping for _, r in pairs if not ir.is_const_int(r, 0)):
        raise refuse("the epilogue does not read each element of the reduction once", block=end.name_hint)
    return mapping


def _alike(a: ir.Range | None, b: ir.Range | None) -> bool:
    same = arith.Analyzer().can_prove_equal
    return a is not None and b is not None and same(a.min, b.min) and same(a.extent, b.extent)
