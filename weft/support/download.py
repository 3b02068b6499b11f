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


def download(
    url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False, retries: int = 3
) -> None:
    """Fetch a file, unless it is there, into a folder that is made; one that did not come whole never stands there.

    Parameters
    ----------
    url, path : str
        An address, or the path of a file of this machine; and where it goes.
    overwrite, size_compare : bool
        Whether to fetch again what is there, or what is there and has another size.

    Raises
    ------
    EvaluationError
        When the file cannot be fetched, as on a machine without a network.
    """
    target, source = Path(path), Path(url)
    if target.is_file() and not overwrite and not size_compare:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(max(retries, 1))):
        try:
            address = source.absolute().as_uri() if source.exists() else url
            with urllib.request.urlopen(address, timeout=30) as answer, TemporaryDirectory(dir=target.parent) as folder:
                size, part = answer.headers.get("Content-Length"), Path(folder, "part")
                if target.is_file() and not overwrite and size == str(target.stat().st_size):
                    return
                with part.open("wb") as file:
                    shutil.copyfileobj(answer, file)
                if size is not None and size != str(part.stat().st_size):
                    raise OSError(f"{part.stat().st_size} of {size} bytes came")
                part.replace(target)
            return
        except (OSError, ValueError, HTTPException) as reason:
            if not left:
                help = f"without a network, put the file at '{target}'"
                raise error.EvaluationError(f"cannot fetch '{url}'", found=str(reason), help=help) from reason


def download_testdata(
    url: str, relpath: str, module: str | Sequence[str] | None = None, overwrite: bool = False
) -> str:
    """Fetch a file into folders `module` of ``$TEST_DATA_ROOT_PATH`` or ``~/.tvm_test_data``, and return its path."""
    root = Path(os.environ.get("TEST_DATA_ROOT_PATH") or Path.home() / ".tvm_test_data")
    path = root.joinpath(*([module] if isinstance(module, str) else module or ()), relpath)
    download(url, path, overwrite=overwrite)
    return str(path)
