"""The StableHLO importer: programs of JAX in, Relax out.

Read in this order: ``text``, ``importer``, then ``elementwise``, ``shapes``, ``reduce``,
``linalg``, ``random``.
"""

from weft.frontend.stablehlo import elementwise, linalg, random, reduce, shapes  # registers converters
from weft.frontend.stablehlo.importer import CONVERTERS, from_stablehlo

__all__ = ["CONVERTERS", "from_stablehlo"]
