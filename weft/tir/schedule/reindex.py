"""reindex: a copy between a buffer and one that a block addresses by its own iteration variables."""

from __future__ import annotations

from weft import arith, ir
from weft.tir.analysis.access import loads_of, stores_of
from weft.tir.analysis.cover import covers_domain, stores_all
from weft.tir.analysis.dependence import is_complete, is_reduction, touches
from weft.tir.analysis.structure import (
    bind_domains,
    child_realizes,
    is_condition,
    loops_around,
    replace_node,
    statements,
    used_vars,
)
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import BufferName, buffer_at, copy_block, place_of
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, check_scope, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, seq


def reindex(
    state: ScheduleState,
    name: str,
    where: BufferName,
    index_map: IndexMap | None = None,
    storage_scope: str | None = None,
) -> str:
    """Let a block address a buffer by its own iteration variables, or by a map of them.

    For a buffer that is read, a new block before it gathers ``new[v...] = old[f(v...)]``; for one that is written, one
    behind it scatters. Returns the name of the new block.
    """
    path, scope, realize = state.located(name)
    block = realize.block
    kind, _ = place_of(block, where)
    old = buffer_at(block, where)
    state.check_loaded(old, block)
    if storage_scope is not None:
        check_scope(storage_scope)
    accesses = [*loads_of((block.init, block.body), old), *stores_of((block.init, block.body), old)]
    pattern = accesses[0].indices
    if not all(ir.structural_equal(a.indices, pattern) for a in accesses[1:]):
        raise refuse(f"'{old.name}' is accessed in several ways", block=name)
    used = {v for i in pattern for v in used_vars(i)}
    image = None if index_map is None else index_map(*[iv.var for iv in block.iter_vars])
    axes = [iv for iv in block.iter_vars if iv.var in used | used_vars(image or ()) and iv.dom is not None]
    if kind == "write":
        axes = [iv for iv in block.iter_vars if iv.iter_type == "data_par" and iv.dom is not None]
        if not used | used_vars(image or ()) <= {iv.var for iv in axes}:
            raise refuse(f"'{old.name}' is written at places that a reduction decides", block=name)
    _check(state, path, old, kind, [a.indices for a in accesses], axes)
    fresh = {iv.var: ir.Var(iv.var.name, iv.var.dtype) for iv in axes}
    mine = tuple(iv.var for iv in axes) if image is None else image
    shape = tuple(iv.dom.extent for iv in axes if iv.dom)
    if index_map is not None:
        _check_invertible(mine, axes, name)
        shape = index_map.map_shape([iv.dom.extent if iv.dom else 1 for iv in block.iter_vars])
    scope_name = storage_scope or old.scope
    new_name = f"{old.name}_{'reindex' if index_map is None else scope_name.replace('.', '_')}"
    new = Buffer(ir.Var(new_name, "handle"), old.dtype, shape, name=new_name, scope=scope_name)
    here, there = ir.substitute(mine, fresh), ir.substitute(pattern, fresh)
    source, target, at, to = (old, new, there, here) if kind == "read" else (new, old, here, there)
    copy_name = state.fresh_name(new_name)
    iters = [ir.IterVar(iv.dom, fresh[iv.var], "data_par") for iv in axes]
    copy = copy_block(iters, source, at, target, to, copy_name)
    loops = [ir.Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(axes)]
    nest = loops_around(BlockRealize(tuple(loops), ir.TRUE, copy), loops, [iv.dom.extent for iv in axes if iv.dom])
    top = top_child(scope, path)
    state.replace(top, seq(nest, top) if kind == "read" else seq(top, nest))

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer is old:
            return replace_node(node, buffer=new, indices=mine)
        if isinstance(node, BufferRegion) and node.buffer is old:
            return BufferRegion(new, tuple(ir.Range.from_min_extent(v, ir.const(1, v.dtype)) for v in mine))
        return node

    current = state.realize(name).block
    state.replace(current, ir.rewrite(current, rule))
    state.alloc(state.scope_of_block(name), new)
    current = state.realize(name).block
    state.replace(current, refresh_accesses(state, current, name))
    return copy_name


