"""``T``: the language of TIR programs; see :mod:`weft.tir.script.language`."""

from typing import Any

from weft.target import Target, TargetLike
from weft.tir.script.language import named as _named
from weft.tir.script.parsing import prim_func

__all__ = ["prim_func", "target"]


def target(config: str | dict[str, Any], host: TargetLike | None = None) -> Target:
    """Make a target, for attributes of functions."""
    return Target(config, host)


__getattr__ = _named
