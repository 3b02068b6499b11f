"""Rules: how a block is scheduled, by the names and sizes that programs for TVM's tuner know."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft import error, ffi, ir, tir
from weft.meta_schedule import block_facts as facts
from weft.meta_schedule.part import Part, made
from weft.tir import analysis
from weft.tir.schedule import BlockRV, ExprRV, LoopRV, Schedule

__all__ = [
    "AddRFactor",
    "ApplyCustomRule",
    "AutoBind",
    "AutoInline",
    "CrossThreadReduction",
    "InlineConstantScalars",
    "MultiLevelTiling",
    "ParallelizeVectorizeUnroll",
    "PyScheduleRule",
    "RandomComputeLocation",
    "ReuseType",
    "ScheduleRule",
    "create",
]

Tiled = tuple[Schedule, list[list[LoopRV]]]


class ScheduleRule(Part):
    """Schedules a block: ``apply(sch, block)`` returns the schedules that follow, itself among them or not."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Schedule a block."""
        raise NotImplementedError

    @staticmethod
    def create(kind: str = "cuda") -> list[ScheduleRule]:
        """List the rules of a kind of target: "llvm" (also "c") or "cuda"."""
        return made(
            "list of schedule rules", {"llvm": _rules_of_cpus, "c": _rules_of_cpus, "cuda": _rules_of_gpus}, kind
        )


class PyScheduleRule(ScheduleRule):
    """A rule written in Python."""


class ApplyCustomRule(ScheduleRule):
    """Calls the function ``meta_schedule.<key of the target>.<name>`` that a block's note ``schedule_rule`` names."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Schedule a block that names a rule; a name that is not registered is warned of."""
        name = sch.get(block).annotations.get("schedule_rule")
        if name is None or str(name) == "None":
            return [sch]
        names = [f"{p}meta_schedule.{key}.{name}" for key in self._target.keys for p in ("s_tir.", "")]
        for fn in (ffi.get_global_func(n, allow_missing=True) for n in names):
            if fn is not None:
                found = fn(sch, block)
                return [found] if isinstance(found, Schedule) else list(found)
        warnings.warn(f"no schedule rule is registered as any of {', '.join(names)}", stacklevel=2)
        sch.unannotate(block, "schedule_rule")
        return [sch]


@dataclass(eq=False)
class AutoInline(ScheduleRule):
    """Inlines element-wise blocks; those that a reduction reads only if they are cheap to compute again and again."""

    into_producer: bool
    into_consumer: bool
    inline_const_tensor: bool
    disallow_if_then_else: bool
    require_injective: bool
    require_ordered: bool
    disallow_op: Sequence[str] | None = None

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Inline a block where that is allowed and possible."""
        node = sch.get(block)
        if node is sch.state.root or len(node.writes) != 1:
            return [sch]
        used = bool(sch.get_consumers(block))
        allowed = node.annotations.get("meta_schedule.inline_rule") != "disable" and self._is_cheap(sch, block)
        forward = (self.inline_const_tensor and not node.reads) or (self.into_consumer and allowed)
        if used and forward and facts.attempt(sch.compute_inline, block):
            return [sch]
        producers = sch.get_producers(block) if self.into_producer and allowed else []
        if len(producers) == 1 and "meta_schedule.auto_tensorize" not in sch.get(producers[0]).annotations:
            if analysis.is_complete(sch.state.realize(producers[0].name), sch.state.scope_of_block(block.name)):
                facts.attempt(sch.reverse_compute_inline, block)
        return [sch]

    def _is_cheap(self, sch: Schedule, block: BlockRV) -> bool:
        if facts.is_spatial(sch):
            return True
        node, parts = sch.get(block), list(ir.walk(sch.state.realize(block.name)))
        ops = {getattr(getattr(n, "op", None), "name", "") for n in parts}
        conditional = "tir.if_then_else" in ops or any(isinstance(n, (ir.Select, tir.IfThenElse)) for n in parts)
        disallowed = {str(op).replace("tirx.", "tir.") for op in self.disallow_op or ()}
        if ops & disallowed or (self.disallow_if_then_else and conditional):
            return False
        found = [facts.read_pattern(r, node.writes[0]) for r in node.reads]
        return all((i or not self.require_injective) and (o or not self.require_ordered) for i, o in found)


class InlineConstantScalars(ScheduleRule):
    """Inlines blocks that write one constant."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Inline a block that reads nothing and writes a scalar of the function's own."""
        node = sch.get(block)
        if not node.reads and len(node.writes) == 1 and not node.writes[0].buffer.shape:
            facts.attempt(sch.compute_inline, block)
        return [sch]


