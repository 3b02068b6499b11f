"""Quantized networks: tensors of integers with a scale and a zero point, ``real = scale * (q - zero_point)``.

Read in this order: ``define``, ``requantization``, ``elementwise``, ``products``, ``op``, ``transform``.
"""

from weft.relay.qnn import op, transform
from weft.relay.qnn.requantization import requantize_config

__all__ = ["op", "requantize_config", "transform"]

__getattr__, __dir__ = op.__getattr__, op.__dir__  # TVM has the operators under both names
