"""The StableHLO importer: programs of JAX in, Relax out.

Read in this order: ``text``, ``importer``, then ``elementwise``, ``shapes``, ``reduce``, ``linalg``.
"""

from weft.frontend.stablehlo import elementwise, linalg, reduce, shapes  # importing a family registers its converters
from weft.frontend.stablehlo.importer import CONVERTERS, from_stablehlo

__all__ = ["CONVERTERS", "from_stablehlo"]
