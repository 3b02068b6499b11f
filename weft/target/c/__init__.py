"""The C target: any machine with a C compiler.

Read in this order: ``expr``, ``source``, ``emitter``, ``prelude``, ``entry``, ``build``, ``kind``.
"""

from weft.target.c.build import build_c, compile_c
from weft.target.c.emitter import TYPES
from weft.target.c.entry import emit_c, lower_c
from weft.target.c.kind import C
from weft.target.c.prelude import CALLS
