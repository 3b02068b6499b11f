"""Primitives on the iteration variables of a block: another order, or another iteration space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.arith import Analyzer, detect_iter_map, inverse_affine_iter_map
from weft.ir import TRUE, IterVar, Node, PrimExpr, Range, Var, const, is_const_int, rebuild
from weft.tir.analysis.cover import covers_domain
from weft.tir.analysis.dependence import is_complete, is_reduction
from weft.tir.analysis.structure import loops_around, replace_node, subst_stmt, used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, Stmt


def reorder_block_iter_var(state: ScheduleState, name: str, new_order: Sequence[int]) -> None:
    """List the iteration variables of a block in another order; the loops stay."""
    realize = state.realize(name)
    block = realize.block
    if sorted(new_order) != list(range(len(block.iter_vars))):
        raise refuse(
            f"{list(new_order)} is no order of the variables",
            block=name,
            help=f"list each of 0 to {len(block.iter_vars) - 1} once",
        )
    state.replace(
        realize,
        replace_node(
            realize,
            iter_values=tuple(realize.iter_values[i] for i in new_order),
            block=replace_node(block, iter_vars=tuple(block.iter_vars[i] for i in new_order)),
        ),
    )


def transform_block_layout(state: ScheduleState, name: str, index_map: IndexMap) -> None:
    """Run a block over the image of its iteration space under an invertible map, in new loops of that shape."""
    path, scope, realize = state.located(name)
    block, loops = realize.block, state.loops_of(name)
    top: Stmt = loops[0] if loops else realize
    inside = top
    for loop in loops:
        if inside is not loop:
            break
        inside = loop.body
    if inside is not realize:
        raise refuse("the block does not stand alone in its loops", loops=loops, block=name)
    if not covers_domain(path, state.analyzer_at(path)):
        raise refuse("the loops do not run the block on its whole domain", block=name)
    if any(iv.iter_type not in ("data_par", "reduce") for iv in block.iter_vars):
        raise refuse("the block has ordered or opaque iterations", block=name)
    if not is_complete(realize, scope) and not is_reduction(realize, scope):
        raise refuse("the block is neither complete nor a whole reduction", block=name)
    iter_vars, inverse = _transformed(block, index_map, name)
    fresh = [Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(iter_vars)]
    moved = _with_plain_indices(subst_stmt(replace_node(block, iter_vars=()), inverse), iter_vars)
    new = replace_node(moved, iter_vars=tuple(iter_vars))
    extents = [iv.dom.extent for iv in iter_vars if iv.dom]
    state.replace(top, loops_around(BlockRealize(tuple(fresh), TRUE, new), fresh, extents))
    current = state.realize(name).block
    state.replace(current, refresh_accesses(state, current, name))


def _with_plain_indices(block: Block, iter_vars: Iterable[IterVar]) -> Block:
    """Simplify the indices of accesses: an index that a map and its inverse give back is the variable."""
    analyzer = Analyzer()
    for iv in iter_vars:
        analyzer.bind(iv.var, iv.dom)

    def visit(node: Any) -> Any:
        node = rebuild(node, visit) if isinstance(node, Node) else node
        if isinstance(node, (BufferLoad, BufferStore)):
            return replace_node(node, indices=tuple(analyzer.simplify(i) for i in node.indices))
        return node

    body, init = visit(block.body), visit(block.init)
    return replace_node(block, body=body, init=init)


def _transformed(block: Block, index_map: IndexMap, name: str) -> tuple[list[IterVar], dict[Var, PrimExpr]]:
    """Return the new iteration variables, and the old ones in terms of them."""
    analyzer = Analyzer()
    ranges: dict[Var, Range] = {}
    for iv in block.iter_vars:
        if iv.dom is None or not is_const_int(iv.dom.min, 0):
            raise refuse(f"'{iv.var.name}' does not start at 0", block=name)
        ranges[iv.var] = iv.dom
        analyzer.bind(iv.var, iv.dom)
    image = index_map(*[iv.var for iv in block.iter_vars])
    found = detect_iter_map(image, ranges, TRUE, "bijective")
    dense = all(is_const_int(s.base, 0) and (not s.args or is_const_int(s.args[-1].scale, 1)) for s in found.indices)
    if len(found.indices) != len(image) or not dense:
        raise refuse(
            f"the map ({', '.join(map(str, image))}) is not known to be invertible on the block's domain",
            block=name,
            help="each variable must be found again from the new ones, as i is from (i // 4, i % 4) where 4 divides "
            + "; ".join(("it", *found.errors)),
        )
    kinds = {iv.var: iv.iter_type for iv in block.iter_vars}
    iter_vars = []
    for n, (e, total) in enumerate(zip(image, found.indices, strict=True)):
        types = {kinds[v] for v in used_vars(e) if v in kinds} or {"data_par"}
        if len(types) > 1:
            raise refuse(f"{e} mixes a reduction with elements", block=name)
        extent = total.args[0].scale * total.args[0].extent if total.args else const(1, e.dtype)
        var = Var(f"v{n}" if not isinstance(e, Var) else e.name, e.dtype)
        iter_vars.append(IterVar(Range.from_min_extent(const(0, e.dtype), analyzer.simplify(extent)), var, *types))
    inverse = inverse_affine_iter_map(found.indices, [iv.var for iv in iter_vars])
    units = {v: const(0, v.dtype) for v, r in ranges.items() if v not in inverse and is_const_int(r.extent, 1)}
    check = Analyzer()
    for iv in iter_vars:
        check.bind(iv.var, iv.dom)
    return iter_vars, {v: check.simplify(e) for v, e in {**units, **inverse}.items()}