@dataclass(eq=False)
class AutoBind(ScheduleRule):
    """Binds the loops of blocks that nothing is bound of to GPU threads, whose number is drawn, where they can be."""

    max_threadblocks: int = 256
    thread_extents: Sequence[int] | None = None
    max_threads_per_block: int = -1

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Bind the loops of a block."""

        def factor(most: int) -> int:
            fitting = [e for e in self.thread_extents or (32, 64, 128, 256, 512, 1024) if e <= most] or [most]
            return facts.draw(sch, fitting) if len(fitting) > 1 else fitting[0]

        saved = sch.checkpoint()
        if not facts.attempt(
            facts.bind_threads, sch, block, self.max_threadblocks, self._target.max_num_threads, factor
        ):
            sch.rollback(saved)
        return [sch]


@dataclass(eq=False)
class AddRFactor(ScheduleRule):
    """Lets reductions with few results sum in parts: the schedules with the outer loop split off, the inner, neither.

    `max_jobs_per_core` parallel jobs are enough for a core.
    """

    max_jobs_per_core: int = 16
    max_innermost_factor: int | None = None

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Split a reduction."""
        if not facts.needs_parts(sch, block, self._target.num_cores * self.max_jobs_per_core):
            return [sch]
        whole, found = sch.copy(), []
        fused, at = facts.fuse_reduced(sch, block)
        for loop in sch.split(fused, sch.sample_perfect_tile(fused, 2, self.max_innermost_factor or 64)):
            new = sch.copy()
            if facts.attempt(new.rfactor, loop, at):
                new.annotate(block, "meta_schedule.random_compute_producer", 1)
                found.append(new)
        return [*found, whole]


@dataclass(eq=False)
class CrossThreadReduction(ScheduleRule):
    """Lets the threads of a GPU's block sum together, where their consumer runs if that is possible."""

    thread_extents: Sequence[int]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Return the schedule with the reduction shared by threads, and as it was."""
        if "gpu" not in self._target.keys or not facts.needs_parts(sch, block, self._target.max_num_threads):
            return [sch]
        new = sch.copy()
        loops, at = _place(new, block)
        threads = facts.draw(new, self.thread_extents)
        if at >= 0:
            target = loops[at]
            if any(facts.in_thread(new.get(f)) for f in loops):
                threads = _threads_of(new)
            else:
                outer, inner = new.split(loops[-1], [None, threads])
                new.bind(inner, "threadIdx.x")
                target = outer if at == len(loops) - 1 else target
            new.compute_at(block, target, preserve_unit_loops=True)
            new.set_scope(block, 0, "shared")
        fused, _ = facts.fuse_reduced(new, block)
        new.bind(new.split(fused, [None, threads])[1], "threadIdx.x")
        return [new, sch]


def _place(sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], int]:
    """Return the loops of the first consumer, and the place of the one that a block may run in, or -1."""
    consumers = sch.get_consumers(block)
    if len(sch.get(block).writes) != 1 or not consumers or facts.needs_tiling(sch, consumers[0]):
        return [], -1
    around = [[f.loop_var for f in sch.state.loops_of(c.name)] for c in consumers]
    shared = [v for v in around[0] if all(v in others for others in around)]
    own = [analysis.loop_kind(f) for f in sch.state.loops_of(block.name)]
    return sch.get_loops(consumers[0]), min([*own, "reduce"].index("reduce"), len(shared)) - 1


def _threads_of(sch: Schedule) -> int | ExprRV:
    """Return the factor of the loop that was first bound to threadIdx.x."""
    splits = {
        id(o): i.inputs[1 + n] for i in sch.trace.insts if i.kind.name == "Split" for n, o in enumerate(i.outputs)
    }
    bound = [i.inputs[0] for i in sch.trace.insts if i.kind.name == "Bind" and i.attrs[0] == "threadIdx.x"]
    return next(splits[id(f)] for f in bound if splits.get(id(f)) is not None)


@dataclass(eq=False)
class ParallelizeVectorizeUnroll(ScheduleRule):
    """Notes on the root what RewriteParallelVectorizeUnroll is to do; -1, or nothing to draw from: not at all."""

    max_jobs_per_core: int = 16
    max_vectorize_extent: int = 16
    unroll_max_steps: Sequence[int] | None = None
    unroll_explicit: bool = True

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Annotate the root."""
        if sch.get(block) is not sch.state.root:
            return [sch]
        if self.max_jobs_per_core != -1:
            sch.annotate(block, "meta_schedule.parallel", self.max_jobs_per_core * self._target.num_cores)
        if self.max_vectorize_extent != -1:
            sch.annotate(block, "meta_schedule.vectorize", self.max_vectorize_extent)
        if self.unroll_max_steps and not facts.is_spatial(sch):
            key = f"meta_schedule.unroll_{'explicit' if self.unroll_explicit else 'implicit'}"
            sch.annotate(block, key, facts.draw(sch, self.unroll_max_steps))
        return [sch]


