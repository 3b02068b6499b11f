"""Scratch folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from weft.spelling import also_called

which = also_called(exec_name="cmd")(shutil.which)

__all__ = ["TempDirectory", "tempdir", "which"]


class TempDirectory:
    """A folder that goes away with this object, at the end of its ``with`` block, or by :meth:`remove`.

    Parameters
    ----------
    custom_path : str, optional
        A folder to use instead; it is made if needed and never removed.
    keep_for_debug : bool
        Whether the folder stays.
    """

    _keep_all = False

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool = False) -> None:
        self._own = custom_path is None and not keep_for_debug and not self._keep_all
        self.path = tempfile.mkdtemp(prefix="weft-") if custom_path is None else str(Path(custom_path).absolute())
        self.temp_dir = self.path
        Path(self.path).mkdir(parents=True, exist_ok=True)

    @classmethod
    @contextmanager
    def set_keep_for_debug(cls, set_to: bool = True) -> Generator[None]:
        """Let the folders that are made inside a ``with`` block stay."""
        before, cls._keep_all = cls._keep_all, set_to
        try:
            yield
        finally:
            cls._keep_all = before

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


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """Make a scratch folder; see :class:`TempDirectory`."""
    return TempDirectory(custom_path, keep_for_debug)
