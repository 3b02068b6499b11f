"""``T`` for building: its names are those of ``weft.script.tir``, but what they say is done by the call."""

import sys

from weft.tir.script.building import WORDS as _WORDS
from weft.tir.script.building import acting as _acting
from weft.tir.script.language import named as _named

ir = sys.modules[__name__]


def __getattr__(name: str) -> object:
    return _WORDS[name] if name in _WORDS else _acting(name, _named(name))
