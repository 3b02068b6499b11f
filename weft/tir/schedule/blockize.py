"""blockize: a loop nest, or blocks one after another, become one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.access import access_regions, evaluate_interval, relax_region
from weft.tir.analysis.apart import initialises
from weft.tir.analysis.structure import (
    around,
    child_realizes,
    conjuncts,
    init_nest,
    replace_node,
    subst_stmt,
    used_vars,
)
from weft.tir.buffer import BufferRegion
from weft.tir.schedule.reduction import with_self_reads
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, For, SeqStmt, Stmt, seq


def _check_start(block: Block, nest: list[For]) -> None:
    if not initialises(block):
        raise refuse(
            "the block starts from other elements than those that it changes, or from what a "
            "variable that it reduces over decides",
            loops=nest,
            block=block.name_hint,
        )


def blockize(state: ScheduleState, var: ir.Var, preserve_unit_iters: bool = True) -> str:
    """Make one block of a loop and all inside it; returns the new block's name.

    Each iteration variable of the block inside is taken apart: what the loops outside decide becomes a variable of the
    new block, what those inside decide one of the old block. Where no loop outside counts, it is a variable of extent
    one, whose value names the loops of one step where `preserve_unit_iters` is set and is zero otherwise.
    """
    path = state.path_to_loop(var)
    nest, realize = _perfect_nest(path)
    name = realize.block.name_hint
    inner = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in nest}
    analyzer = state.analyzer_at([*path, *nest[1:], realize])
    intervals = {v: (r.min, r.min + r.extent - 1) for v, r in inner.items()}
    outer_pred = ir.TRUE
    for c in conjuncts(realize.predicate):
        if not used_vars(c).isdisjoint(inner):
            raise refuse(
                f"the condition {c} cuts the nest",
                loops=nest,
                block=name,
                help="split by factors that divide the extent, or pad first",
            )
        outer_pred = ir.logical_and(outer_pred, c)
    outer_iters: list[tuple[ir.IterVar, ir.PrimExpr]] = []
    inner_iters: list[tuple[ir.IterVar, ir.PrimExpr]] = []
    split: dict[ir.Var, ir.PrimExpr] = {}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        start = ir.substitute(value, {v: r.min for v, r in inner.items()})
        base = analyzer.simplify(start)
        part = analyzer.simplify(value - base)
        assert iv.dom is not None
        if ir.is_const_int(part, 0):
            outer = replace_node(iv, var=replace_node(iv.var, name=f"{iv.var.name}_o"))
            outer_iters.append((outer, base))
            split[iv.var] = outer.var
            continue
        box = evaluate_interval(part, intervals)
        if box is None or used_vars(part) - set(inner) or not ir.is_const_int(analyzer.simplify(box[0]), 0):
            raise refuse(
                f"the value {value} of '{iv.var.name}' is not a part decided outside plus one decided inside",
                loops=nest,
                block=name,
            )
        extent = ir.cast(iv.dtype, analyzer.simplify(box[1] + 1))
        if not analyzer.can_prove_equal(ir.floormod(base, extent), 0):
            raise refuse(f"'{iv.var.name}' does not start at multiples of {extent}", loops=nest, block=name)
        low = ir.IterVar(
            ir.Range.from_min_extent(ir.const(0, iv.dtype), extent),
            replace_node(iv.var, name=f"{iv.var.name}_i"),
            iv.iter_type,
        )
        inner_iters.append((low, ir.cast(iv.dtype, part)))
        once = ir.is_const_int(base, 0)
        count = ir.const(1, iv.dtype) if once else analyzer.simplify(ir.ceildiv(iv.dom.extent, extent))
        outside = replace_node(iv.var, name=f"{iv.var.name}_o")
        high = ir.IterVar(ir.Range.from_min_extent(ir.const(0, iv.dtype), count), outside, iv.iter_type)
        step = (Analyzer() if once and preserve_unit_iters else analyzer).simplify(start // extent)
        outer_iters.append((high, ir.cast(iv.dtype, step)))
        split[iv.var] = low.var if once else high.var * extent + low.var
    block = subst_stmt(realize.block, split)
    assert isinstance(block, Block)
    block = replace_node(block, iter_vars=tuple(iv for iv, _ in inner_iters))
    small = BlockRealize(tuple(v for _, v in inner_iters), ir.TRUE, block)
    init: Stmt | None = None
    new_name = state.fresh_name(f"{name}_o")
    if block.init is not None and any(iv.iter_type == "reduce" for iv, _ in outer_iters):
        _check_start(realize.block, nest)
        init = init_nest(small, nest, state.fresh_name(f"{name}_init"))
        small = replace_node(small, block=replace_node(block, init=None, reads=with_self_reads(block)))
    body = around(nest, small)
    domain = {iv.var: iv.dom for iv, _ in inner_iters if iv.dom is not None}

    def relaxed(regions: tuple[BufferRegion, ...]) -> tuple[BufferRegion, ...]:
        return tuple(_relax(r, domain, analyzer) for r in regions)

    for iv, _ in (*outer_iters, *inner_iters):
        analyzer.bind(iv.var, iv.dom)
    reads, axes = relaxed(small.block.reads if init is None else block.reads), tuple(iv for iv, _ in outer_iters)
    outer_block = Block(axes, reads, relaxed(block.writes), new_name, body, init)
    state.replace(path[-1], BlockRealize(tuple(v for _, v in outer_iters), outer_pred, outer_block))
    return new_name


def blockize_blocks(state: ScheduleState, names: Sequence[str], preserve_unit_iters: bool = True) -> str:
    """Make one block of the statements from the first of some blocks to the last; returns the new block's name.

    Each loop around that counts becomes a variable of the new block, unless it runs once and `preserve_unit_iters` is
    not set.
    """
    if not names:
        raise refuse("no blocks", help="give a loop, or the blocks that become one")
    paths = [state.path_to_block(name) for name in names]
    depth = next(
        (i for i, steps in enumerate(zip(*paths, strict=False)) if any(s is not steps[0] for s in steps)),
        min(map(len, paths)),
    )
    outer, top = paths[0][: depth - 1], paths[0][depth - 1]
    items = list(top.seq) if isinstance(top, SeqStmt) else [top]
    at = [i for i, s in enumerate(items) if any(s is p for path in paths for p in path)]
    part = seq(*items[at[0] : at[-1] + 1])
    realizes = child_realizes(part)
    given = [path[-1] for path in paths]
    if len(set(names)) < len(names) or {id(r) for r in realizes} != {id(r) for r in given}:
        found = ", ".join(r.block.name_hint for r in realizes)
        raise refuse("the blocks do not stand one after another in one scope", help=f"those between are {found}")
    loops = [s for s in outer[_scope_at(outer) :] if isinstance(s, For) and s.loop_var in used_vars(part)]
    variables = {f.loop_var for f in loops}
    if any(not used_vars(f.min, f.extent).isdisjoint(variables) for f in loops):
        raise refuse("the range of a loop depends on another loop", loops=loops)
    for r in realizes:
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            if iv.iter_type != "data_par" and not used_vars(value).isdisjoint(variables):
                raise refuse(
                    f"'{iv.var.name}', a {iv.iter_type} variable, depends on a loop outside",
                    block=r.block.name_hint,
                    help="give blocks whose reductions lie inside of the loops that they share",
                )
    split: dict[ir.Var, ir.PrimExpr] = {}
    axes: list[tuple[ir.IterVar, ir.PrimExpr]] = []
    for f in loops:
        if ir.is_const_int(f.extent, 1) and not preserve_unit_iters:
            split[f.loop_var] = f.min
            continue
        outside = replace_node(f.loop_var, name=f"{f.loop_var.name}_o")
        axes.append((ir.IterVar(ir.Range.from_min_extent(f.min, f.extent), outside, "data_par"), f.loop_var))
        split[f.loop_var] = outside
    analyzer = state.analyzer_at([*outer, top])
    for iv, _ in axes:
        analyzer.bind(iv.var, iv.dom)
    body = subst_stmt(part, split)
    reads, writes = access_regions([body], analyzer)
    name = state.fresh_name("_".join(["outer", *(r.block.name_hint for r in realizes)]))
    block = Block(tuple(iv for iv, _ in axes), reads, writes, name, body)
    new = BlockRealize(tuple(v for _, v in axes), ir.TRUE, block)
    state.replace(top, seq(*items[: at[0]], new, *items[at[-1] + 1 :]))
    return name


def _scope_at(path: list[Stmt]) -> int:
    """The place of the innermost block on a path."""
    return max(i for i, s in enumerate(path) if isinstance(s, Block))


def _perfect_nest(path: list[Stmt]) -> tuple[list[For], BlockRealize]:
    """Return the loops from the end of a path down to the only block below it, whose ranges stand by themselves."""
    nest: list[For] = []
    s = path[-1]
    while isinstance(s, For):
        nest.append(s)
        s = s.body
    if not isinstance(s, BlockRealize):
        raise refuse(
            "the loops do not hold one block and nothing else", loops=nest, help="give a loop whose nest has one block"
        )
    others = {f.loop_var for f in (*path, *nest) if isinstance(f, For)}
    if any(not used_vars(f.min, f.extent).isdisjoint(others) for f in nest):
        raise refuse("the range of a loop depends on another loop", loops=nest, block=s.block.name_hint)
    return nest, s


def _relax(region: BufferRegion, domain: dict[ir.Var, ir.Range], analyzer: Any) -> BufferRegion:
    box = relax_region(region.region, domain, analyzer)
    whole = (ir.Range(d) for d in region.buffer.shape)
    return BufferRegion(region.buffer, tuple(w if r is None else r for r, w in zip(box, whole, strict=True)))
