"""NumPy's files that somebody named, of arrays alone: objects inside of them would run code."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from weft.error import InvalidArgument, reading
from weft.runtime.regular_file import open_regular


def read_arrays(path: str | os.PathLike[str]) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Read a ``.npy`` file, an array, or all arrays of an ``.npz`` file by name.

    Raises
    ------
    InvalidArgument
        When the file cannot be opened, or is damaged.
    """
    try:
        file = open_regular(path)
    except OSError as e:
        raise InvalidArgument(f"cannot read '{path}'", found=e.strerror or str(e)) from e
    # NumPy, zipfile and zlib raise what they like, memory for arrays without an end among it
    with file, reading(f"'{path}' is no NumPy file", also=(Exception,), expected=".npy or .npz"):
        found = np.load(file, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
