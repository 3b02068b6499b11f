"""Quantization of Relay programs: a float module in, one that computes with integers out.

Read in this order: ``config``, ``forward``, ``partition``, ``annotate``, ``calibrate``, ``realize``, ``conversions``,
``pipeline``.
"""

from weft.relay.quantize.annotate import annotate, register_annotate_function
from weft.relay.quantize.calibrate import calibrate
from weft.relay.quantize.config import (
    QAnnotateKind,
    QConfig,
    QuantizeContext,
    current_qconfig,
    kind2str,
    qconfig,
    quantize_context,
)
from weft.relay.quantize.partition import partition, register_partition_function
from weft.relay.quantize.pipeline import prerequisite_optimize, quantize
from weft.relay.quantize.realize import realize
