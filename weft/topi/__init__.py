"""Computations as tensor expressions, under the names of ``tvm.topi``; operators (``weft.op``) are lowered to them.

Read in this order: ``shape``, ``broadcast``, ``elementwise``, ``reduce``, ``matmul``, ``conv``, then any family;
``math``, ``reductions``, ``nn`` and ``image`` give the public names.
"""

from weft._aliases import names_of
from weft.error import ShapeMismatch as InvalidShapeError
from weft.topi import image, linalg, nn, random, sparse, tag, vision
from weft.topi.api import (
    arange,
    argsort,
    clip,
    einsum,
    eye,
    full,
    gather,
    gather_nd,
    matmul,
    scatter_nd,
    shape,
    strided_slice,
    take,
    tile,
    topk,
    trilu,
)
from weft.topi.attention import attention
from weft.topi.broadcast import broadcast_to, elementwise
from weft.topi.coordinates import sparse_fill_empty_rows, sparse_reshape, sparse_to_dense
from weft.topi.create import full_like
from weft.topi.elementwise import where
from weft.topi.fixed_point import ceil_log2, fixed_point_multiply, fixed_point_multiply_per_axis
from weft.topi.index import gather_elements, index_tensor, one_hot, reverse_sequence
from weft.topi.known_values import get_const_int, get_const_tuple
from weft.topi.loss import collapse_sum
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
    transpose,
)
from weft.topi.math import *  # noqa: F403 - one function an operator
from weft.topi.math import __all__ as _math_names
from weft.topi.quant import dequantize, quantize
from weft.topi.reduce import mean, std, variance
from weft.topi.reductions import all, any, argmax, argmin, max, min, prod, sum
from weft.topi.reorder import (
    dyn_tile,
    dynamic_strided_slice,
    expand_like,
    invert_permutation,
    matrix_set_diag,
    ndarray_size,
    sequence_mask,
    slice_scatter,
    sliding_window,
    strided_set,
    tensor_size,
    tensordot,
    unravel_index,
)
from weft.topi.rnn import gru_recurrence, lstm_recurrence, rnn_recurrence
from weft.topi.scan import cumprod, cumsum, scanop
from weft.topi.scatter import index_put, scatter, scatter_add, scatter_elements
from weft.topi.search import argwhere, binary_search, searchsorted, unique
from weft.topi.signal import dft, hamming_window, stft
from weft.topi.sort import sort
from weft.topi.winograd import conv2d_winograd, winograd_matrices, winograd_tile, winograd_weight

adv_index = index_tensor
__getattr__ = names_of("weft.topi", {"cuda": ""})

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - one name an operator
    "InvalidShapeError",
    "adv_index",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "attention",
    "binary_search",
    "broadcast_to",
    "ceil_log2",
    "clip",
    "collapse_sum",
    "concatenate",
    "cumprod",
    "cumsum",
    "dequantize",
    "dft",
    "dyn_tile",
    "dynamic_strided_slice",
    "einsum",
    "elementwise",
    "expand_dims",
    "expand_like",
    "eye",
    "fixed_point_multiply",
    "fixed_point_multiply_per_axis",
    "flip",
    "full",
    "full_like",
    "gather",
    "gather_elements",
    "gather_nd",
    "gru_recurrence",
    "hamming_window",
    "image",
    "index_put",
    "index_tensor",
    "invert_permutation",
    "layout_transform",
    "lstm_recurrence",
    "matmul",
    "matrix_set_diag",
    "max",
    "mean",
    "meshgrid",
    "min",
    "ndarray_size",
    "nn",
    "one_hot",
    "prod",
    "quantize",
    "random",
    "repeat",
    "reshape",
    "reverse_sequence",
    "rnn_recurrence",
    "scanop",
    "scatter",
    "scatter_add",
    "scatter_elements",
    "scatter_nd",
    "searchsorted",
    "sequence_mask",
    "shape",
    "slice_scatter",
    "sliding_window",
    "sort",
    "sparse",
    "sparse_fill_empty_rows",
    "sparse_reshape",
    "sparse_to_dense",
    "split",
    "squeeze",
    "stack",
    "std",
    "stft",
    "strided_set",
    "strided_slice",
    "sum",
    "tag",
    "take",
    "tensor_size",
    "tensordot",
    "tile",
    "topk",
    "transpose",
    "trilu",
    "unique",
    "unravel_index",
    "variance",
    "vision",
    "where",
    *_math_names,
]