def _check_invertible(image: tuple[ir.PrimExpr, ...], axes: list[ir.IterVar], name: str) -> None:
    """Refuse a map that gives two points of the block's domain one place."""
    ranges = {iv.var: iv.dom for iv in axes if iv.dom is not None}
    analyzer = arith.Analyzer()
    for v, r in ranges.items():
        analyzer.bind(v, r)
    below = [e for e in image if not analyzer.can_prove(e >= 0)]
    if below:
        raise refuse(f"the index {below[0]} is not known to be 0 or more", block=name)
    found = arith.detect_iter_map(image, ranges, ir.TRUE, "bijective")
    if len(found.indices) != len(image):
        raise refuse(
            f"the map ({', '.join(map(str, image))}) is not known to keep elements apart",
            block=name,
            help="; ".join(found.errors) or None,
        )


def _check(
    state: ScheduleState,
    path: list[Stmt],
    buffer: Buffer,
    kind: str,
    accesses: list[tuple[ir.PrimExpr, ...]],
    axes: list[ir.IterVar],
) -> None:
    """Refuse where copying over the block's whole domain would touch other elements, or at another time."""
    realize, scope = path[-1], state.scope_of(path)
    assert isinstance(realize, BlockRealize)
    name = realize.block.name_hint
    nest = child_realizes(top_child(scope, path))
    others = [r for r in nest if r is not realize]
    if kind == "read" and any(touches(r.block, [buffer], writes_only=True) for r in nest):
        raise refuse(f"'{buffer.name}' is written in the same loop nest", block=name)
    if kind == "write":
        if not is_complete(realize, scope) and not is_reduction(realize, scope):
            raise refuse(
                f"the block does not make '{buffer.name}' alone",
                block=name,
                help="another block writes it too, or the block reads what it writes",
            )
        if any(touches(r.block, [buffer]) for r in others):
            raise refuse(f"'{buffer.name}' is used in the same loop nest", block=name)
    around = {v for s in path if isinstance(s, For) for v in (s.loop_var,)}
    if any(iv.dom is not None and not used_vars(iv.dom.min, iv.dom.extent).isdisjoint(around) for iv in axes):
        raise refuse("the domain of the block depends on a loop", block=name)
    if any(iv.dom is not None and not ir.is_const_int(iv.dom.min, 0) for iv in axes):
        raise refuse("the domain of the block does not start at 0", block=name)
    analyzer = state.analyzer_at(path)
    own = {s.loop_var for s in statements(realize.block) if isinstance(s, For)}
    own |= {iv.var for s in statements(realize.block.body) if isinstance(s, Block) for iv in s.iter_vars}
    if not used_vars(*accesses[0]).isdisjoint(around | own):
        raise refuse(f"the place in '{buffer.name}' is not decided by the variables of the block alone", block=name)
    whole = covers_domain(path, analyzer)
    written = [w for w in realize.block.writes if kind == "write" and w.buffer is buffer]
    if state.is_argument(buffer) and not all(stores_all(realize.block, w) for w in written):
        raise refuse(
            f"the block does not always write '{buffer.name}'", block=name, help="the copy would write what it leaves"
        )
    if kind == "write" and not whole:
        raise refuse("the loops do not run the block on its whole domain", block=name)
    if not (whole and _unconditional(realize.block)) and not _inside(accesses[0], buffer, realize.block, analyzer):
        raise refuse(
            f"the block touches '{buffer.name}' under a condition, without which the index "
            f"[{', '.join(map(str, accesses[0]))}] may be outside of it",
            block=name,
        )


def _unconditional(block: Block) -> bool:
    """Whether nothing in a block runs under a condition."""
    return not any(isinstance(n, IfThenElse) or is_condition(n) for n in ir.walk((block.init, block.body)))


def _inside(indices: tuple[ir.PrimExpr, ...], buffer: Buffer, block: Block, analyzer: arith.Analyzer) -> bool:
    """Whether an index is in the buffer on the whole domain of the block."""
    bind_domains(analyzer, block)
    return all(
        analyzer.can_prove(i >= 0) and analyzer.can_prove(i < d) for i, d in zip(indices, buffer.shape, strict=True)
    )
