"""Inlining by kind of operation: what a schedule of a fused group starts with."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import PrimExpr, Var, find, is_const_int
from weft.te.stage import AttachType, Stage
from weft.te.stages import Schedule
from weft.te.tensor import ComputeOp
from weft.tir import ProducerLoad


def _reads(stage: Stage) -> list[tuple[PrimExpr, ...]]:
    return [n.indices for n in find(stage.body, ProducerLoad)]


def is_injective(stage: Stage) -> bool:
    """Whether each element is computed without a reduction."""
    return isinstance(stage.origin_op, ComputeOp) and not stage.reduce_axis


def is_elementwise(stage: Stage) -> bool:
    """Whether element i of each input makes element i."""
    axis = tuple(iv.var for iv in stage.axis)
    return is_injective(stage) and all(
        len(ix) == len(axis) and all(a is b for a, b in zip(ix, axis, strict=True)) for ix in _reads(stage)
    )


def is_broadcast(stage: Stage) -> bool:
    """Whether each input is indexed by some of the axes, each at most once and in order."""
    place: dict[PrimExpr, int] = {iv.var: i for i, iv in enumerate(stage.axis)}

    def in_order(indices: tuple[PrimExpr, ...]) -> bool:
        running = [i for i in indices if not is_const_int(i, 0)]  # a dimension of one element
        if not all(isinstance(i, Var) and i in place for i in running):
            return False
        places = [place[i] for i in running]
        return places == sorted(set(places))

    return is_injective(stage) and all(in_order(ix) for ix in _reads(stage))


def _inline(schedule: Schedule, chosen: Callable[[Stage], bool]) -> None:
    for stage in schedule.stages:
        readers = schedule.consumers(stage)
        free = (
            stage.placement[0] == AttachType.GROUP_ROOT
            and not stage.is_output
            and stage.scope == "global"
            and not stage.relations
        )
        if free and readers and all(isinstance(r.op, ComputeOp) for r in readers) and chosen(stage):
            stage.compute_inline()


def AutoInlineElemWise(schedule: Schedule) -> None:
    """Inline the stages that compute element by element."""
    _inline(schedule, is_elementwise)


def AutoInlineBroadcast(schedule: Schedule) -> None:
    """Inline the stages whose inputs are at most broadcast."""
    _inline(schedule, is_broadcast)


def AutoInlineInjective(schedule: Schedule) -> None:
    """Inline the stages that have no reduction."""
    _inline(schedule, is_injective)
