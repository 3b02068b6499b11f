"""The folder of a session: the only place where its client reads and writes files."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from weft.error import InvalidArgument, RPCError
from weft.support.utils import TempDirectory


class Folder(TempDirectory):
    """A folder whose files have names inside it; it goes away as scratch folders do."""

    libs: list[ctypes.CDLL]

    def __init__(self, custom_path: str | None = None) -> None:
        super().__init__(custom_path)
        self.libs = []

    def relpath(self, name: str) -> str:
        """Return the path of a file in the folder.

        Raises
        ------
        InvalidArgument
            When it would lie outside.
        """
        root = Path(self.path).resolve()
        path = (root / str(name)).resolve()
        if path != root and not path.is_relative_to(root):
            raise InvalidArgument("a session's files lie in its folder", found=repr(str(name)))
        return str(path)

    def load(self, libraries: str | None) -> None:
        """Load libraries, separated by colons, whose functions the session may need.

        Raises
        ------
        RPCError
            When one is missing.
        """
        for name in filter(None, (libraries or "").split(":")):
            path = Path(name).resolve()
            if not path.is_file():
                raise RPCError(f"there is no library '{name}'")
            self.libs.append(ctypes.CDLL(str(path), os.RTLD_GLOBAL))
