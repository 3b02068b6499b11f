"""The StableHLO importer: programs of JAX in, Relax out.

Read in this order: ``text``, ``importer``, ``registry``, then ``elementwise``, ``shapes``, ``reduce``.
"""

from weft.frontend.stablehlo import (  # importing a family registers its converters
    elementwise,
    reduce,
    shapes,
)
from weft.frontend.stablehlo.importer import from_stablehlo
from weft.frontend.stablehlo.registry import supported_operators

__all__ = ["from_stablehlo", "supported_operators"]
