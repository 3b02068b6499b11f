"""Opening a file that somebody named: a regular file or an error, and never a wait for a pipe, device or socket.

And telling whether it has changed since.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from weft.later import side_by_side

CHUNK = 1 << 20
"""Bytes that are read at once, which stay in the core's cache while they are looked at."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading.

    Raises
    ------
    OSError
        When it cannot be opened or is no regular file; ``strerror`` says what it is instead.
    """
    if b"\0" in os.fsencode(path):
        raise OSError(errno.EINVAL, "no file's name has a zero byte in it", str(path))
    _check(Path(path).stat(), path)  # before it is opened: to open some devices is to use them
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(file), path)  # again: another may have taken its place
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read all of a file; errors as of :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def finished_file(path: str | os.PathLike[str], mode: int = 0o666) -> Generator[Path]:
    """Give a file beside `path` to write, which takes its place in one step: a reader never sees half of it.

    It goes away where nothing is written, or an OSError, which then has the file's name; what was there stays. Links
    are followed; a device is written itself.
    """
    place = Path(path).resolve()
    unfinished = place.with_name(f".weft-{os.getpid()}-{time.time_ns()}")
    try:
        if place.exists() and not place.is_file():
            yield place
            return
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode))
        yield unfinished
        if unfinished.exists() and unfinished.stat().st_size:  # linkers delete what they could not finish
            unfinished.replace(place)
    except OSError as e:
        raise OSError(e.errno or errno.EIO, e.strerror or str(e), str(path)) from e
    finally:
        with suppress(OSError):
            unfinished.unlink()


def write_file(path: str | os.PathLike[str], data: str | bytes | bytearray) -> None:
    """Write a whole file, as :func:`finished_file` does; text as UTF-8."""
    with finished_file(path) as out:
        out.write_bytes(data.encode() if isinstance(data, str) else data)


def in_shares(size: int, work: Callable[[range], bytes]) -> bytes:
    """Join what a function returns for ranges of the places where chunks begin, which cores of the machine share."""
    starts = range(0, size, CHUNK)
    n = min(len(os.sched_getaffinity(0)), 8, max(1, len(starts) // 8))
    shares = [starts[len(starts) * i // n : len(starts) * (i + 1) // n] for i in range(n)]
    return b"".join(side_by_side([partial(work, share) for share in shares]))


def read_parts(file: int, memory: memoryview, offset: int, look: Callable[[memoryview], bytes] | None = None) -> bytes:
    """Fill memory from an open file, on all cores; join what `look` returns for each chunk. A ValueError at its end."""

    def read(part: range) -> bytes:
        found = b""
        for at in part:
            chunk, got = memory[at : at + CHUNK], 0
            while got < len(chunk):
                more = os.preadv(file, [chunk[got:]], offset + at + got)
                if more == 0:
                    raise ValueError("the file ends before its weights do")
                got += more
            found += look(chunk) if look is not None else b""
        return found

    return in_shares(len(memory), read)


def file_identity(path: int | str | os.PathLike[str]) -> str:
    """Return what changes when a file, or one that is open, does: nobody can set when its inode changed last."""
    status = os.stat(path)  # noqa: PTH116 - which takes descriptors
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _check(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
        raise OSError(errno.EINVAL, f"it is {kind}, and not a regular file", str(path))
