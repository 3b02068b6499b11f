"""Scratch folders, locks, paths."""

from __future__ import annotations

import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from shutil import which

__all__ = ["FileLock", "TempDirectory", "filelock", "is_source_path", "tempdir", "which"]


class TempDirectory:
    """A folder that goes away with this object, at the end of its ``with`` block, or by :meth:`remove`.

    Parameters
    ----------
    custom_path : str, optional
        A folder to use instead; it is made if needed and never removed.
    """

    def __init__(self, custom_path: str | None = None) -> None:
        self._own = custom_path is None
        self.path = tempfile.mkdtemp(prefix="weft-") if custom_path is None else str(Path(custom_path).absolute())
        self.temp_dir = self.path
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder now."""
        if self._own:
            self._own = False
            shutil.rmtree(self.path, ignore_errors=True)

    def relpath(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return str(Path(self.path) / name)

    def listdir(self) -> list[str]:
        """Names of what is in the folder."""
        return [p.name for p in Path(self.path).iterdir()]

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __del__(self) -> None:
        self.remove()

    def __truediv__(self, name: str) -> str:
        return self.relpath(name)


def tempdir(custom_path: str | None = None) -> TempDirectory:
    """Make a scratch folder."""
    return TempDirectory(custom_path)


class FileLock:
    """Keeps a file locked, against other processes, until :meth:`release`."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w")
        self._lock = import_module("fcntl")  # there is none where there is no POSIX
        self._lock.lockf(self._file, self._lock.LOCK_EX)

    def release(self) -> None:
        """Let others have it."""
        if not self._file.closed:
            self._lock.lockf(self._file, self._lock.LOCK_UN)
            self._file.close()


filelock = FileLock


def is_source_path(path: str) -> bool:
    """Whether a text is rather the path of a source than a source: a file that there is, or one line with an ending."""
    return "\n" not in path and (Path(path).exists() or not (Path(path).suffix or " ").count(" "))
