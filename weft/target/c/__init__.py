"""The C target: any machine with a C compiler.

Read in this order: ``prelude``, ``expr``, ``source``, ``entry``, ``build``.
"""

from weft.target.c.build import build_c, compile_c
from weft.target.c.entry import emit_c, lower_c

__all__ = ["build_c", "compile_c", "emit_c", "lower_c"]
