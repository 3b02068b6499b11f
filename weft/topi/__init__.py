"""Computations as tensor expressions, under the names of ``tvm.topi``; operators (``weft.op``) are lowered to them.

Read in this order: ``shape``, ``broadcast``, ``elementwise``, ``reduce``, ``matmul``, ``conv``, then any family;
``math``, ``reductions``, ``nn`` and ``image`` give the public names.
"""

from weft.topi import image, nn
from weft.topi.api import arange, argsort, einsum, full, gather, matmul, strided_slice, take, trilu
from weft.topi.attention import attention
from weft.topi.broadcast import broadcast_to, elementwise
from weft.topi.create import eye, full_like
from weft.topi.elementwise import clip, where
from weft.topi.index import gather_elements, gather_nd, index_tensor, one_hot, reverse_sequence
from weft.topi.manipulate import (
    concatenate,
    expand_dims,
    flip,
    layout_transform,
    meshgrid,
    repeat,
    reshape,
    split,
    squeeze,
    stack,
    tile,
    transpose,
)
from weft.topi.math import *  # noqa: F403 - one function an operator
from weft.topi.math import __all__ as _math_names
from weft.topi.quant import dequantize, quantize
from weft.topi.reduce import mean, std, variance
from weft.topi.reductions import all, any, argmax, argmin, max, min, prod, sum
from weft.topi.rnn import gru_recurrence, lstm_recurrence, rnn_recurrence
from weft.topi.scan import cumprod, cumsum
from weft.topi.scatter import index_put, scatter_elements, scatter_nd
from weft.topi.sort import sort, topk
from weft.topi.winograd import conv2d_winograd, winograd_matrices, winograd_tile, winograd_weight

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - one name an operator
    "all", "any", "arange", "argmax", "argmin", "argsort", "attention", "broadcast_to", "clip", "concatenate",
    "cumprod", "cumsum", "dequantize", "einsum", "elementwise", "expand_dims", "eye", "flip", "full", "full_like",
    "gather", "gather_elements", "gather_nd", "gru_recurrence", "image", "index_put", "index_tensor",
    "layout_transform", "lstm_recurrence", "matmul", "max", "mean", "meshgrid", "min", "nn", "one_hot", "prod",
    "quantize", "repeat", "reshape", "reverse_sequence", "rnn_recurrence", "scatter_elements", "scatter_nd", "sort",
    "split", "squeeze", "stack", "std", "strided_slice", "sum", "take", "tile", "topk", "transpose", "trilu",
    "variance", "where", *_math_names,
]  # fmt: skip
