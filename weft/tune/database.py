"""What was found by measuring: one record a kernel and machine, in memory or in one file.

The file is JSON lines: a header, ``{"format": "weft-tune", "version": 1}``, then a record a line with a checksum. It is
only ever replaced whole, by a file that was written beside it; before that it is read again and joined with what is
new, under a lock, so that several tuners may work on one file. It may hold records of several machines.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import warnings
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from weft import error, ir, runtime
from weft.tune.hardware import Hardware

_FORMAT, _VERSION = "weft-tune", 1


class DatabaseError(error.WeftError):
    """A tuning database cannot be read or written."""


class Trial(NamedTuple):
    """One candidate: its decisions, how long it took as a share of the default's time, and what became of it.

    ``state`` is ``"measured"``, ``"confirmed"`` (faster in a second measurement too), ``"no gain"`` (not faster in the
    whole model), or why it was dropped: ``"refused"``, ``"wrong"``, ``"crashed"``, ``"hung"``, ``"failed"``.
    ``mark`` names the scheduled function, so that no other decisions that lead to it are measured.
    """

    decisions: dict[str, Any]
    ratio: float | None
    state: str
    mark: str = ""


@dataclass
class TuningRecord:
    """What is known of one kernel on one machine.

    Attributes
    ----------
    workload : str
        The kernel: its fingerprint.
    hardware : Hardware
    name : str
        For people.
    signature : str
        Names the choices that the decisions are for; with others the record is out of date.
    default_us : float
        The untuned kernel, in microseconds.
    trials : list of Trial
    """

    workload: str
    hardware: Hardware
    name: str = ""
    signature: str = ""
    default_us: float = 0.0
    trials: list[Trial] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """The kernel and the machine."""
        return self.workload, self.hardware.key

    @property
    def best(self) -> Trial | None:
        """The fastest candidate that was confirmed; None where the default is best."""
        found = [t for t in self.trials if t.state == "confirmed" and t.ratio is not None]
        return min(found, key=lambda t: t.ratio or 1.0, default=None)

    @property
    def gain(self) -> float:
        """How many times faster the kernel is than untuned."""
        return 1 / (self.best.ratio or 1.0) if self.best is not None else 1.0

    def trial_of(self, decisions: Mapping[str, Any]) -> Trial | None:
        """Return what is known of a candidate."""
        wanted = _text(decisions)
        return next((t for t in self.trials if _text(t.decisions) == wanted), None)

    def add(self, trial: Trial) -> None:
        """Note a candidate, in place of what was known of it."""
        wanted = _text(trial.decisions)
        self.trials = [t for t in self.trials if _text(t.decisions) != wanted] + [trial]

    def join(self, other: TuningRecord) -> None:
        """Take in the trials of another record of the same kernel; of one candidate, this one's count."""
        if other.signature == self.signature:
            self.trials = [*(t for t in other.trials if self.trial_of(t.decisions) is None), *self.trials]


class Asked(NamedTuple):
    """A choice about an operator, such as a convolution's algorithm, and how often it was met."""

    candidates: tuple[Any, ...]
    default: Any
    calls: int = 1


class Database:
    """Records by kernel and machine; this one lives in memory.

    Inside ``with database:`` compilation uses its records.

    Examples
    --------
    >>> with Database() as database:
    ...     Database.current() is database
    True
    """

    _open: ir.Ambient[Database] = ir.Ambient("Database")

    def __init__(self, records: Iterable[TuningRecord] = ()) -> None:
        self.records: dict[tuple[str, str], TuningRecord] = {r.key: r for r in records}
        self.asked: dict[str, Asked] = {}  # choices about operators that compilation with this database met
        self._reported: set[str] = set()

    def query(self, workload: str, hardware: Hardware) -> TuningRecord | None:
        """Return the record of a kernel on a machine."""
        return self.records.get((workload, hardware.key))

    def commit(self, record: TuningRecord) -> None:
        """Put a record in, in place of the one of its kernel and machine."""
        self.records[record.key] = record

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """List the records."""
        return list(self.records.values())

    def __len__(self) -> int:
        return len(self.records)

    def __enter__(self) -> Database:
        return Database._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        Database._open.leave(self)

    @staticmethod
    def current() -> Database | None:
        """Return the innermost database of a ``with`` statement."""
        return Database._open.current

    def check_hardware(self, hardware: Hardware) -> bool:
        """Whether there are records for a machine; warns, once, where there are records for others only."""
        if not self.records or any(key == hardware.key for _, key in self.records):
            return True
        if hardware.key not in self._reported:
            self._reported.add(hardware.key)
            others = {r.hardware for r in self.records.values()}
            told = "\n".join(f"  it was made with {hardware.differences(o)}" for o in sorted(others))
            warnings.warn(f"{self} has nothing for this machine and is not used\n{told}", RuntimeWarning, stacklevel=3)
        return False

    def __str__(self) -> str:
        return "the tuning database"


