"""The TFLite importer: models in, Relax out.

Read in this order: ``importer``, then ``elementwise``, ``shapes``, ``layers``.
"""

from weft.frontend.tflite import elementwise, layers, shapes  # importing a family registers its converters
from weft.frontend.tflite.importer import CONVERTERS, from_tflite

__all__ = ["CONVERTERS", "from_tflite"]
