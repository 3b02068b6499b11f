"""Relay's operators, in the order of reading: ``registry``, ``construct``, ``shapes``, then a family a file.

Constructors are attributes: ``relay.op.add``, ``relay.op.nn.dense``; ``relay.op.get`` gives the node of an operator.
"""

import sys

from weft.relay.op import activation as _activation
from weft.relay.op import annotation, dyn, image, nn, op, random, vision
from weft.relay.op import conv as _conv
from weft.relay.op import create as _create
from weft.relay.op import crop as _crop
from weft.relay.op import elementwise as _elementwise
from weft.relay.op import index as _index
from weft.relay.op import layout as _layout
from weft.relay.op import loss as _loss
from weft.relay.op import manipulate as _manipulate
from weft.relay.op import matmul as _matmul
from weft.relay.op import memory as _memory
from weft.relay.op import norm as _norm
from weft.relay.op import pool as _pool
from weft.relay.op import reduce as _reduce
from weft.relay.op import resize as _resize
from weft.relay.op import scatter as _scatter
from weft.relay.op import slice as _slice
from weft.relay.op import sort as _sort
from weft.relay.op import unique as _unique
from weft.relay.op import vm as _vm
from weft.relay.op import window as _window
from weft.relay.op.construct import call, constructor, constructs, namespace
from weft.relay.op.evaluate import evaluate
from weft.relay.op.op import (
    get,
    register_alter_op_layout,
    register_convert_op_layout,
    register_fake_quantization_to_integer,
    register_gradient,
    register_legalize,
)
from weft.relay.op.pattern import OpPattern, pattern_of, register_pattern, renames_dimensions
from weft.relay.op.registry import (
    REQUIRED,
    RelayOp,
    declare,
    expand,
    has,
    infer_call,
    list_ops,
    op_call,
    relay_type,
    shared,
)
from weft.relay.op.registry import get as declaration

__all__ = [
    "REQUIRED",
    "OpPattern",
    "RelayOp",
    "annotation",
    "call",
    "constructor",
    "constructs",
    "declaration",
    "declare",
    "dyn",
    "evaluate",
    "expand",
    "get",
    "has",
    "image",
    "infer_call",
    "list_ops",
    "namespace",
    "nn",
    "op",
    "op_call",
    "pattern_of",
    "register_alter_op_layout",
    "register_convert_op_layout",
    "register_fake_quantization_to_integer",
    "register_gradient",
    "register_legalize",
    "random",
    "register_pattern",
    "relay_type",
    "renames_dimensions",
    "shared",
    "vision",
]

# The operators, not the modules of these names.
scatter, sort, unique = constructor("scatter"), constructor("sort"), constructor("unique")

algorithm = tensor = transform = sys.modules[__name__]  # TVM's modules that constructors are divided over

__getattr__, __dir__ = namespace("")
