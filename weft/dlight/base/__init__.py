"""Rules that schedule whole functions, the pass that applies them, and the sizes that they take from a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir, tir
from weft.error import ScheduleError
from weft.target import Target, register_attribute
from weft.tir.schedule import LoopRV, Schedule

__all__ = [
    "ApplyDefaultSchedule",
    "GPUScheduleRule",
    "ScheduleRule",
    "auto_vectorize",
    "get_bytes",
    "get_extent",
    "max_threads_per_block",
    "suggest_threads_per_block",
]

Space = Schedule | list[Schedule] | None

_SIZES = {  # threads of a block, of one that reduces a row, steps of loops that are unrolled, bytes of shared memory
    "cuda": (1024, 256, 256, 49152),
    "opencl": (256, 256, 64, 16384),
    "rocm": (256, 64, 64, 65536),
    "metal": (256, 64, 64, 32768),
    "gpu": (64, 64, 64, 16384),
}
for _key, _sizes in _SIZES.items():
    for _name, _size in zip(("threads", "row_threads", "unrolled_steps", "shared_bytes"), _sizes, strict=True):
        register_attribute(_key, f"dlight.{_name}", _size)


class ScheduleRule:
    """A way to schedule functions of one kind."""

    def apply(self, func: tir.PrimFunc, target: Target, tunable: bool) -> Space:
        """Return the function scheduled for a target, or None where it is of another kind.

        With `tunable`, a list of schedules with samples to draw is fine, too.
        """
        raise NotImplementedError

    @staticmethod
    def from_callable(name: str) -> Callable[[Callable[..., Space]], ScheduleRule]:
        """Make a rule of a function ``(func, target, tunable)``; `name` is that of its class."""

        def decorator(fn: Callable[..., Space]) -> ScheduleRule:
            def apply(self: Any, func: tir.PrimFunc, target: Target, tunable: bool) -> Space:
                return fn(func, target, tunable)

            return type(name, (ScheduleRule,), {"apply": apply, "__doc__": fn.__doc__})()

        return decorator

    def is_target_available(self, target: Target) -> bool:
        """Whether the rule is for this target."""
        return True


class GPUScheduleRule(ScheduleRule):
    """A rule for GPUs: :meth:`schedule` gets the functions that are for one."""

    def is_target_available(self, target: Target) -> bool:
        """Whether the target is a GPU."""
        return "gpu" in target.keys

    def apply(self, func: tir.PrimFunc, target: Target, tunable: bool) -> Space:
        """Return the function scheduled for a GPU, or None."""
        return self.schedule(Schedule(func), target) if self.is_target_available(target) else None

    def schedule(self, sch: Schedule, target: Target) -> Schedule | None:
        """Schedule a function, or return None where it is of another kind."""
        raise NotImplementedError


class ApplyDefaultSchedule(ir.Pass):
    """A pass that gives each function of a module to rules in turn; the first that takes it decides.

    Functions with the attribute ``tir.is_scheduled`` stay as they are, and those that no rule takes; the others get
    that attribute. The target is the function's, or that of ``with Target(...)``. A rule whose steps the schedule
    refuses does not take the function.
    """

    def __init__(self, *rules: ScheduleRule) -> None:
        self.rules = list(rules)
        super().__init__("ApplyDefaultSchedule", self._scheduled_module, doc=type(self).__doc__)

    def _scheduled_module(self, mod: ir.IRModule) -> ir.IRModule:
        changed: dict[ir.GlobalVar, tir.PrimFunc] = {}
        for gv, func in mod.functions.items():
            if not isinstance(func, tir.PrimFunc) or func.attrs.get("tir.is_scheduled"):
                continue
            target = func.attrs.get("target") or Target.current(allow_none=False)
            assert target is not None
            sch = self._scheduled(func, target)
            if sch is not None:
                attrs = ir.Attrs.of(func.attrs, **{"tir.is_scheduled": True})
                changed[gv] = sch.func.replace(attrs=attrs)
        return mod.with_functions({**mod.functions, **changed}) if changed else mod

    def _scheduled(self, func: tir.PrimFunc, target: Target) -> Schedule | None:
        for rule in self.rules:
            try:
                space = rule.apply(func, target, False)
            except ScheduleError:
                continue
            if space is not None:
                return space[0] if isinstance(space, list) else space
        return None


def get_bytes(dtype: str) -> int:
    """Return the size of a value in bytes."""
    return (ir.DataType(dtype).bits * ir.DataType(dtype).lanes + 7) // 8


def get_extent(sch: Schedule, loop_rv: LoopRV) -> Any:
    """Return the extent of a loop: a number where it is constant."""
    extent = sch.get(loop_rv).extent
    known = ir.as_int(extent)
    return extent if known is None else known


def auto_vectorize(sch: Schedule, loop: LoopRV, max_vec: int) -> None:
    """Vectorize a loop of constant extent, or its inner `max_vec` steps where it is longer."""
    extent = get_extent(sch, loop)
    if isinstance(extent, int):
        sch.vectorize(loop if extent <= max_vec else sch.split(loop, [None, max_vec])[-1])


def max_threads_per_block(target: Target) -> int:
    """Return how many threads a block of the target may have."""
    return target.max_num_threads


def suggest_threads_per_block(target: Target, loops: list[Any], max_threads_for_dynamic_loop: int = 32) -> list[int]:
    """Share the threads of a block among loops: powers of two, constant loops first; the first symbolic gets the rest.

    Parameters
    ----------
    loops : list of For
        The loops.
    """
    left = target.attribute("dlight.threads", 64)
    found: dict[int, int] = {}
    extents = [ir.as_int(loop.extent) for loop in loops]
    dynamic = [i for i, e in enumerate(extents) if e is None]
    for i in [*(i for i, e in enumerate(extents) if e is not None), *dynamic]:
        most = extents[i]
        limit = min(left, max_threads_for_dynamic_loop if most is None else most)
        found[i] = 1 << (max(limit, 1).bit_length() - 1)
        left //= found[i]
    if dynamic:
        found[dynamic[0]] *= left
    return [found[i] for i in range(len(loops))]
