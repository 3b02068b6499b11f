"""Postprocessors: what is done to a schedule when all is decided; each says whether the schedule is good."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from weft import arith, ir, tir
from weft.meta_schedule import block_facts as facts
from weft.meta_schedule.part import Part
from weft.tir import analysis
from weft.tir.analysis import statements
from weft.tir.schedule import BlockRV, LoopRV, Schedule


class Postproc(Part):
    """Postprocesses: ``apply(sch)`` returns False where the schedule is not to be measured."""

    def apply(self, sch: Schedule) -> bool:
        """Postprocess a schedule."""
        raise NotImplementedError


class PyPostproc(Postproc):
    """A postprocessor written in Python."""


class DisallowDynamicLoop(Postproc):
    """Refuses schedules with a loop whose extent is no constant."""

    def apply(self, sch: Schedule) -> bool:
        """Whether all extents are constants."""
        functions = [f for _, f in sch.mod.items() if isinstance(f, tir.PrimFunc)]
        loops = [s for f in functions for s in statements(f.body) if isinstance(s, tir.For)]
        return all(isinstance(loop.extent, ir.IntImm) for loop in loops)


class RewriteParallelVectorizeUnroll(Postproc):
    """Does what ParallelizeVectorizeUnroll noted on the root, for each block directly in it."""

    def apply(self, sch: Schedule) -> bool:
        """Rewrite; False where a step is refused."""
        root = sch.get_block("root")
        keys = ("parallel", "vectorize", "unroll_explicit", "unroll_implicit")
        noted = {k: ir.as_int(sch.get(root).annotations.get(f"meta_schedule.{k}")) for k in keys}
        for k in (k for k, v in noted.items() if v is not None):
            sch.unannotate(root, f"meta_schedule.{k}")
        blocks = sch.get_child_blocks(root) if any(v is not None for v in noted.values()) else []
        return all(facts.attempt(_rewrite, sch, b, *noted.values()) for b in blocks)


def _rewrite(
    sch: Schedule, block: BlockRV, jobs: int | None, lanes: int | None, explicit: int | None, implicit: int | None
) -> None:
    loops = sch.get_loops(block)
    if not loops:
        return
    nodes = [sch.get(f) for f in loops]
    extents = [ir.as_int(f.extent) if _is_free(f) else None for f in nodes]
    parallel = 0 if jobs is None else _parallel_loops(nodes, extents, jobs)
    together = _contiguous_loops(sch, block, nodes)
    vector = 0 if lanes is None else _vector_loops(nodes[-together:] if together else [], extents, lanes)
    single = all(e is not None and facts.is_single(f.body) for f, e in zip(nodes, extents, strict=True))
    if parallel and vector and single and together == len(loops):
        outer, inner = sch.split(sch.fuse(*loops), [None, lanes])
        sch.parallel(outer)
        sch.vectorize(inner)
        first = outer
    else:
        parallel, first = min(parallel, len(loops) - vector), loops[0]
        if parallel:
            first = sch.fuse(*loops[:parallel])
            sch.parallel(first)
        if vector:
            fused = sch.fuse(*loops[-vector:])
            sch.vectorize(fused)
            first = fused if vector == len(loops) else first
    steps = explicit if explicit is not None else implicit
    if steps and not analysis.is_data_parallel(sch.get(block)):
        sch.annotate(first, "pragma_auto_unroll_max_step", steps)
        sch.annotate(first, "pragma_unroll_explicit", int(explicit is not None))


def _is_free(loop: tir.For) -> bool:
    """Whether a spatial loop is neither bound nor annotated."""
    return analysis.loop_kind(loop) == "data_par" and loop.thread_binding is None and not loop.annotations


def _parallel_loops(nodes: Sequence[tir.For], extents: Sequence[int | None], most: int) -> int:
    """Count the outer loops that make jobs enough; 0 where there is one job."""
    count, size = 0, 1
    for f, extent in zip(nodes, extents, strict=True):
        if extent is None:
            break
        count, size = count + 1, size * extent
        if size > most or not facts.is_single(f.body):
            break
    return count if size > 1 else 0


def _vector_loops(nodes: Sequence[tir.For], extents: Sequence[int | None], most: int) -> int:
    """Count the inner loops that have so many iterations at most; 0 where that is one."""
    count, size = 0, 1
    for f, extent in zip(reversed(nodes), reversed(extents), strict=False):
        if extent is None or not facts.is_single(f.body) or size * extent > most:
            break
        count, size = count + 1, size * extent
    return count if size > 1 else 0


def _contiguous_loops(sch: Schedule, block: BlockRV, nodes: Sequence[tir.For]) -> int:
    """Count the inner loops that, fused, walk each buffer of a block element by element, or stay where they are."""
    realize, found = sch.state.realize(block.name), len(nodes)
    values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    for access in (*realize.block.reads, *realize.block.writes):
        shape = [ir.as_int(d) for d in access.buffer.shape]
        if None in shape[1:]:
            return 0
        at = [arith.Analyzer().simplify(ir.substitute(r.min, values)) for r in access.region]
        pitch = [math.prod(e or 0 for e in shape[n + 1 :]) for n in range(len(shape))]
        count, expected = 0, 1
        for f in reversed(nodes):
            stride = next(
                (s * p for i, p in zip(reversed(at), reversed(pitch), strict=True) if (s := _stride(i, f.loop_var))), 0
            )
            if stride not in (0, expected) and (count or expected != 1):
                break
            count += 1
            expected = stride * (ir.as_int(f.extent) or 0) if stride else expected
        found = min(found, count)
    return found


def _stride(index: ir.PrimExpr, var: ir.Var) -> int:
    """Return what one step of a variable adds to an index; 0 where that is nothing, or not known."""
    if isinstance(index, ir.Add):
        return min((s for s in (_stride(index.a, var), _stride(index.b, var)) if s), default=0)
    if isinstance(index, ir.Mul):
        sides = ((index.a, index.b), (index.b, index.a))
        return next((_stride(a, var) * n for a, b in sides if (n := ir.as_int(b)) is not None), 0)
    return int(index is var)


@dataclass(eq=False)
class RewriteUnboundBlock(Postproc):
    """Binds the loops of blocks that nothing is bound of to GPU threads, as many as a block may have."""

    max_threadblocks: int = 256

    def apply(self, sch: Schedule) -> bool:
        """Bind the loops of all blocks directly in the root; False where iterations cannot be threads."""
        most = self._target.max_num_threads
        blocks = sch.get_child_blocks(sch.get_block("root"))
        return all(facts.attempt(facts.bind_threads, sch, b, self.max_threadblocks, most, int) for b in blocks)


class RewriteCooperativeFetch(Postproc):
    """Lets all threads of a block share what MultiLevelTiling copies."""

    def apply(self, sch: Schedule) -> bool:
        """Split the loops of copies, and bind and vectorize the parts."""
        threads: dict[str, int] = {}
        for inst in list(sch.trace.insts):
            axis = str(inst.attrs[0]) if inst.attrs else ""
            if inst.kind.name == "Bind" and axis in ("threadIdx.x", "threadIdx.y"):
                threads[axis] = int(ir.as_int(sch.get(inst.inputs[0]).extent) or 1)
            elif inst.kind.name == "Annotate" and axis == "warp_execution":
                threads["threadIdx.x"] = self._target.thread_warp_size
            elif inst.kind.name == "Annotate" and axis == "meta_schedule.cooperative_fetch":
                _fetch_together(sch, inst.inputs[0], int(inst.inputs[1]), threads)
        return True


def _fetch_together(sch: Schedule, block: BlockRV, lanes: int, threads: dict[str, int]) -> None:
    sch.unannotate(block, "meta_schedule.cooperative_fetch")
    loop = sch.get_loops(block)[-1]
    extent = ir.as_int(sch.get(loop).extent)
    if extent is None or not threads:
        return
    widest = max(ir.DataType(n.dtype).bits for n in ir.find(sch.get(block).body, tir.BufferLoad))
    parts = [threads[axis] for axis in sorted(threads, reverse=True)]
    vector = lanes > 1 and extent % lanes == 0 and widest <= 32
    split: list[LoopRV] = sch.split(loop, [None, *parts, *([lanes] if vector else [])])
    if vector:
        sch.vectorize(split[-1])
    for axis, part in reversed(list(zip(sorted(threads, reverse=True), split[1:], strict=False))):
        sch.bind(part, axis)


class RewriteReductionBlock(Postproc):
    """Initialises ahead of their loops what blocks sum up, unless threads sum together."""

    def apply(self, sch: Schedule) -> bool:
        """Decompose reductions, those inside other blocks too."""
        for block in analysis.blocks_in(sch.func.body):
            loops = sch.state.loops_of(block.name_hint) if block.init is not None else []
            at = next((i for i, f in enumerate(loops) if analysis.loop_kind(f) != "data_par"), None)
            bound = {f.loop_var for f in loops if f.thread_binding is not None}
            realize = sch.state.realize(block.name_hint)
            sums = [v for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.iter_type == "reduce"]
            if at is not None and bound.isdisjoint(analysis.used_vars(*sums)):
                _decompose(sch, sch.get_block(block.name_hint), at)
        return True


def _decompose(sch: Schedule, block: BlockRV, at: int) -> None:
    key = "meta_schedule.auto_tensorize"
    notes = sch.get(block).annotations
    init = sch.decompose_reduction(block, sch.get_loops(block)[at])
    if key in notes:
        sch.unannotate(init, key)
        sch.annotate(init, key, str(notes.get(f"{key}_init", "")))
    if f"{key}_init" in notes:
        sch.unannotate(block, f"{key}_init")
        sch.unannotate(init, f"{key}_init")


@dataclass(eq=False)
class RewriteTensorize(Postproc):
    """Computes blocks by the intrinsics that notes on them name; one that does not fit leaves its block as it is."""

    vectorize_init_loop: bool = False

    def apply(self, sch: Schedule) -> bool:
        """Tensorize, inner blocks first."""
        key = "meta_schedule.auto_tensorize"
        for node in reversed([b for b in analysis.blocks_in(sch.func.body) if key in b.annotations]):
            block, name = sch.get_block(node.name_hint), str(node.annotations[key])
            sch.unannotate(block, key)
            if name and not facts.attempt(sch.tensorize, block, name):
                warnings.warn(f"block '{node.name_hint}' is not computed by '{name}', which does not fit", stacklevel=2)
            if not name and self.vectorize_init_loop:
                for inner in sch.get_child_blocks(block)[:1]:
                    facts.attempt(sch.vectorize, sch.get_loops(inner)[0])
        return True
