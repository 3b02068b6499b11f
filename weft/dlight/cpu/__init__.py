"""Rules for processors. A build schedules what no rule has; these are for programs that schedule by rules alone."""

from typing import Any

from weft.dlight.base import ScheduleRule
from weft.dlight.base.analysis import is_gemv, normalize_prim_func
from weft.dlight.inline import try_inline_contiguous_spatial
from weft.target import Target
from weft.tir.schedule import Schedule

__all__ = ["GEMV", "CPUScheduleRule", "Reduction"]


class CPUScheduleRule(ScheduleRule):
    """A rule for processors."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the target is a processor."""
        return "cpu" in target.keys


class Reduction(CPUScheduleRule):
    """One reduction, and at most one element-wise block behind it: rows on threads, lanes along the last axis."""

    def apply(self, func: Any, target: Target, tunable: bool) -> Schedule | None:
        """Return the function scheduled, or None where it is no such reduction."""
        if not self.is_target_available(target):
            return None
        sch = Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        if not infos or len(infos) > 2 or not infos[0].is_reduction() or "R" not in infos[0].dom_kind():
            return None
        if (len(infos) == 2 and not infos[1].is_injective()) or not self._takes(sch, infos[0]):
            return None
        block = infos[0].block_rv
        spatial = [i.loop_rv for i in infos[0].iters if i.kind == "S"] or [sch.add_unit_loop(block)]
        reduced = [i.loop_rv for i in infos[0].iters if i.kind == "R"]
        sch.reorder(*spatial, *reduced)
        outer, inner = sch.split(sch.fuse(*spatial), [None, 16])
        step = sch.fuse(*reduced)
        sch.reorder(outer, step, inner)
        sch.parallel(outer)
        sch.vectorize(inner)
        start = sch.decompose_reduction(block, step)
        sch.vectorize(sch.get_loops(start)[-1])
        if len(infos) == 2:
            behind = sch.get_loops(infos[1].block_rv)
            sch.parallel(sch.fuse(*behind[: max(len(spatial), 1)]) if len(behind) > 1 else behind[0])
        return sch

    def _takes(self, sch: Schedule, info: Any) -> bool:
        return True


class GEMV(Reduction):
    """A matrix, perhaps decoded on the way, times a vector."""

    def _takes(self, sch: Schedule, info: Any) -> bool:
        return is_gemv(sch, info) is not None
