"""External code generators: what they take (``pattern_registry``, ``patterns``), and one that makes C (``c_source``).

``libraries`` has the patterns of NVIDIA's and AMD's; ``accelerators``, which programs import, those of TensorRT, NNAPI
and Core ML.
Operators are grouped by ``FuseOpsByPattern``, neighbouring groups joined by ``MergeCompositeFunctions``, and compiled
by ``RunCodegen``, which calls ``relax.ext.<generator>``.
"""

from weft.ir import Pass, Sequential
from weft.relax.backend import c_source, libraries, pattern_registry, patterns
from weft.relax.backend.pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns


def DispatchSampling() -> Pass:
    """Return a pass that changes nothing: ``LegalizeOps`` takes the kernels of samples that a target wants."""
    return Sequential([], name="DispatchSampling")


def DispatchSortScan() -> Pass:
    """Return a pass that changes nothing: ``LegalizeOps`` takes the kernels of sorts and scans that a target wants."""
    return Sequential([], name="DispatchSortScan")
