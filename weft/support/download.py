"""Files from elsewhere (``tvm.contrib.download``): from a path, a ``file:`` address or what else urllib reads."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from weft import error

__all__ = ["download", "download_testdata"]


def download(
    url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False, retries: int = 3
) -> None:
    """Fetch a file, unless it is there.

    Parameters
    ----------
    url : str
        An address, or the path of a file of this machine.
    path : path
        Where it goes; the folder is made. A file that could not be fetched whole never stands there.
    overwrite : bool
        Whether to fetch what is there already.
    size_compare : bool
        Whether to fetch again what has not the size that the server names.
    retries : int
        How often to try.

    Raises
    ------
    EvaluationError
        When the file cannot be fetched, as on a machine without a network.
    """
    target, source = Path(path), Path(url)
    address = source.absolute().as_uri() if source.exists() else url
    if target.is_file() and not overwrite and not size_compare:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(max(retries, 1)):
        try:
            with urllib.request.urlopen(address, timeout=30) as answer, TemporaryDirectory(dir=target.parent) as folder:
                size = answer.headers.get("Content-Length")
                if target.is_file() and not overwrite and size == str(target.stat().st_size):
                    return
                part = Path(folder, "part")
                with part.open("wb") as file:
                    shutil.copyfileobj(answer, file)
                if size is not None and size != str(part.stat().st_size):
                    raise OSError(f"{part.stat().st_size} of {size} bytes came")
                part.replace(target)
            return
        except (OSError, ValueError, HTTPException) as reason:
            if attempt + 1 >= retries:
                raise error.EvaluationError(
                    f"cannot fetch '{url}'", found=str(reason), help=f"without a network, put the file at '{target}'"
                ) from reason


def download_testdata(
    url: str, relpath: str, module: str | Sequence[str] | None = None, overwrite: bool = False
) -> str:
    """Fetch a file into the folder of test data, ``$TEST_DATA_ROOT_PATH`` or ``~/.tvm_test_data``, and return its path.

    Parameters
    ----------
    relpath : str
        Its name there.
    module : str or sequence of str, optional
        Folders inside that folder.
    """
    root = Path(os.environ.get("TEST_DATA_ROOT_PATH") or Path.home() / ".tvm_test_data")
    path = root.joinpath(*([module] if isinstance(module, str) else module or ()), relpath)
    download(url, path, overwrite=overwrite)
    return str(path)
