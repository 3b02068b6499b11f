"""reindex: a copy between a buffer and one that a block addresses by its own iteration variables."""

from __future__ import annotations

from weft.ir import TRUE, IterVar, Range, Var, const, rewrite, structural_equal, substitute
from weft.tir.analysis.access import loads_of, point_region, stores_of
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import BufferName, buffer_at, place_of
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt, seq

__all__ = ["reindex"]


def reindex(state: ScheduleState, name: str, where: BufferName) -> str:
    """Let a block address a buffer by its own iteration variables.

    For a buffer that is read, a new block before it gathers ``new[v...] = old[f(v...)]``; for one that is written, one
    behind it scatters. Returns the name of the new block.
    """
    path = state.path_to_block(name)
    scope = state.scope_of(path)
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    block = realize.block
    kind, _ = place_of(block, where, "reindex")
    old = buffer_at(block, where, "reindex")
    accesses = [*loads_of((block.init, block.body), old), *stores_of((block.init, block.body), old)]
    pattern = accesses[0].indices
    if not all(structural_equal(a.indices, pattern) for a in accesses[1:]):
        raise refuse("reindex", f"'{old.name}' is accessed in several ways", block=name)
    used = {v for i in pattern for v in used_vars(i)}
    axes = [iv for iv in block.iter_vars if iv.var in used and iv.dom is not None]
    if kind == "write":
        axes = [iv for iv in block.iter_vars if iv.iter_type == "data_par" and iv.dom is not None]
        if not used <= {iv.var for iv in axes}:
            raise refuse("reindex", f"'{old.name}' is written at places that a reduction decides", block=name)
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in axes}
    new = Buffer(Var(f"{old.name}_reindex", "handle"), old.dtype, tuple(iv.dom.extent for iv in axes if iv.dom),
                 name=f"{old.name}_reindex", scope=old.scope)  # fmt: skip
    here, there = tuple(fresh[iv.var] for iv in axes), substitute(pattern, fresh)
    source, target, at, to = (old, new, there, here) if kind == "read" else (new, old, here, there)
    copy_name = state.fresh_name(f"{old.name}_reindex")
    copy = Block(
        tuple(IterVar(iv.dom, fresh[iv.var], "data_par") for iv in axes),
        (point_region(source, at),),
        (point_region(target, to),),
        copy_name,
        BufferStore(target, BufferLoad(source, at), to),
    )
    loops = [Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(axes)]
    nest: Stmt = BlockRealize(tuple(loops), TRUE, copy)
    for v, iv in reversed(list(zip(loops, axes, strict=True))):
        assert iv.dom is not None
        nest = For(v, const(0, v.dtype), iv.dom.extent, ForKind.SERIAL, nest)
    top = top_child(scope, path)
    state.replace(top, seq(nest, top) if kind == "read" else seq(top, nest))
    mine = tuple(iv.var for iv in axes)

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=new, indices=mine)
        if isinstance(node, BufferRegion) and node.buffer is old:
            return BufferRegion(new, tuple(Range(v, const(1, v.dtype)) for v in mine))
        return node

    current = state.realize(name).block
    state.replace(current, rewrite(current, rule))
    state.alloc(state.scope_of_block(name), new)
    current = state.realize(name).block
    state.replace(current, refresh_accesses(state, current, name))
    return copy_name
