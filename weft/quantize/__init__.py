"""Quantisation of ONNX models after training: float in, standard QDQ out. Read ``ranges``, then ``model``."""

from weft.quantize.model import Layer, quantize_model
from weft.support.ranges import METHODS
