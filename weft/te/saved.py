"""Schedules as values without cycles, which ``save_json`` and ``pickle`` write."""

from __future__ import annotations

from typing import Any

from weft.te.stage import AttachType, Stage, StageGraph, StageGroup

_PLAIN = tuple(
    "op body is_output given_scope double_buffered rolls store_predicate tensorized layout separators".split()
)
_LISTS = ("relations", "leaf_iter_vars", "all_iter_vars", "prefetches", "alignments")


def _place(schedule: StageGraph, placed: Stage | StageGroup) -> tuple[Any, ...]:
    """Where a stage or group runs: the kind, the number of the stage, the loop, and the number of the group."""
    at, group = placed.attach_stage, placed.group
    return (
        int(placed.attach_type),
        -1 if at is None else schedule.stages.index(at),
        placed._attach_ivar,
        -1 if group is None else schedule.groups.index(group),
    )


def _restore_place(schedule: StageGraph, placed: Stage | StageGroup, saved: tuple[Any, ...]) -> None:
    kind, stage, loop, group = saved
    placed._attach(AttachType(kind), None if stage < 0 else schedule.stages[stage], loop)
    placed.group = None if group < 0 else schedule.groups[group]


def saved_stages(schedule: StageGraph) -> tuple[Any, ...]:
    """Return what there is to know of each stage."""
    return tuple(
        (
            s.origin_op,
            tuple(getattr(s, name) for name in _PLAIN),
            tuple(tuple(getattr(s, name)) for name in _LISTS),
            tuple(s.iter_attrs.items()),
            _place(schedule, s),
        )
        for s in schedule.stages
    )


def saved_groups(schedule: StageGraph) -> tuple[Any, ...]:
    """Return what there is to know of each group."""
    return tuple((g.name, _place(schedule, g)) for g in schedule.groups)


def restore_stages(schedule: StageGraph, saved: tuple[Any, ...]) -> None:
    """Give a schedule the stages that were saved."""
    schedule.stages = []
    for origin_op, plain, lists, attrs, _ in saved:
        stage = Stage(schedule, origin_op)
        for name, value in zip(_PLAIN, plain, strict=True):
            setattr(stage, name, value)
        for name, value in zip(_LISTS, lists, strict=True):
            setattr(stage, name, list(value))
        stage.iter_attrs = dict(attrs)
        schedule.stages.append(stage)
        schedule.stage_map[origin_op] = schedule.stage_map[stage.op] = stage


def restore_groups(schedule: StageGraph, groups: tuple[Any, ...], stages: tuple[Any, ...]) -> None:
    """Give a schedule the groups that were saved, and put its stages where they run."""
    schedule.groups = [StageGroup(schedule, name) for name, _ in groups]
    for group, (_, place) in zip(schedule.groups, groups, strict=True):
        _restore_place(schedule, group, place)
    for stage, fields in zip(schedule.stages, stages, strict=True):
        _restore_place(schedule, stage, fields[-1])
