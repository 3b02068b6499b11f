"""Checks of design spaces: the schedules that rules make, with what they draw decided, compute what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir, tir
from weft.meta_schedule.schedule_rule import ScheduleRule
from weft.meta_schedule.space_generator import PostOrderApply
from weft.meta_schedule.tune_context import TuneContext
from weft.target import Target
from weft.tir.schedule import Schedule, Trace
from weft.tir.schedule.testing import verify_trace_roundtrip

Decisions = Sequence[tuple[str, Any]]
Program = tir.PrimFunc | ir.IRModule
Types = type | tuple[type, ...]


def get_rules(kind: str, types: Types) -> list[ScheduleRule]:
    """List the rules of a kind of target that are of some types."""
    return [rule for rule in ScheduleRule.create(kind) if isinstance(rule, types)]


def generate_design_space(
    kind: str, mod: Program, target: Target | str, types: Types | None, sch_rules: Sequence[ScheduleRule] | None = None
) -> list[Schedule]:
    """Apply rules, or those of a kind of target that are of some types, to all blocks."""
    rules = get_rules(kind, types or ScheduleRule) if sch_rules is None else sch_rules
    space = PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return TuneContext(mod, target=target, space_generator=space, task_name="test").generate_design_space()


def check_sketches(
    mod: Program,
    sketches: Sequence[Schedule],
    expected_mods: Sequence[Program],
    expected_decisions: Sequence[Decisions],
    *,
    debug_mask: str | int = "all",
) -> None:
    """Assert that each program expected is that of another schedule, when it draws what is decided.

    Raises
    ------
    AssertionError
        When there are more schedules or fewer, or none makes a program.
    """
    assert len(sketches) == len(expected_mods) == len(expected_decisions), f"{len(sketches)} schedules"
    left = list(sketches)
    for i, (expected, decisions) in enumerate(zip(expected_mods, expected_decisions, strict=True)):
        func: Any = expected["main"] if isinstance(expected, ir.IRModule) else expected
        found = next((s for s in left if _makes(mod, s, func, decisions, debug_mask)), None)
        assert found is not None, f"no schedule makes the program expected with number {i}"
        left.remove(found)


def _makes(mod: Program, sketch: Schedule, func: tir.PrimFunc, decisions: Decisions, debug_mask: str | int) -> bool:
    drawing = [inst for inst in sketch.trace.insts if inst.kind.name.startswith("Sample")]
    if [inst.kind.name for inst in drawing] != [kind for kind, _ in decisions]:
        return False
    decided = {inst: value for inst, (_, value) in zip(drawing, decisions, strict=True)}
    sch = Schedule(mod, debug_mask=debug_mask)
    Trace(sketch.trace.insts, decided).apply_to_schedule(sch, remove_postproc=True)
    if not ir.structural_equal(*(f.without_attr("global_symbol") for f in (sch.mod["main"], func))):
        return False
    verify_trace_roundtrip(sch, mod, debug_mask=debug_mask, text_format="json")
    return True


def print_sketches(sketches: Sequence[Schedule]) -> None:
    """Print the schedules' programs, and what they drew."""
    for i, sch in enumerate(sketches):
        print(f"###### {i}\n{sch.mod.script()}")
        print(*(f'("{inst.kind.name}", {drawn}),' for inst, drawn in sch.trace.decisions.items()), sep="\n")