class RandomComputeLocation(ScheduleRule):
    """Computes blocks that nothing was decided of at a place of their consumers that is drawn."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Move a block, and the parts that are summed up to it."""
        node, loops = sch.get(block), sch.state.loops_of(block.name)
        if not loops or facts.TILED in node.annotations or sch.state.scope_of_block(block.name) is not sch.state.root:
            return [sch]
        if len(analysis.child_realizes(loops[0].body)) > 1 or not sch.get_consumers(block):
            return [sch]
        parts = []
        if "meta_schedule.random_compute_producer" in node.annotations:
            parts = sch.get_producers(block)
            sch.unannotate(block, "meta_schedule.random_compute_producer")
        for b in [block, *parts]:
            sch.compute_at(b, sch.sample_compute_location(b), preserve_unit_loops=True)
        return [sch]


class ReuseType(NamedTuple):
    """Whether ("no", "may", "must"), at which levels of tiles (from 1), and in which memory a copy is made."""

    req: str
    levels: Sequence[int]
    scope: str


@dataclass(eq=False)
class MultiLevelTiling(ScheduleRule):
    """Tiles contractions and windows.

    Parameters
    ----------
    structure : str
        The levels, outermost first: "S" of spatial loops, "R" of those that are summed, such as "SSRSRS".
    tile_binds : sequence of str, optional
        What the first levels, each fused, are bound to.
    max_innermost_factor : int, optional
    vector_load_lens : sequence of int, optional
        Lanes of copies of what is read, which are drawn.
    reuse_read, reuse_write : ReuseType or mapping, optional
    filter_fn : callable, optional
        Says of a reference to a block that it is to be tiled, whatever it reads.

    Raises
    ------
    InvalidArgument
        When the structure has other letters, or a copy is made at a level that it lacks.
    """

    structure: str
    tile_binds: Sequence[str] | None = None
    max_innermost_factor: int | None = None
    vector_load_lens: Sequence[int] | None = None
    reuse_read: ReuseType | Mapping[str, Any] | None = None
    reuse_write: ReuseType | Mapping[str, Any] | None = None
    filter_fn: Callable[..., bool] | None = None

    def __post_init__(self) -> None:
        count = len(self.structure)
        for reuse in (_reuse(self.reuse_read), _reuse(self.reuse_write)):
            known = reuse.req in ("no", "may", "must") and all(0 < level <= count for level in reuse.levels)
            if not known or not set(self.structure) <= {"S", "R"} or len(self.tile_binds or ()) > count:
                raise error.InvalidArgument(
                    "MultiLevelTiling: levels that the structure lacks",
                    expected=f"S, R, levels 1 to {count}",
                    found=f"{self.structure!r}, {reuse}",
                )

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """Tile a block: a schedule for each choice of levels."""
        wanted = self.filter_fn is not None and self.filter_fn(sch, sch.get_sref(block))
        if not facts.needs_tiling(sch, block) and not (wanted and facts.is_plainly_looped(sch, block)):
            return [sch]
        sch.annotate(block, facts.TILED, self.structure)
        tiled = [(sch, self._tiles(sch, block))]
        for step in (self._written, self._read, self._pipelined):
            tiled = [new for old in tiled for new in step(block, *old)]
        return [new for new, _ in tiled]

    def _tiles(self, sch: Schedule, block: BlockRV) -> list[list[LoopRV]]:
        """Split the loops of a block, and order them by levels."""
        tiles: list[list[LoopRV]] = [[] for _ in self.structure]
        size: Any = 1
        for loop, iv in zip(sch.get_loops(block), sch.get(block).iter_vars, strict=True):
            kind = {"data_par": "S", "reduce": "R"}.get(iv.iter_type)
            levels = [i for i, c in enumerate(self.structure) if c == kind]
            extent = ir.as_int(sch.get(loop).extent)
            size = size if kind != "S" or size is None else None if extent is None else size * extent
            parts = [loop]
            if len(levels) > 1:
                most = self.max_innermost_factor or 64
                parts = sch.split(loop, sch.sample_perfect_tile(loop, len(levels), max_innermost_factor=most))
            for level, part in zip(levels, parts, strict=bool(levels)):
                tiles[level].append(part)
        sch.reorder(*(loop for tile in tiles for loop in tile))
        for i, axis in enumerate(self.tile_binds or ()):
            tiles[i] = [sch.fuse(*tiles[i])]
            sch.bind(tiles[i][0], axis)
        if "gpu" in self._target.keys:
            warp = self._target.thread_warp_size
            least = warp if size is not None and size > 2 * warp else 1
            sch.annotate(block, "meta_schedule.thread_extent_low_inclusive", least)
            sch.annotate(block, "meta_schedule.thread_extent_high_inclusive", self._target.max_num_threads)
        return tiles

    def _written(self, block: BlockRV, sch: Schedule, tiles: list[list[LoopRV]]) -> list[Tiled]:
        """Write tiles to a copy, which is stored behind a level's loops."""
        reuse = _reuse(self.reuse_write)
        levels = sch.get(block).annotations.get("meta_schedule.write_cache_level")
        if reuse.req == "no":
            return [(sch, tiles)]
        if levels is not None:
            reuse = ReuseType("must", [int(level) for level in levels], reuse.scope)
        users = sch.get_consumers(block) if reuse.req == "may" else []
        is_copied = len(users) == 1 and _is_copy(sch.get(users[0]))
        plain = [(sch.copy(), tiles)] if reuse.req == "may" else []
        found = [] if is_copied else plain
        copy = users[0] if is_copied else sch.cache_write(block, 0, reuse.scope)
        for level in reuse.levels:
            new = sch.copy()
            new.reverse_compute_at(copy, _innermost(tiles, level), preserve_unit_loops=True)
            found.append((new, tiles))
        return found + plain if is_copied else found

    def _read(self, block: BlockRV, sch: Schedule, tiles: list[list[LoopRV]]) -> list[Tiled]:
        """Copy what tiles read, ahead of a level's loops."""
        reuse, found = _reuse(self.reuse_read), []
        for level in reuse.levels if reuse.req != "no" else ():
            new = sch.copy()
            node = new.get(block)
            for i, r in enumerate(node.reads):
                if not any(r.buffer is w.buffer for w in node.writes):
                    copy = new.cache_read(block, i, reuse.scope, [block])
                    new.compute_at(copy, _innermost(tiles, level), preserve_unit_loops=True)
                    new.fuse(*new.get_loops(copy)[-len(r.region) :])
                    self._fetched_together(new, copy, r.buffer.dtype)
            found.append((new, tiles))
        return found or [(sch, tiles)]

    def _fetched_together(self, sch: Schedule, copy: BlockRV, dtype: Any) -> None:
        most = {"float32": 4, "float16": 8, "int8": 16}.get(str(dtype), 1 << 30)
        odd = str(dtype) != "float16"  # else lanes are a pair or more of them
        lanes = [n for n in self.vector_load_lens or () if n <= most and (odd or n == 1 or n % 2 == 0)]
        if lanes:
            sch.annotate(copy, "meta_schedule.cooperative_fetch", facts.draw(sch, lanes))

    def _pipelined(self, block: BlockRV, sch: Schedule, tiles: list[list[LoopRV]]) -> list[Tiled]:
        """Also let copies for the next tiles run beside the computation, where the processor has such copies."""
        arch, level = self._target.arch.removeprefix("sm_"), self.structure.find("R")
        if not (arch.isdigit() and int(arch) >= 80 and "gpu" in self._target.keys) or level < 0 or not tiles[level]:
            return [(sch, tiles)]
        body: Any = sch.get(tiles[level][-1]).body
        if not isinstance(body, tir.SeqStmt) or len(body.seq) != 3 or any(not isinstance(s, tir.For) for s in body.seq):
            return [(sch, tiles)]
        found = [(sch, tiles)]
        for stages in (4, 5):
            new = sch.copy()
            fused = new.fuse(*tiles[level])
            new.annotate(fused, "software_pipeline_stage", [0, 0, stages - 2])
            new.annotate(fused, "software_pipeline_order", [0, 1, 2])
            new.annotate(fused, "software_pipeline_async_stages", [0])
            found.append((new, tiles))
        return found


