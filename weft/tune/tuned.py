"""From records to schedules: what compilation asks for each kernel."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from weft import error, ir, tir
from weft.target import Target
from weft.tune.database import Asked, Database, open_database
from weft.tune.hardware import Hardware
from weft.tune.space import schedule_as_decided

CHOICE = "choice"
"""The one decision of a record about an operator."""

CONFIG = "tune.database"
"""Option of ``PassContext``: a database, or the path of one, that compilation uses."""


def current_database() -> Database | None:
    """Return the database of ``with database:``, else that of ``PassContext(config={"tune.database": ...})``."""
    if Database.current() is not None:
        return Database.current()
    config = ir.PassContext.current().config
    if config.get(CONFIG) is None:
        return None
    config[CONFIG] = open_database(config[CONFIG])
    return config[CONFIG]


def workload_of(func: tir.PrimFunc) -> str:
    """Name a kernel by what it computes, whatever it is called."""
    return ir.fingerprint(func.without_attr("global_symbol"))


def workload_of_choice(subject: str) -> str:
    """Name a choice about an operator as kernels are named."""
    return hashlib.sha256(subject.encode()).hexdigest()


class Tuned:
    """The decisions of a database for one target on this machine.

    Parameters
    ----------
    database : Database or None
        None has no decisions.
    target : Target
    """

    def __init__(self, database: Database | None, target: Target) -> None:
        self.target = target
        self.hardware = Hardware.of(target)
        self.database = database if database is not None and database.check_hardware(self.hardware) else None

    def decisions(self, func: tir.PrimFunc) -> Mapping[str, Any]:
        """Return what is decided for a kernel; nothing where the rules' own choice is best."""
        record = self.database.query(workload_of(func), self.hardware) if self.database is not None else None
        best = record.best if record is not None else None
        return best.decisions if best is not None else {}

    def choose(self, subject: str, candidates: Sequence[Any], default: Any) -> Any:
        """Return what is decided about an operator, `default` untuned.

        Parameters
        ----------
        subject : str
            What the choice is about: all that it depends on.
        candidates : sequence of numbers or strings
            Any of them is correct.
        """
        if self.database is None:
            return default
        met = self.database.asked.get(subject)
        calls = met.calls + 1 if met is not None else 1
        self.database.asked[subject] = Asked(tuple(candidates), default, calls)
        record = self.database.query(workload_of_choice(subject), self.hardware)
        best = record.best if record is not None else None
        chosen = best.decisions.get(CHOICE, default) if best is not None else default
        return chosen if chosen in candidates else default

    def cache_part(self, func: tir.PrimFunc) -> str:
        """Say what the code of a kernel depends on besides the kernel; empty where that is nothing."""
        decisions = self.decisions(func)
        return json.dumps(decisions, sort_keys=True) if decisions else ""

    def schedule(self, func: tir.PrimFunc) -> tir.PrimFunc | None:
        """Schedule a kernel as decided; None where nothing is, or where it was for other rules (a warning says so)."""
        decisions = self.decisions(func)
        if not decisions:
            return None
        try:
            scheduled = schedule_as_decided(func, self.target, decisions)
        except error.ScheduleError as e:
            name = func.attrs.get("global_symbol")
            warnings.warn(
                f"{self.database}: the record of kernel '{name}' is out of date and not used: {e.what}; tune again",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        return scheduled
