"""What the rules decided about a function: which one took each block, and why others refused."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.error import InternalError, ScheduleError, UnknownHandle
from weft.ir import PrimExpr

GENERIC = "generic"
"""The rule for reductions and other blocks that no rule of their own fits."""

AS_WRITTEN = "as written"
"""What stands in place of a rule where even the generic one refused: the loops are those of the program."""


class Refusal(NamedTuple):
    """Why a rule did not take a block."""

    rule: str
    block: str
    reason: str


@dataclass
class ScheduleRecord:
    """The rule of each block of one function, by the block's name in the program, and what was refused on the way."""

    function: str
    taken: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    expects_few: bool = False
    few_elements: list[tuple[PrimExpr, int]] = field(default_factory=list, compare=False)  # lengths, and their limits

    def take(self, rule: str, blocks: set[str]) -> None:
        """Note that a rule scheduled blocks; those that a rule took before stay its own."""
        for name in sorted(blocks):
            self.taken.setdefault(name, rule)

    def refuse(self, rule: str, block: str, error: ScheduleError) -> None:
        """Note why a rule refused a block."""
        self.refusals.append(Refusal(rule, block, reason_of(rule, error)))

    def unfit(self) -> list[str]:
        """List the blocks that no rule of their own took."""
        return [block for block, rule in self.taken.items() if rule in (GENERIC, AS_WRITTEN)]

    def reasons(self, block: str) -> list[Refusal]:
        """List the refusals of a block."""
        return [r for r in self.refusals if r.block == block]

    def rules(self) -> list[str]:
        """List the rules that took blocks, each once; of element-wise work only where there is no other."""
        names = list(dict.fromkeys(self.taken.values()))
        return [n for n in names if n not in ("elementwise", "inline")] or names

    def as_json(self) -> str:
        """Return the record as text, which is kept beside compiled code."""
        return json.dumps([self.function, self.taken, self.refusals])

    @classmethod
    def from_json(cls, text: str) -> ScheduleRecord:
        """Return what :meth:`as_json` wrote."""
        function, taken, refusals = json.loads(text)
        return cls(function, taken, [Refusal(*r) for r in refusals])


def reason_of(rule: str, error: ScheduleError) -> str:
    """Return what an error says, in one line, without the name of its rule."""
    what = error.what.removeprefix(f"{rule}: ")
    where = f" ({error.where})" if isinstance(error.where, str) else ""
    return " ".join(f"{what}{where}".split())


@contextmanager
def applying(rule: str, function: str, block: str | None = None) -> Generator[None]:
    """Say which rule failed on what, where it fails with anything but a refusal.

    A rule states what it needs and refuses the rest with a ScheduleError; any other error is a defect of the rule, and
    so is an UnknownHandle: it changes a loop or a block that it has split, fused or inlined before. Defects end the
    compilation, for users as in tests: the kernel that the generic rule would make in its place is right, but a hundred
    times slower, and a schedule that a defect left half done may not even be right.

    Raises
    ------
    InternalError
        In place of errors other than refusals, and than a want of memory or of Python's stack, which say themselves
        what to do.
    """
    try:
        yield
    except (InternalError, MemoryError, RecursionError):
        raise
    except Exception as e:
        if isinstance(e, ScheduleError) and not isinstance(e, UnknownHandle):
            raise
        raise InternalError(
            f"the schedule rule '{rule}' fails on function '{function}'",
            where=None if block is None else f"block '{block}'",
            found=f"{type(e).__name__}: {e}",
        ) from e


_noted: ContextVar[list[ScheduleRecord] | None] = ContextVar("weft_schedule_records", default=None)


@contextmanager
def noting_schedules() -> Generator[list[ScheduleRecord]]:
    """Collect the records of functions that are scheduled inside, by this thread, in order."""
    found: list[ScheduleRecord] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def note_schedule(record: ScheduleRecord) -> None:
    """Give a finished record to whoever collects them."""
    collecting = _noted.get()
    if collecting is not None:
        collecting.append(record)
