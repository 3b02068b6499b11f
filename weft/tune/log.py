"""Logs that several processes append to, a record a line: a record is in the file whole, or not at all.

What was cut off by a power failure, or altered, is left out with a warning that names the lines.
"""

from __future__ import annotations

import fcntl
import math
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft import error, runtime
from weft.tune.database import DatabaseError


def lines_of(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a log that hold something; ``InvalidArgument`` where it cannot be read."""
    try:
        text = runtime.read_regular(path).decode(errors="replace")
    except OSError as e:
        raise error.InvalidArgument("the log cannot be read", found=f"{path}: {e.strerror or e}") from e
    return [line for line in text.split("\n") if line.strip()]


def records(lines: Iterable[str], read: Callable[[str], Any], log: object = "the log") -> Iterator[Any]:
    """Read lines; for one that is damaged comes None, and a warning after the last."""
    damaged: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            with error.reading("a line of another form"):
                record = read(line)
        except error.WeftError as e:
            damaged[number] = f"{e.what}, {e.found}" if e.found else e.what
            record = None
        yield record
    if damaged:
        shown = "".join(f"\n  line {n}: {why[:200]}" for n, why in list(damaged.items())[:5])
        warnings.warn(f"'{log}': left out {len(damaged)} records that cannot be read{shown}", RuntimeWarning, 3)


def seconds(values: Iterable[Any]) -> tuple[float, ...]:
    """Return times that a record has; none is less than nothing or no number."""
    found = tuple(float(v) for v in values)
    if not all(0 <= v < math.inf for v in found):
        raise ValueError(f"{found} are no times")
    return found


@contextmanager
def appending(path: str | os.PathLike[str]) -> Generator[Callable[[str], None]]:
    """Give what writes text behind the last line of a log, ended if it was cut off, while no other process does.

    Where it cannot be written, it is as it was, which a ``DatabaseError`` says.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)

            def write(text: str) -> None:
                data = memoryview(text.encode())
                while data:
                    data = data[file.write(data) :]

            try:
                if size and file.seek(size - 1) >= 0 and file.read(1) != b"\n":
                    write("\n")
                yield write
            except BaseException:
                file.truncate(size)
                raise
    except OSError as e:
        raise DatabaseError(f"cannot write the log '{path}'; it is as it was", found=e.strerror or str(e)) from e
