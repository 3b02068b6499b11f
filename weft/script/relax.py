"""``R``: the language of Relax programs; see :mod:`weft.relax.script.language`."""

from weft.relax.script import annotation as entry  # noqa: F401 - R.entry
from weft.relax.script.language import named as _named
from weft.relax.script.parsing import function

__all__ = ["function"]

__getattr__ = _named
