"""Activation functions."""

from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import vectors

declare("nn.relu", "data", expand="nn.relu", doc="``max(data, 0)``.")
declare(
    "nn.leaky_relu",
    "data",
    {"alpha": 0.01},
    expand=lambda data, alpha: shared("nn.leakyrelu", data, alpha=float(alpha)),
    doc="``data`` where it is positive, else ``alpha * data``.",
)
declare(
    "nn.prelu",
    "data alpha",
    expand="nn.prelu",
    completes=vectors(1),
    doc="``data`` where it is positive, else ``alpha * data``, with an alpha for each channel.",
)
