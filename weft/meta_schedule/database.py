"""Records of what was measured: a workload, the trace of a schedule, and its times; in memory or in two files.

The file of workloads holds a line ``[hash, module]`` for each, that of records ``[number of the workload, [trace,
seconds, target, arguments]]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from weft import error, tir
from weft.ir import Ambient, IRModule, fingerprint, load_json, rewrite, save_json
from weft.meta_schedule.arg_info import ArgInfo, Seconds, entry_of
from weft.meta_schedule.part import made
from weft.target import Target
from weft.tir.analysis import blocks_in, replace_node
from weft.tir.schedule import Schedule, Trace
from weft.tune import log

__all__ = [
    "Database",
    "JSONDatabase",
    "MemoryDatabase",
    "OrderedUnionDatabase",
    "PyDatabase",
    "ScheduleFnDatabase",
    "TuningRecord",
    "UnionDatabase",
    "Workload",
    "create",
]


def _module(mod: IRModule | tir.PrimFunc) -> IRModule:
    return IRModule({"main": mod}) if isinstance(mod, tir.PrimFunc) else mod


def _names(func: tir.PrimFunc) -> list[str]:
    return [b.name_hint for b in blocks_in(func.body)]


def workload_hash(mod: IRModule | tir.PrimFunc) -> str:
    """Name a module by what it computes, whatever its functions and blocks are called."""
    parts = []
    for _, func in _module(mod).items():
        if isinstance(func, tir.PrimFunc):
            numbers = {name: f"b{i}" for i, name in enumerate(dict.fromkeys(_names(func)))}
            plain = rewrite(
                func.body,
                lambda n, to=numbers: (
                    replace_node(n, name_hint=to[n.name_hint]) if isinstance(n, tir.Block) and n.name_hint in to else n
                ),
            )
            parts.append(fingerprint(func.replace(body=plain).without_attr("global_symbol")))
    return "-".join(sorted(parts))


class Workload:
    """A module that is tuned."""

    def __init__(self, mod: IRModule | tir.PrimFunc) -> None:
        self.mod = _module(mod)
        self.hash = workload_hash(self.mod)

    def as_json(self) -> list[Any]:
        """Return the hash and the module."""
        return [self.hash, save_json(self.mod)]

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> Workload:
        """Read what :meth:`as_json` returned."""
        with error.reading("a workload of another form", expected="what as_json() returned"):
            return Workload(load_json(json_obj[1]))


class TuningRecord:
    """A schedule of a workload and how long it took.

    Parameters
    ----------
    trace : Trace
    workload : Workload
    run_secs : sequence of float, optional
    target : Target, optional
    args_info : sequence of ArgInfo, optional
    """

    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[Any] | None = None,
        target: Target | None = None,
        args_info: Sequence[ArgInfo] | None = None,
    ) -> None:
        self.trace, self.workload, self.target = trace, workload, target
        self.run_secs = Seconds.of(run_secs)
        self.args_info = list(args_info) if args_info is not None else None

    @property
    def mean_seconds(self) -> float:
        """The mean of the times; very long where there are none."""
        return sum(self.run_secs) / len(self.run_secs) if self.run_secs else 1e10

    def is_valid(self) -> bool:
        """Whether there are times, all of them more than nothing and less than the mark of failures."""
        return bool(self.run_secs) and all(0 <= s < 1e9 for s in self.run_secs or ())

    def as_measure_candidate(self) -> Any:
        """Return the schedule with the arguments, as what is measured."""
        sch = Schedule(self.workload.mod)
        self.trace.apply_to_schedule(sch)
        return MeasureCandidate(sch, self.args_info or ArgInfo.from_entry_func(self.workload.mod))

    def as_json(self) -> list[Any]:
        """Return the record as lists, strings and numbers."""
        args = [a.as_json() for a in self.args_info] if self.args_info is not None else None
        target = self.target.identity if self.target is not None else None
        return [self.trace.as_json(), self.run_secs, target, args]

    @staticmethod
    def from_json(json_obj: Sequence[Any], workload: Workload) -> TuningRecord:
        """Read what :meth:`as_json` returned."""
        with error.reading("a record of another form", expected="what as_json() returned"):
            trace, run_secs, target, args = json_obj
            sch = Schedule(workload.mod)
            Trace.apply_json_to_schedule(trace, sch)
            found = [ArgInfo.from_json(a) for a in args] if args is not None else None
            return TuningRecord(sch.trace, workload, run_secs, Target(target) if target else None, found)


class MeasureCandidate:
    """What is measured: a schedule, and the arguments of its function."""

    def __init__(self, sch: Schedule, args_info: Sequence[ArgInfo] | None = None) -> None:
        self.sch, self.args_info = sch, list(args_info or ())


class Database:
    """Records by workload; inside ``with database:`` compilation asks it."""

    _open: Ambient[Any] = Ambient("meta_schedule.Database")

    def __enter__(self) -> Self:
        return Database._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        Database._open.leave(self)

    @staticmethod
    def current() -> Any:
        """Return the innermost database of a ``with`` statement."""
        return Database._open.current

    def has_workload(self, mod: IRModule) -> bool:
        """Whether a workload was committed."""
        raise NotImplementedError

    def commit_workload(self, mod: IRModule) -> Workload:
        """Enter a workload, or return the one that is there."""
        raise NotImplementedError

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Enter a record."""
        raise NotImplementedError

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """Return the fastest records of a workload."""
        raise NotImplementedError

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records."""
        raise NotImplementedError

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return the fastest record of a module; None where there is none."""
        if not self.has_workload(mod):
            return None
        found = self.get_top_k(self.commit_workload(mod), 1)
        return found[0] if found and found[0].is_valid() else None

    def query_schedule(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return the fastest schedule of a module, applied to it; None where there is none."""
        record = self.query_tuning_record(mod, target, workload_name)
        return None if record is None else apply_record(record, mod)

    def query_ir_module(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return a module as its fastest schedule has it; None where there is none."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(self, mod: IRModule, target: Target, *, workload_name: str | None = None, kind: str = "schedule") -> Any:
        """Return what is known of a module: its ``"schedule"``, ``"record"`` or ``"ir_module"``."""
        how = {"schedule": self.query_schedule, "record": self.query_tuning_record, "ir_module": self.query_ir_module}
        if kind not in how:
            raise error.InvalidArgument(f"unknown kind '{kind}'", expected=", ".join(how))
        return how[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Copy the fastest record of each workload into another database."""
        best: dict[str, TuningRecord] = {}
        for record in self.get_all_tuning_records():
            known = best.get(record.workload.hash)
            if record.is_valid() and (known is None or record.mean_seconds < known.mean_seconds):
                best[record.workload.hash] = record
        for r in best.values():
            workload = destination.commit_workload(r.workload.mod)
            destination.commit_tuning_record(TuningRecord(r.trace, workload, r.run_secs, r.target, r.args_info))

    @staticmethod
    def create(kind: Any = "json", *args: Any, **kwargs: Any) -> Database:
        """Make a database: ``"json"``, ``"memory"``, ``"union"``, ``"ordered_union"``, or of a schedule function."""
        if not isinstance(kind, str):
            return ScheduleFnDatabase(kind, *args, **kwargs)
        kinds: dict[str, Any] = {
            "json": JSONDatabase,
            "memory": MemoryDatabase,
            "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }
        return made("database", kinds, kind, *args, **kwargs)


class PyDatabase(Database):
    """A database written in Python."""


def apply_record(record: TuningRecord, mod: IRModule | tir.PrimFunc) -> Schedule:
    """Apply a record's schedule to a module that computes the same; blocks may have other names there."""
    sch = Schedule(mod)
    ours, theirs = _names(entry_of(_module(mod))), _names(entry_of(record.workload.mod))
    names = dict(zip(theirs, ours, strict=True)) if len(ours) == len(theirs) else {}
    changed = {old: new for old, new in names.items() if old != new}
    trace = _renamed(record.trace, changed) if changed else record.trace
    trace.apply_to_schedule(sch)
    return sch


def _renamed(trace: Trace, names: dict[str, str]) -> Trace:
    """Look blocks up by other names."""
    new = Trace()
    for inst in trace.insts:
        decision, name = trace.get_decision(inst), inst.arguments.get("name")
        if inst.kind.name == "GetSBlock" and name in names:
            inst = inst.with_arguments({**inst.arguments, "name": names[name]})
        new.append(inst, decision)
    return new


class MemoryDatabase(Database):
    """Records in memory.

    Parameters
    ----------
    module_equality : str
        Accepted: modules are compared by what they compute.
    """

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality not in ("structural", "ignore-tensor", "ignore-ndarray", "anchor-block"):
            raise error.InvalidArgument("unknown module_equality", expected="'structural'", found=module_equality)
        self.module_equality = module_equality
        self.workloads: dict[str, Workload] = {}
        self.records: list[TuningRecord] = []

    def has_workload(self, mod: IRModule) -> bool:
        """Whether a workload was committed."""
        return workload_hash(mod) in self.workloads

    def commit_workload(self, mod: IRModule) -> Workload:
        """Enter a workload, or return the one that is there."""
        made = Workload(mod)
        return self.workloads.setdefault(made.hash, made)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Enter a record."""
        self.records.append(record)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """Return the fastest records of a workload, without those that failed."""
        if top_k < 0:
            raise error.InvalidArgument("top_k is a count", found=str(top_k))
        found = [r for r in self.records if r.workload.hash == workload.hash and r.is_valid()]
        return sorted(found, key=lambda r: r.mean_seconds)[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Return all records."""
        return list(self.records)

    def __len__(self) -> int:
        return len(self.records)


class JSONDatabase(MemoryDatabase):
    """Records in two files; a line is appended for each.

    Parameters
    ----------
    path_workload, path_tuning_record : path, optional
    work_dir : path, optional
        The folder of both, named ``database_workload.json`` and ``database_tuning_record.json``, in place of the paths.
    allow_missing : bool
        Make the files where they are not there.
    module_equality : str
    """

    def __init__(
        self,
        path_workload: Any = None,
        path_tuning_record: Any = None,
        *,
        work_dir: Any = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        if work_dir is not None:
            path_workload = path_workload or Path(work_dir) / "database_workload.json"
            path_tuning_record = path_tuning_record or Path(work_dir) / "database_tuning_record.json"
        if path_workload is None or path_tuning_record is None:
            raise error.InvalidArgument("a database in files needs work_dir, or both paths")
        self.path_workload, self.path_tuning_record = str(path_workload), str(path_tuning_record)
        for path in map(Path, (self.path_workload, self.path_tuning_record)):
            if not path.exists():
                if not allow_missing:
                    raise error.InvalidArgument("there is no such database", found=str(path))
                with log.appending(path):
                    pass
        self._numbered: list[Workload | None] = []  # by line of the file, to which others append, too
        self._read_workloads()
        lines = log.lines_of(self.path_tuning_record)
        self.records = [r for r in log.records(lines, self._record, self.path_tuning_record) if r is not None]

    def _read_workloads(self) -> None:
        """Take in the lines of the file that are new."""
        lines = log.lines_of(self.path_workload)[len(self._numbered) :]
        for w in log.records(lines, lambda line: Workload.from_json(json.loads(line)), self.path_workload):
            self._numbered.append(w)
            if w is not None:
                self.workloads.setdefault(w.hash, w)

    def _record(self, line: str) -> TuningRecord:
        number, record = json.loads(line)
        if number < 0 or (workload := self._numbered[number]) is None:
            raise IndexError(f"there is no workload {number}")
        return TuningRecord.from_json(record, workload)

    def commit_workload(self, mod: IRModule) -> Workload:
        """Enter a workload, or return the one that is there."""
        made = Workload(mod)
        if made.hash not in self.workloads:
            with log.appending(self.path_workload) as write:
                self._read_workloads()
                if made.hash not in self.workloads:
                    write(json.dumps(made.as_json()) + "\n")
                    self._numbered.append(made)
        return self.workloads.setdefault(made.hash, made)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Enter a record."""
        workload = self.commit_workload(record.workload.mod)
        number = next(i for i, w in enumerate(self._numbered) if w is not None and w.hash == workload.hash)
        super().commit_tuning_record(record)
        with log.appending(self.path_tuning_record) as write:
            write(json.dumps([number, record.as_json()]) + "\n")


class UnionDatabase(Database):
    """Asks several databases, and takes the fastest of what they know."""

    def __init__(self, *databases: Database) -> None:
        self.databases = list(databases)

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return the fastest record that any has."""
        found = [d.query_tuning_record(mod, target, workload_name) for d in self.databases]
        return min((r for r in found if r is not None), key=lambda r: r.mean_seconds, default=None)


class OrderedUnionDatabase(UnionDatabase):
    """Asks several databases, one after another, until one knows."""

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return the record of the first that has one."""
        asked = (d.query_tuning_record(mod, target, workload_name) for d in self.databases)
        return next((r for r in asked if r is not None), None)


class ScheduleFnDatabase(Database):
    """Schedules of a function: ``schedule_fn(sch)`` returns whether it has scheduled the module.

    Parameters
    ----------
    schedule_fn : callable
    module_equality : str
    """

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        self.schedule_fn = schedule_fn

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str | None = None) -> Any:
        """Return a record of the function's schedule; None where it schedules nothing."""
        sch = Schedule(mod)
        if not self.schedule_fn(sch):
            return None
        return TuningRecord(sch.trace, Workload(mod), None, target, None)


create = Database.create
