"""What the rules decided about functions, with an estimate of what it costs: text for people, numbers for tools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from weft.error import InvalidArgument
from weft.ir import IRModule
from weft.machine import TargetLike, machine_of
from weft.tir.analysis.pattern import has_vector_axis
from weft.tir.analysis.structure import child_realizes
from weft.tir.analysis.work import Work, block_steps, nominal_shapes, work_of
from weft.tir.function import PrimFunc
from weft.tir.schedule.rules import ScheduleRecord, noting_schedules, schedule_func
from weft.tir.stmt import Block, BlockRealize

GENERIC_OPERATIONS_A_CYCLE = 0.4
"""What one core does where no rule of its own fits a block. Measured at some 3 GHz: grouped convolutions whose vectors
are gathered 0.3 to 1.2 Gop/s, a running sum 1.05."""

_RULE_SHARE = 0.5
"""The share of the peak that kernels of rules reach."""

_BYTES_A_CYCLE = 4.0
"""What a core gets from memory where all of them read."""


class Estimate(NamedTuple):
    """What a kernel costs: cycles of one core, of which `generic` are of blocks that no rule of their own took.

    ``share`` is the part of the machine's ceiling (multiply-adds or memory, whichever bounds it) that it comes to.
    """

    work: Work
    cycles: float
    generic: float
    share: float


@dataclass(frozen=True)
class KernelReport:
    """A function's record; `slow` lists the blocks without a rule that suits them."""

    name: str
    record: ScheduleRecord
    slow: tuple[str, ...]
    func: PrimFunc
    target: TargetLike | None

    @cached_property
    def estimate(self) -> Estimate | None:
        """What the kernel costs; None where its work depends on data.

        The rates are one machine's and rough: they are for telling a kernel that takes a model's time from one that
        does not.
        """
        shapes = nominal_shapes(self.func)
        work = work_of(self.func, shapes) if shapes is not None else None
        if work is None:
            return None
        machine = machine_of(self.target)
        peak = 2.0 * machine.fma_per_cycle * machine.lanes(32)
        ideal = max(work.operations / peak, work.bytes / _BYTES_A_CYCLE, 1.0)
        steps = block_steps(self.func, shapes) if self.slow and isinstance(self.func.body, BlockRealize) else {}
        operations = sum(max(steps[b]) for b in self.slow if b in steps)
        generic = operations / GENERIC_OPERATIONS_A_CYCLE
        others = max(work.operations - operations, 0.0) / (peak * _RULE_SHARE)
        cycles = max(others + generic, work.bytes / _BYTES_A_CYCLE)
        return Estimate(work, cycles, generic, min(1.0, ideal / max(cycles, 1.0)))

    def __str__(self) -> str:
        lines = [f"{self.name}: {', '.join(self.record.rules()) or 'nothing to schedule'}"]
        for block, rule in self.record.taken.items():
            lines.append(f"  {block}: {rule}{', which does not suit it' if block in self.slow else ''}")
        lines += [f"  {r.rule} refused {r.block}: {r.reason}" for r in self.record.refusals]
        if self.slow and self.estimate is not None:
            work = self.estimate.work
            lines.append(
                f"  estimate: {_amount(work.operations, 'operations')}, {_amount(work.bytes, 'bytes')}; "
                f"{self.estimate.share:.1%} of the machine's ceiling"
            )
        return "\n".join(lines)

    def reasons(self) -> str:
        """Say in one line why rules refused the slow blocks."""
        found = [f"{r.rule}: {r.reason}" for b in self.slow for r in self.record.reasons(b)]
        return "; ".join(dict.fromkeys(found)) or "no rule is for such blocks"


class ScheduleReport:
    """Reports of kernels, those first whose blocks without a rule cost most."""

    def __init__(self, kernels: Iterable[KernelReport]) -> None:
        costs = [(k.estimate.generic if k.slow and k.estimate else 0.0, k) for k in kernels]
        self.kernels = tuple(k for _, k in sorted(costs, key=lambda pair: pair[0], reverse=True))

    def __str__(self) -> str:
        n = sum(bool(k.slow) for k in self.kernels)
        return "\n".join([f"{len(self.kernels)} kernels, {n} with blocks that no rule suits", *map(str, self.kernels)])


def explain_schedule(func_or_mod: PrimFunc | IRModule, target: TargetLike | None) -> ScheduleReport:
    """Say which rule took each block of a function, or of the functions of a module, which refused, and why.

    Parameters
    ----------
    func_or_mod : PrimFunc or IRModule
        In block form, as ``te.create_prim_func`` makes it or ``weft inspect --stage kernels`` prints it; other
        functions of a module, and those that are scheduled already, are passed over.
    target : Target
        What they are scheduled for.

    Returns
    -------
    ScheduleReport
        ``print(report)`` for people; sizes of symbolic dimensions are taken to be 64, of a symbolic batch 1.

    Raises
    ------
    InvalidArgument
        When it is something else.
    """
    if isinstance(func_or_mod, PrimFunc):
        name = str(func_or_mod.attrs.get("global_symbol") or "main")
        return ScheduleReport([_explained(name, func_or_mod, target)])
    if not isinstance(func_or_mod, IRModule):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            "only functions of TIR are scheduled", expected="PrimFunc or IRModule", found=repr(func_or_mod)
        )
    functions = [(v.name_hint, f) for v, f in func_or_mod.items() if isinstance(f, PrimFunc)]
    open_ones = [(name, f) for name, f in functions if not f.attrs.get("tir.is_scheduled")]
    return ScheduleReport(_explained(name, f, target) for name, f in open_ones)


def _explained(name: str, func: PrimFunc, target: TargetLike | None) -> KernelReport:
    with noting_schedules() as records:
        schedule_func(func, target)
    return report_of(name, func, records[0], target)


def report_of(name: str, func: PrimFunc, record: ScheduleRecord, target: TargetLike | None) -> KernelReport:
    """Make the report of a function that was scheduled somewhere else, in another process or another year."""
    slow = tuple(b for b in record.taken if _is_slow(func, record, b))
    return KernelReport(name, record, slow, func, target)


def _is_slow(func: PrimFunc, record: ScheduleRecord, name: str) -> bool:
    """Whether a block runs as no rule would have it.

    That is one of the generic rule, or one that the rules it was meant for refused and another took, whose vectors are
    gathered.
    """
    block = _blocks(func).get(name)
    if name in record.unfit():
        return block is not None and bool(block.iter_vars)
    return (
        block is not None and record.taken[name] == "rows" and bool(record.reasons(name)) and not has_vector_axis(block)
    )


def _blocks(func: PrimFunc) -> dict[str, Block]:
    if not isinstance(func.body, BlockRealize):
        return {}
    return {r.block.name_hint: r.block for r in child_realizes(func.root)}


def _amount(value: float, unit: str) -> str:
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix} {unit}"
    return f"{value:.0f} {unit}"