class JSONDatabase(Database):
    """Records in a file.

    Parameters
    ----------
    path : path
        The file; it need not exist. What of it cannot be read is left out with a warning that says why.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        self.problem: str | None = None  # why nothing can be read of a file that is there
        records, self.problem, damaged = _read(self.path)
        self.records = {r.key: r for r in records}
        if self.problem is not None:
            warnings.warn(f"{self} is not used: {self.problem}", RuntimeWarning, stacklevel=2)
        elif damaged:
            lines = ", ".join(map(str, damaged[:5])) + (" ..." if len(damaged) > 5 else "")
            warnings.warn(
                f"{self} is damaged: left out {len(damaged)} records (line {lines}) that are cut off or altered",
                RuntimeWarning,
                stacklevel=2,
            )

    def __str__(self) -> str:
        return f"the tuning database '{self.path}'"

    def save(self) -> None:
        """Write the file, joined with what others wrote meanwhile; all of it or, on an error, nothing.

        Raises
        ------
        DatabaseError
            When the file is none of this format, or cannot be written; it is left as it was.
        """
        with _locked(self.path):
            written, problem, _ = _read(self.path)
            if problem is not None:
                hint = "write to another file, or move it away"
                raise DatabaseError(f"'{self.path}' is left as it is", found=problem, help=hint)
            for record in written:
                self.records.setdefault(record.key, record).join(record)
            lines = [json.dumps({"format": _FORMAT, "version": _VERSION}), *map(_line, self.records.values())]
            _replace(self.path, "\n".join(lines) + "\n")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _line(record: TuningRecord) -> str:
    entry = {
        "workload": record.workload,
        "name": record.name,
        "hardware": record.hardware._asdict(),
        "signature": record.signature,
        "default_us": round(record.default_us, 3),
        "trials": [list(t) for t in record.trials],
    }
    return _text({**entry, "check": zlib.crc32(_text(entry).encode())})


def _record(line: str) -> TuningRecord:
    entry = _object(line)
    if entry.pop("check") != zlib.crc32(_text(entry).encode()):
        raise ValueError("altered")
    hardware = Hardware(**entry["hardware"])
    record = TuningRecord(hardware=hardware, **{k: entry[k] for k in ("workload", "name", "signature", "default_us")})
    texts = (record.workload, record.name, record.signature, hardware.target, hardware.weft)
    numbers = (record.default_us, hardware.threads)
    if not all(type(t) is str for t in texts) or not all(type(n) in (int, float) for n in numbers):
        raise ValueError("of other types")
    for decisions, ratio, state, mark in entry["trials"]:
        if ratio is not None and not 0 < float(ratio) < math.inf:
            raise ValueError("no ratio")
        record.trials.append(Trial(dict(decisions), ratio, str(state), str(mark)))
    return record


def _object(line: str) -> dict[str, Any]:
    """Parse a line that is an object."""
    try:
        found = json.loads(line)
    except RecursionError as e:
        raise ValueError("nested too deep") from e
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _read(path: Path) -> tuple[list[TuningRecord], str | None, list[int]]:
    """Read a file: its records, why it is unusable as a whole, and the numbers of lines that are damaged."""
    try:
        lines = runtime.read_regular(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return [], None, []
    except OSError as e:
        return [], f"it cannot be read, {e.strerror or e}", []
    if not lines:
        return [], None, []
    try:
        header = _object(lines[0])
        known = header.get("format") == _FORMAT
    except ValueError:
        header, known = {}, False
    if not known:
        return [], "its first line is not the header of a tuning database", []
    if header.get("version") != _VERSION:
        return [], f"its format is version {header.get('version')}, this Weft reads version {_VERSION}", []
    records, damaged = [], []
    for number, line in enumerate(lines[1:], 2):
        try:
            records.append(_record(line))
        except (ValueError, KeyError, TypeError, IndexError):
            damaged.append(number)
    return records, None, damaged


def _replace(path: Path, text: str) -> None:
    try:
        with runtime.finished_file(path) as beside, beside.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except OSError as e:
        raise _unwritable(path, e) from e


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Let one process at a time read, join and replace a file: the lock is on its folder, and leaves nothing."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as e:
        raise _unwritable(path, e) from e
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _unwritable(path: Path, e: OSError) -> DatabaseError:
    there = "; the file is as it was" if path.exists() else ""
    return DatabaseError(f"cannot write the tuning database '{path}'{there}", found=e.strerror or str(e))


def open_database(tuned: object) -> Database | None:
    """Return a database for what users give: a database, a path of a file that is there, or None.

    Raises
    ------
    InvalidArgument
        When there is no such file, or it is something else.
    """
    if tuned is None or isinstance(tuned, Database):
        return tuned
    if not isinstance(tuned, (str, os.PathLike)):
        raise error.InvalidArgument("not a tuning database", expected="a file's path or a Database", found=repr(tuned))
    try:
        runtime.open_regular(tuned).close()
    except OSError as e:
        what = "there is no such" if isinstance(e, FileNotFoundError) else f"{e.strerror or e}: this is no"
        raise error.InvalidArgument(f"{what} tuning database", found=str(tuned), help="weft tune writes one") from e
    return JSONDatabase(tuned)
