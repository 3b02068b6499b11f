"""Archives of files (``tvm.contrib.tar``)."""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from weft.error import ExecutableError, InvalidArgument, reading


def tar(output: str | os.PathLike[str], files: Sequence[str]) -> None:
    """Put files into an archive, without their folders; two with one name are refused (``InvalidArgument``)."""
    names = [Path(file).name for file in files]
    if len(set(names)) < len(names):
        raise InvalidArgument("two files of an archive have one name", found=", ".join(names))
    beside = Path(f"{os.fspath(output)}.{os.getpid()}.part")  # takes the archive's place when it is whole
    try:
        with tarfile.open(beside, "w") as out:
            for file, name in zip(files, names, strict=True):
                out.add(file, arcname=name)
        beside.replace(output)
    except OSError as e:
        raise OSError(e.errno, e.strerror or str(e), os.fspath(output)) from e
    finally:
        beside.unlink(missing_ok=True)


vars(tar)["output_format"] = "tar"


def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Unpack an archive into a folder; ``ExecutableError`` where it holds what is no file or would lie outside."""
    others = (tarfile.TarError, zlib.error, lzma.LZMAError)  # archives may be compressed
    with reading("an archive does not hold files alone", ExecutableError, others, where=str(tar_file)):
        with tarfile.open(tar_file) as archive:
            archive.extractall(directory, filter="data")
