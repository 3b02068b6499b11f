"""``relay.qnn.op``: the constructors of quantized operators."""

from __future__ import annotations

from weft.relay.op.construct import namespace
from weft.relay.qnn import elementwise, products
from weft.relay.qnn.requantize import requantize_config

__all__ = ["elementwise", "products", "requantize_config"]

__getattr__, __dir__ = namespace("qnn.")