def _reuse(given: ReuseType | Mapping[str, Any] | None) -> ReuseType:
    return ReuseType("no", (), "") if given is None else given if isinstance(given, ReuseType) else ReuseType(**given)


def _innermost(tiles: list[list[LoopRV]], level: int) -> LoopRV:
    if not tiles[level - 1]:
        raise error.ScheduleError(f"MultiLevelTiling: the block has no loop at level {level} for a copy")
    return tiles[level - 1][-1]


def _is_copy(node: tir.Block) -> bool:
    return len(node.writes) == 1 and all(all(facts.read_pattern(r, node.writes[0])) for r in node.reads)


def _rules_of_cpus() -> list[ScheduleRule]:
    return [
        ApplyCustomRule(),
        InlineConstantScalars(),
        AutoInline(False, True, True, True, True, True, ["tir.exp"]),
        AddRFactor(max_jobs_per_core=16, max_innermost_factor=64),
        MultiLevelTiling("SSRSRS", max_innermost_factor=64, reuse_write=ReuseType("may", (1, 2), "global")),
        ParallelizeVectorizeUnroll(16, 64, [0, 16, 64, 512]),
        RandomComputeLocation(),
    ]


def _rules_of_gpus() -> list[ScheduleRule]:
    tiling = MultiLevelTiling(
        "SSSRRSRS",
        ["blockIdx.x", "vthread.x", "threadIdx.x"],
        64,
        [1, 2, 3, 4, 8, 16],
        reuse_read=ReuseType("must", (4,), "shared"),
        reuse_write=ReuseType("must", (3,), "local"),
    )
    return [
        ApplyCustomRule(),
        tiling,
        InlineConstantScalars(),
        AutoInline(True, True, True, False, False, False),
        CrossThreadReduction([4, 8, 16, 32, 64, 128, 256, 512]),
        ParallelizeVectorizeUnroll(-1, -1, [0, 16, 32, 64, 128, 256, 512, 1024]),
        AutoBind(256, [32, 64, 128, 256, 512, 1024]),
    ]


create = ScheduleRule.create
