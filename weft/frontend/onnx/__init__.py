"""The ONNX importer: models in, Relax out.

Read in this order: ``model``, ``schema``, ``check``, ``value``, ``scalars``, ``shape_values``, ``graph``, ``node``,
``registry``, then one file per operator family, ``function_body``, ``control``, ``inputs``, ``importer``.
"""

from weft.frontend.onnx import (  # each registers its converters
    choose,
    compare,
    control,
    conv,
    elementwise,
    generator,
    gradient,
    index,
    inlined,
    learned,
    loop,
    manipulate,
    matmul,
    microsoft,
    microsoft_attention,
    microsoft_blocks,
    microsoft_decoder,
    microsoft_experts,
    microsoft_nchwc,
    norm,
    pool,
    quant,
    random,
    reduce,
    resize,
    rnn,
    sample,
    scan,
    sequence,
    signal,
    sort,
    spatial,
    strings,
    trees,
    tried,
)
from weft.frontend.onnx.importer import WEIGHT_FILES, from_onnx
from weft.frontend.onnx.registry import supported_operators

__all__ = ["WEIGHT_FILES", "from_onnx", "supported_operators"]
