"""The options of a text as one object (``tvm.runtime.script_printer``)."""

from types import SimpleNamespace
from typing import Protocol

__all__ = ["PrinterConfig", "Scriptable"]


class Scriptable(Protocol):
    """What has a text."""

    def script(self, **options: object) -> str:
        """Return the text."""


class PrinterConfig(SimpleNamespace):
    """What ``script`` takes by name."""


def _script(obj: Scriptable, config: PrinterConfig) -> str:
    return obj.script(**vars(config))
