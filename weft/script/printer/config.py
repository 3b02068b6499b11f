"""The options of a text as one object (``tvm.runtime.script_printer``)."""

from types import SimpleNamespace

from weft.ir import Node

__all__ = ["PrinterConfig", "_script"]


class PrinterConfig(SimpleNamespace):
    """What ``script`` takes by name."""


def _script(obj: Node, config: PrinterConfig) -> str:
    return obj.script(**vars(config))
