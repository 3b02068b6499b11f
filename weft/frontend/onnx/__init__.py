"""The ONNX importer: models in, Relax out.

Read in this order: ``model``, ``schema``, ``check``, ``value``, ``scalars``, ``shape_values``, ``graph``, ``node``,
``registry``, then one file per operator family, ``function_body``, ``control``, ``inputs``, ``importer``.
"""

from importlib import import_module

from weft.frontend.onnx.importer import WEIGHT_FILES, from_onnx
from weft.frontend.onnx.registry import supported_operators

__all__ = ["WEIGHT_FILES", "from_onnx", "supported_operators"]

for _family in (
    "choose compare control conv elementwise generator gradient index inlined learned loop manipulate matmul microsoft"
    " microsoft_attention microsoft_blocks microsoft_decoder microsoft_experts microsoft_nchwc norm pool quant random"
    " reduce resize rnn sample scan sequence signal sort spatial strings trees tried"
).split():
    import_module(f"weft.frontend.onnx.{_family}")  # which registers its converters
