"""Tuning kernels against the clock: time goes to those that can still save most of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft import error, tir
from weft.runtime.worker import WorkerError
from weft.target import Target
from weft.tune.case import Case
from weft.tune.database import Database, JSONDatabase, Trial, TuningRecord
from weft.tune.hardware import Hardware
from weft.tune.measure import Built, Measurer
from weft.tune.search import DrawnSearch, Search
from weft.tune.space import DrawnSpace, RuleSpace
from weft.tune.tuned import workload_of

_MARGIN = 0.97
"""A candidate has to take less than this share of the best one's time, twice."""

_BATCH = 6
"""Candidates of a kernel that are compiled together and measured one after another."""

_PATIENCE = 10
"""After so many candidates without a gain a kernel is worth a third of what it was."""

_ROUNDS_AGAIN = 15
"""Rounds of the second measurement."""

_SAVE_SECONDS = 5.0


class BudgetError(error.WeftError):
    """The time for tuning ended before anything was measured."""


class Task:
    """One kernel to be tuned.

    Parameters
    ----------
    func : PrimFunc
        The kernel, not scheduled.
    cases : sequence of Case
        The calls to measure.
    us : float
        The time of the kernel in a run of the model, which says how much it matters.
    name : str, optional
        For people.
    space : callable, optional
        ``space(sch)`` schedules the kernel and draws what it leaves open (:class:`DrawnSpace`); by default the
        choices of the schedule rules are searched.
    """

    def __init__(
        self,
        func: tir.PrimFunc,
        cases: Sequence[Case],
        us: float = 1.0,
        name: str = "",
        space: Callable[[Any], Any] | None = None,
    ) -> None:
        self.func, self.cases, self.us = func, tuple(cases), us
        self.name = name or str(func.attrs.get("global_symbol") or "kernel")
        self.space = space
        self.workload = workload_of(func)
        self.record: TuningRecord | None = None
        self.search: Search | DrawnSearch | None = None
        self.stale = 0
        self.seconds: float | None = None  # a candidate takes
        self.failure = ""

    def open(self, database: Database, hardware: Hardware, target: Target) -> None:
        """Take up what a database knows of the kernel."""
        known = database.query(self.workload, hardware)
        self.record = known if known is not None else TuningRecord(self.workload, hardware, self.name)
        try:
            self.search = (
                Search(RuleSpace(self.func, target), self.record)
                if self.space is None
                else DrawnSearch(DrawnSpace(self.func, target, self.space), self.record)
            )
        except error.ScheduleError as e:
            self.failure = e.what
            return
        database.commit(self.record)

    @property
    def open_to_gain(self) -> bool:
        """Whether there is anything left to measure."""
        return self.search is not None and not self.search.finished and not self.failure

    @property
    def tuned_us(self) -> float:
        """The time in a run of the model with the best candidate."""
        return self.us / (self.record.gain if self.record is not None else 1.0)

    def worth(self, seconds: float) -> float:
        """How much more is to be expected of a second spent on the kernel, where others take `seconds` a candidate."""
        return self.tuned_us * math.exp(-self.stale / _PATIENCE) / (self.seconds or seconds)


class Progress(NamedTuple):
    """How far tuning is: the kernel at work, candidates measured, seconds, and the kernels' time before and now."""

    name: str
    measured: int
    dropped: int
    seconds: float
    before_us: float
    now_us: float
    trial: Trial | None = None

    @property
    def gain(self) -> float:
        """How many times faster the tuned kernels are together."""
        return self.before_us / self.now_us if self.now_us else 1.0


