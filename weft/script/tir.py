"""``T``: the language of TIR programs; see :mod:`weft.tir.script.language`."""

from __future__ import annotations

from weft.tir.script.language import named as _named
from weft.tir.script.parsing import prim_func

__all__ = ["prim_func"]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _named(name)
