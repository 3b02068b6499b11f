"""Weights in files while a model is compiled, so that the process holds those that it works on and no others.

Inside :func:`weights_in_files` every large constant goes to a file without a name and is mapped from there, and model
files are mapped rather than read. Pages of such mappings are clean: :func:`release` gives them back at any time, and
a constant that is read again comes from the system's cache. Outside, nothing of this happens.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from weft.runtime.regular_file import open_regular

_LARGE = 1 << 20  # bytes of a constant that are worth a file
_PIECE = 16 << 20  # bytes that are written before their pages are given back


class _Files:
    """The mappings that there are, and where new files go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mappings: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()
        """With the address of each."""

    def add(self, mapping: mmap.mmap) -> None:
        """Watch a mapping as long as it lives."""
        self.mappings[mapping] = np.frombuffer(mapping, np.uint8).ctypes.data

    def has(self, address: int) -> bool:
        """Whether a mapping holds what is at an address."""
        return any(start <= address < start + len(mapping) for mapping, start in self.mappings.items())


_open: list[_Files] = []


@contextmanager
def weights_in_files(folder: Path) -> Generator[None]:
    """Keep large constants of this process in files of a folder; they vanish with the constants.

    It is for a process that compiles and ends: a model file that someone cuts short meanwhile may end it.
    """
    if hasattr(mmap, "MADV_DONTNEED") and hasattr(os, "pwrite"):
        _open.append(_Files(folder))
    try:
        yield
    finally:
        _open.clear()


def files_are_used() -> bool:
    """Whether this is inside :func:`weights_in_files`."""
    return bool(_open)


def map_file(path: Path) -> mmap.mmap | None:
    """Map a model file; None outside :func:`weights_in_files`, and for files that cannot be mapped.

    Raises
    ------
    OSError
        When it cannot be opened or is no regular file.
    """
    if not _open:
        return None
    with open_regular(path) as file, suppress(OSError, ValueError):  # an empty file is a ValueError
        mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        _open[0].add(mapping)
        return mapping
    return None


def stored(array: np.ndarray[Any, Any], align: int = 1) -> np.ndarray[Any, Any]:
    """Return an array's copy in a file, on a page, to be read only.

    It is the array itself where nothing is stored, it is small, the disk is full, or it lies in a file already, at a
    multiple of `align` bytes.
    """
    if not _open or array.nbytes < _LARGE:
        return array
    if array.ctypes.data % align == 0 and _open[0].has(array.ctypes.data):
        return array
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    import tempfile  # 3 ms, and a model that is in the cache needs none

    try:
        with tempfile.TemporaryFile(dir=_open[0].folder, prefix=".tmp-", buffering=0) as file:
            at = 0
            while at < len(data):
                at += os.pwrite(file.fileno(), data[at : at + _PIECE].data, at)
                release()
            mapping = mmap.mmap(file.fileno(), len(data), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    except OSError:
        return array
    _open[0].add(mapping)
    return np.frombuffer(mapping, array.dtype).reshape(array.shape)


def release() -> None:
    """Give back the pages of all that is mapped; they are read again when they are looked at."""
    for files in _open:
        for mapping in files.mappings:
            with suppress(ValueError, OSError):  # closed, or a system that does not
                mapping.madvise(mmap.MADV_DONTNEED)
