"""Passes over quantized operators."""

from weft.ir import Pass
from weft.relay.transform import Legalize as legalize_by


def CanonicalizeOps() -> Pass:
    """Make the pass that writes quantized operators as operators on integers (``FTVMQnnCanonicalize``)."""
    return legalize_by("FTVMQnnCanonicalize")


def Legalize() -> Pass:
    """Make the pass that asks functions registered as ``FTVMQnnLegalize`` what stands for quantized operators."""
    return legalize_by("FTVMQnnLegalize")
