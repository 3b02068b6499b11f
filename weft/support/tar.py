"""Archives of files (``tvm.contrib.tar``)."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from weft.error import ExecutableError, InvalidArgument
from weft.support.utils import TempDirectory

__all__ = ["normalize_file_list_by_unpacking_tars", "tar", "untar"]


def tar(output: str | os.PathLike[str], files: Sequence[str]) -> None:
    """Put files into an archive, without their folders; two with one name are refused (``InvalidArgument``)."""
    names = [Path(file).name for file in files]
    if len(set(names)) < len(names):
        raise InvalidArgument("two files of an archive have one name", found=", ".join(names))
    with tarfile.open(output, "w") as out:
        for file, name in zip(files, names, strict=True):
            out.add(file, arcname=name)


tar.output_format = "tar"


def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Unpack an archive into a folder; ``ExecutableError`` where it holds what is no file or would lie outside."""
    try:
        with tarfile.open(tar_file) as archive:
            archive.extractall(directory, filter="data")
    except tarfile.TarError as e:
        raise ExecutableError("an archive does not hold files alone", where=str(tar_file), found=str(e)) from e


def normalize_file_list_by_unpacking_tars(temp: TempDirectory, file_list: Sequence[str]) -> list[str]:
    """List files, in place of each archive those that it holds, which are unpacked into `temp`."""
    files: list[str] = []
    for i, file in enumerate(file_list):
        if file.endswith(".tar"):
            folder = Path(temp.relpath(f"temp{i}"))
            folder.mkdir()
            untar(file, folder)
            files += sorted(str(p) for p in folder.rglob("*") if p.is_file())
        else:
            files.append(file)
    return files
