"""rolling_buffer: what a tile shares with the one before is kept, and not computed again."""

from __future__ import annotations

import functools

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.access import relax_region, union_regions
from weft.tir.analysis.dependence import consumers_of, reads_buffer, writes_buffer
from weft.tir.analysis.rolling import Rolling, rolling_of
from weft.tir.analysis.structure import child_realizes, iter_values_of, path_to, replace_node, subst_regions, used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.compute_at import contains
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt


def rolling_buffer(state: ScheduleState, name: str, index: int) -> None:
    """Shrink the buffer that a block writes to one tile, used as a ring, and compute only what is new in each tile."""
    path, scope, realize = state.located(name)
    block = realize.block
    if not 0 <= index < len(block.writes):
        raise refuse(f"the block writes {len(block.writes)} buffers, not {index + 1}", block=name)
    old = block.writes[index].buffer
    users = consumers_of(block, scope)
    if old not in scope.alloc_buffers:
        raise refuse(f"'{old.name}' is used outside of the scope of the block", block=name)
    if sum(writes_buffer(r.block, old) for r in child_realizes(scope)) != 1 or reads_buffer(block, old):
        raise refuse(f"'{old.name}' is made of itself, or by several blocks", block=name)
    ways = [path_to(scope, lambda s, u=u: s is u) or [] for u in (realize, *users)]
    together = [step[0] for step in zip(*ways, strict=False) if all(s is step[0] for s in step)]
    shared = [s for s in together if isinstance(s, For)]
    if not users or not shared:
        raise refuse(
            "no loop is around the block and all that read its result", block=name, help="compute_at puts it into one"
        )
    analyzer = state.analyzer_at(path)
    tile, *read = (_tile(way, old, len(together), analyzer) for way in ways)
    if any(not ir.is_const_int(r.extent, 1) for r in block.writes[index].region):
        raise refuse("the block writes more than one element at a time", block=name)
    rolling = rolling_of(tile, shared)
    if isinstance(rolling, str):
        raise refuse(rolling, block=name)
    whole = rolling.region[rolling.axis]
    if any(r is None or not contains(whole, r, analyzer) for r in (box[rolling.axis] for box in read)):
        raise refuse(f"more of '{old.name}' is read than the tile that was just made", block=name)
    new = replace_node(
        old,
        shape=(
            *old.shape[: rolling.axis],
            ir.const(rolling.extent, old.shape[rolling.axis].dtype),
            *old.shape[rolling.axis + 1 :],
        ),
    )
    state.replace(scope, _ring(scope, realize, index, new, rolling, analyzer))


def _tile(way: list[Stmt], buffer: Buffer, shared: int, analyzer: Analyzer) -> tuple[ir.Range | None, ...]:
    """Return what a block touches of a buffer in one iteration of the loops that it shares with others."""
    realize = way[-1]
    assert isinstance(realize, BlockRealize)
    inner = [s for s in way[shared:] if isinstance(s, For)]
    for f in inner:
        analyzer.bind(f.loop_var, ir.Range.from_min_extent(f.min, f.extent), allow_override=True)
    touched = tuple(r for r in (*realize.block.writes, *realize.block.reads) if r.buffer is buffer)
    domain = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in inner}
    boxes = [relax_region(r.region, domain, analyzer) for r in subst_regions(touched, iter_values_of(realize))]
    return functools.reduce(lambda a, b: union_regions(a, b, analyzer), boxes)


def _ring(scope: Block, realize: BlockRealize, index: int, new: Buffer, rolling: Rolling, analyzer: Analyzer) -> Block:
    """Rewrite a scope: uses of the buffer wrap around, and the block that writes it leaves out what is there."""
    old = realize.block.writes[index].buffer
    written = subst_regions((realize.block.writes[index],), iter_values_of(realize))[0].region
    fresh = rolling.is_new([r.min for r in written], analyzer)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=new, indices=rolling.indices(node.indices))
        if isinstance(node, BufferRegion) and node.buffer is old:
            r = node.region[rolling.axis]
            one = ir.is_const_int(r.extent, 1)
            r = (
                ir.Range.from_min_extent(rolling.indices([x.min for x in node.region])[rolling.axis], r.extent)
                if one
                else ir.Range.from_min_extent(ir.const(0, r.min.dtype), new.shape[rolling.axis])
            )
            return BufferRegion(new, (*node.region[: rolling.axis], r, *node.region[rolling.axis + 1 :]))
        return node

    def blocks(node: object) -> object:
        if isinstance(node, BlockRealize) and any(r.buffer is old for r in (*node.block.reads, *node.block.writes)):
            regions = [r for r in (*node.block.reads, *node.block.writes) if r.buffer is old]
            steps = {v for r in regions for v in used_vars(r.region[rolling.axis].min)}
            carried = tuple(
                replace_node(iv, iter_type="opaque") if iv.var in steps and iv.iter_type == "data_par" else iv
                for iv in node.block.iter_vars
            )
            block = ir.rewrite(replace_node(node.block, iter_vars=carried), rule)
            predicate = node.predicate
            if node.block is realize.block:
                for test in fresh:
                    predicate = ir.logical_and(predicate, test)
                predicate = analyzer.simplify(predicate)
            return replace_node(node, predicate=predicate, block=block)
        return node

    body = ir.rewrite(scope.body, blocks)
    return replace_node(scope, body=body, alloc_buffers=tuple(new if b is old else b for b in scope.alloc_buffers))
