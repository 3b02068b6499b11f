"""``R`` for building: its names are those of ``weft.script.relax``, but ``function()`` opens a function."""

import sys

from weft.relax.script.building import FunctionFrame as function
from weft.relax.script.language import named as _named

__all__ = ["function", "py_print"]

py_print = print
ir = sys.modules[__name__]

__getattr__ = _named
