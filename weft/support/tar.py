"""Archives of files (``tvm.contrib.tar``)."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from weft.error import ExecutableError, InvalidArgument


def tar(output: str | os.PathLike[str], files: Sequence[str]) -> None:
    """Put files into an archive, without their folders; two with one name are refused (``InvalidArgument``)."""
    names = [Path(file).name for file in files]
    if len(set(names)) < len(names):
        raise InvalidArgument("two files of an archive have one name", found=", ".join(names))
    with tarfile.open(output, "w") as out:
        for file, name in zip(files, names, strict=True):
            out.add(file, arcname=name)


vars(tar)["output_format"] = "tar"


def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Unpack an archive into a folder; ``ExecutableError`` where it holds what is no file or would lie outside."""
    try:
        with tarfile.open(tar_file) as archive:
            archive.extractall(directory, filter="data")
    except tarfile.TarError as e:
        raise ExecutableError("an archive does not hold files alone", where=str(tar_file), found=str(e)) from e
