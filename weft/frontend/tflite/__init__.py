"""The TFLite importer: models in, Relax out.

Read in this order: ``importer``, ``registry``, then ``elementwise``, ``shapes``, ``layers``.
"""

from weft.frontend.tflite import (  # importing a family registers its converters
    elementwise,
    layers,
    shapes,
)
from weft.frontend.tflite.importer import from_tflite
from weft.frontend.tflite.registry import supported_operators

__all__ = ["from_tflite", "supported_operators"]
