"""Operators, declared once for every dialect.

Read in this order: ``registry``, ``infer``, then any family.
"""

from weft.op import (
    activation,
    attention,
    conv,
    coupling,
    create,
    elementwise,
    index,
    layout,
    linalg,
    manipulate,
    matmul,
    multinomial,
    nbits,
    nms,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    sample,
    sampling,
    scatter,
    slice,
    sort,
    threefry,
    training,
    trees,
    vision,
)
from weft.op.attributes import in_places
from weft.op.infer import (
    broadcast_dims,
    dims_of,
    equal_dims,
    fields_of,
    normalize_axes,
    normalize_axis,
    product,
    simplify,
    tensor_arg,
)
from weft.op.registry import Fusion, Input, Layout, OpDef, declare, get_op_def, list_ops, make_call

__all__ = [
    "Fusion",
    "Input",
    "Layout",
    "OpDef",
    "broadcast_dims",
    "declare",
    "dims_of",
    "equal_dims",
    "fields_of",
    "get_op_def",
    "in_places",
    "list_ops",
    "make_call",
    "normalize_axes",
    "normalize_axis",
    "product",
    "simplify",
    "tensor_arg",
]
