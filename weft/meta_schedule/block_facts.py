"""What rules ask of a block before they schedule it, and steps that several of them take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, error, ir, tir
from weft.tir import analysis
from weft.tir.schedule import BlockRV, LoopRV, Schedule

TILED = "meta_schedule.tiling_structure"


def is_spatial(sch: Schedule) -> bool:
    """Whether no block of the function reduces anything."""
    return all(analysis.is_data_parallel(b) for b in analysis.blocks_in(sch.func.body))


def in_thread(loop: tir.For, prefix: str = "threadIdx") -> bool:
    """Whether a loop is bound to threads, or to what `prefix` says."""
    return loop.thread_binding is not None and str(loop.thread_binding.thread_tag).startswith(prefix)


def is_single(body: tir.Stmt) -> bool:
    """Whether a loop's body is no sequence."""
    return not isinstance(body, tir.SeqStmt)


def read_pattern(read: tir.BufferRegion, write: tir.BufferRegion) -> tuple[bool, bool]:
    """Say whether each index written decides at most one of those read, and whether they are in the same order."""
    at = {r.min: i for i, r in enumerate(write.region) if isinstance(r.min, ir.Var)}
    mapped: list[int] = []
    for index in (r.min for r in read.region):
        used = analysis.used_vars(index)
        if used:
            steps = arith.Analyzer().simplify(index - next(iter(used))) if len(used) == 1 else index
            if analysis.used_vars(steps) or not used <= set(at):
                return False, False
            mapped.append(at[next(iter(used))])
    complete = len(at) == len(write.region)
    return complete and len(set(mapped)) == len(mapped), complete and mapped == sorted(mapped)


def is_plainly_looped(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block's variables are the loops around it, in order."""
    loops, values = sch.state.loops_of(block.name), sch.state.realize(block.name).iter_values
    return len(loops) == len(values) and all(v is f.loop_var for v, f in zip(values, loops, strict=True))


def needs_tiling(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block reads elements again and again, so that tiles of its loops find them in a cache."""
    node = sch.get(block)
    if TILED in node.annotations or len(node.writes) != 1 or not node.reads or analysis.is_data_parallel(node):
        return False
    if not is_plainly_looped(sch, block) or len({r.buffer for r in node.reads}) < len(node.reads):
        return False
    reads = [r.region for r in node.reads if r.buffer is not node.writes[0].buffer]
    if any(ir.as_int(d.extent) is None for d in (*(iv.dom for iv in node.iter_vars), *(d for r in reads for d in r))):
        return False
    axes = {iv.var for iv in node.iter_vars if iv.iter_type == "data_par" and ir.as_int(iv.dom.extent) != 1}
    return any(axes - analysis.used_vars(*(d.min for d in region)) for region in reads)


def needs_parts(sch: Schedule, block: BlockRV, most: int) -> bool:
    """Whether a reduction is to be computed in parts, of which there are enough only then: `most` is how many.

    Its loops are constant and directly nested around it.
    """
    realize, loops = sch.state.realize(block.name), sch.state.loops_of(block.name)
    plain = is_plainly_looped(sch, block) and TILED not in realize.block.annotations
    if not loops or not plain or not analysis.is_reduction(realize, sch.state.scope_of_block(block.name)):
        return False
    inside = [f.body for f in loops]
    if any(a is not b for a, b in zip(inside, [*loops[1:], realize], strict=True)):
        return False
    kinds, extents = [analysis.loop_kind(f) for f in loops], [ir.as_int(f.extent) for f in loops]
    if "reduce" not in kinds or "mixed" in kinds or None in extents:
        return False
    space, summed = (
        math.prod(e or 0 for k, e in zip(kinds, extents, strict=True) if (k == "reduce") is reduces)
        for reduces in (False, True)
    )
    return space < summed and space <= most if needs_tiling(sch, block) else summed > 1


def fuse_reduced(sch: Schedule, block: BlockRV) -> tuple[LoopRV, int]:
    """Make one loop, inside the others, of those that a block reduces; return it and the number of others."""
    loops = sch.get_loops(block)
    reduced = [f for f in loops if analysis.loop_kind(sch.get(f)) == "reduce"]
    order = [f for f in loops if f not in reduced] + reduced
    if order != loops:
        sch.reorder(*order)
    return sch.fuse(*reduced) if len(reduced) > 1 else reduced[0], len(loops) - len(reduced)


def draw(sch: Schedule, candidates: Sequence[int]) -> Any:
    """Draw one of several numbers, all alike."""
    return sch.sample_categorical(list(candidates), [1.0 / len(candidates)] * len(candidates))


def attempt(step: Callable[..., Any], *args: Any) -> bool:
    """Take a step of a schedule, and say whether it was not refused."""
    try:
        step(*args)
    except error.ScheduleError:
        return False
    return True


def bind_threads(sch: Schedule, block: BlockRV, blocks: int, threads: int, factor: Callable[[int], Any]) -> None:
    """Bind the outer spatial loops of a block, fused, to thread blocks and threads.

    Parameters
    ----------
    blocks, threads : int
        The most thread blocks, and the most threads of one; what is longer is repeated by each thread.
    factor : callable
        Gives the number of threads, at most the number that it is given.

    Raises
    ------
    ScheduleError
        When the block runs in thread blocks that have no threads.
    """
    if sch.get(block) is sch.state.root or TILED in sch.get(block).annotations:
        return
    nodes = [sch.get(f) for f in sch.get_loops(block)]
    in_blocks, in_threads = (any(in_thread(f, p) for f in nodes) for p in ("blockIdx", "threadIdx"))
    if in_blocks and in_threads:
        return
    if in_blocks:
        raise error.ScheduleError(f"block '{block.name}' has thread blocks and no threads", help="bind threadIdx.x")
    count = 0
    for f in nodes:
        if analysis.loop_kind(f) != "data_par" or f.kind != tir.ForKind.SERIAL:
            break
        count += 1
        if not is_single(f.body):
            break
    if count == 0:
        sch.add_unit_loop(sch.get_loops(block)[0] if nodes else block)
    fused = sch.fuse(*sch.get_loops(block)[: max(count, 1)])
    if in_threads:
        sch.bind(fused, "blockIdx.x")
        return
    extent = ir.as_int(sch.get(fused).extent)
    if extent is not None and extent <= blocks * threads:
        split = sch.split(fused, [None, factor(min(extent, threads))])
    else:
        rest, *split = sch.split(fused, [None, blocks, threads])
        sch.reorder(*split, rest)
    for loop, axis in zip(split, ("blockIdx.x", "threadIdx.x"), strict=True):
        sch.bind(loop, axis)
