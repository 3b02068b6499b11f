"""Quantized networks: tensors of integers with a scale and a zero point, ``real = scale * (q - zero_point)``.

Read in this order: ``define``, ``requantize``, ``elementwise``, ``products``, ``op``, ``transform``.
"""

from weft.relay.qnn import op, transform

__all__ = ["op", "transform"]