class _Run:
    """One run of the tuner over tasks."""

    def __init__(
        self, tasks: Sequence[Task], database: Database, measurer: Measurer, report: Callable[[Progress], None] | None
    ) -> None:
        self.tasks, self.database, self.measurer, self.report = tasks, database, measurer, report
        self.measured = self.dropped = 0
        self.start = self.saved = time.monotonic()

    def note(self, task: Task, trial: Trial | None) -> None:
        """Tell how far tuning is, and save from time to time."""
        now = time.monotonic()
        if isinstance(self.database, JSONDatabase) and now - self.saved > _SAVE_SECONDS:
            self.database.save()
            self.saved = now
        if self.report is not None:
            before, after = sum(t.us for t in self.tasks), sum(t.tuned_us for t in self.tasks)
            self.report(Progress(task.name, self.measured, self.dropped, now - self.start, before, after, trial))

    def batch(self, task: Task, count: int, deadline: float) -> None:
        """Measure some candidates of a task."""
        assert task.search is not None and task.record is not None
        candidates = task.search.propose(count)
        if not candidates:
            return
        try:
            task.record.default_us = self.measurer.prepare(task.search.default, task.cases)
        except WorkerError as e:
            task.failure = e.what
            return
        for decisions, built in zip(
            candidates, self.measurer.build(task.func, candidates, task.search.marks), strict=True
        ):
            if time.monotonic() > deadline and self.measured:
                return
            if built.state == "refused" or built.mark in task.search.marks:
                task.record.add(Trial(decisions, None, "refused" if built.state == "refused" else "same"))
                continue
            if built.mark:
                task.search.marks.add(built.mark)
            self.add(task, decisions, built)

    def add(self, task: Task, decisions: dict[str, Any], built: Built) -> None:
        """Measure a candidate, again where it seems to be the best, and note what became of it."""
        assert task.record is not None
        best = task.record.best
        limit = _MARGIN * (best.ratio or 1.0 if best is not None else 1.0)
        found = self.measurer.measure(built)
        ratio, state = found.ratio, found.state
        if ratio is not None and ratio < limit:
            again = self.measurer.measure(built, _ROUNDS_AGAIN)
            ratio = max(ratio, again.ratio) if again.ratio is not None else None
            state = again.state if ratio is None else "confirmed" if ratio < limit else "measured"
        trial = Trial(decisions, round(ratio, 4) if ratio is not None else None, state, built.mark)
        self.measured += 1
        self.dropped += trial.ratio is None
        task.stale = 0 if state == "confirmed" else task.stale + 1
        task.record.add(trial)
        self.note(task, trial)


def tune_tasks(
    tasks: Sequence[Task],
    target: Target,
    database: Database,
    seconds: float,
    *,
    max_trials: int | None = None,
    measurer: Measurer | None = None,
    report: Callable[[Progress], None] | None = None,
) -> int:
    """Measure candidates of kernels until the time is over, and put what was found into a database.

    Parameters
    ----------
    tasks : sequence of Task
        The kernels.
    target : Target
        What to compile for; this machine has to run it.
    database : Database
        What is known; what is found goes in, and into its file if it has one, also when tuning is interrupted.
    seconds : float
        How long, about.
    max_trials : int, optional
        Candidates to measure at most.
    measurer : Measurer, optional
        Measures; by default one with two processes that lives as long as the call.
    report : callable, optional
        Called with a :class:`Progress` after each candidate.

    Returns
    -------
    int
        How many candidates were measured.

    Raises
    ------
    BudgetError
        When the time was over before one was.
    """
    hardware = Hardware.of(target)
    deadline = time.monotonic() + seconds
    owned = measurer is None
    measurer = measurer if measurer is not None else Measurer(target, hardware.threads)
    run = _Run(tasks, database, measurer, report)
    for task in tasks:
        task.open(database, hardware, target)
    try:
        while time.monotonic() < deadline and (max_trials is None or run.measured < max_trials):
            waiting = [t for t in tasks if t.open_to_gain]
            if not waiting:
                break
            count = _BATCH if max_trials is None else min(_BATCH, max_trials - run.measured)
            known = [t.seconds for t in tasks if t.seconds is not None]
            usual = statistics.median(known) if known else 1.0
            task, begin = max(waiting, key=lambda t: t.worth(usual)), time.monotonic()
            run.batch(task, count, deadline)
            task.seconds = max(0.05, (time.monotonic() - begin) / count)
    finally:
        if owned:
            measurer.__exit__()
        if isinstance(database, JSONDatabase):
            database.save()
    if not run.measured and any(t.open_to_gain for t in tasks):
        raise BudgetError(
            "the time was over before one candidate was measured",
            found=f"{max(0.0, seconds):.1f} s for {len(tasks)} kernels",
            help="give more, some seconds for each kernel",
        )
    return run.measured
