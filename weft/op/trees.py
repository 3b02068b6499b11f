"""Decision trees."""

from typing import Any

import numpy as np

from weft.error import DTypeMismatch
from weft.ir import DataType, Expr, TensorType
from weft.op import attributes as attrs
from weft.op.infer import index_arg, tensor_arg
from weft.op.registry import declare
from weft.op.relations import demand_equal, demand_index_tuples, demand_indices
from weft.topi.trees import tree_scores

_NAME = "tree_scores"
_AGGREGATES = {"sum": (0.0, np.add), "min": (np.inf, np.minimum), "max": (-np.inf, np.maximum)}


def _infer(x: Expr, nodes: Expr, roots: Expr, weights: Expr) -> Any:
    ty, starts = tensor_arg(_NAME, "x", x, ndim=2, kind="float"), index_arg(_NAME, roots, "roots")
    forest, leaves = index_arg(_NAME, nodes, "nodes"), tensor_arg(_NAME, "weights", weights, ndim=2, kind="float")
    wide = {"float32": "int32", "float64": "int64"}.get(ty.dtype)
    if forest.dtype != wide:
        raise DTypeMismatch(
            f"{_NAME}: features of float32 or float64, and 'nodes' as wide as they are",
            expected=wide or "float32 or float64",
            found=forest.dtype if wide else ty.dtype,
        )
    if ty.shape is None or forest.shape is None or leaves.shape is None:
        return TensorType(None, DataType(leaves.dtype), 2)
    demand_equal(f"{_NAME}: columns of 'nodes'", forest.shape[1], 4, x.span)
    count, limits = forest.shape[0], np.iinfo(forest.dtype)
    ranges = ((limits.min, limits.max), (0, 2 * ty.shape[1]), (0, count - 1), (0, leaves.shape[0]))
    demand_index_tuples(f"{_NAME}: 'nodes'", nodes, ranges, x.span)
    if starts.shape is not None:
        demand_indices(f"{_NAME}: 'roots'", roots, 0, count, x.span)
    return TensorType((ty.shape[0], leaves.shape[1]), DataType(leaves.dtype), 2)


def _ref(x: Any, nodes: Any, roots: Any, weights: Any, aggregate: str) -> Any:
    least, greatest = np.iinfo(nodes.dtype).min, np.iinfo(nodes.dtype).max - 1
    bits = x.view(nodes.dtype)
    keys = np.where(np.isnan(x), greatest, np.where(bits < 0, least - bits, bits))
    keys = np.concatenate([keys, np.where(np.isnan(x), least, keys)], 1)
    start, combined = _AGGREGATES[aggregate]
    row, at = np.arange(len(x))[:, None], np.tile(roots, (len(x), 1))
    for _ in range(len(nodes)):
        limit, feature, to, _ = np.moveaxis(nodes[at], -1, 0)
        at = to + (keys[row, feature] > limit)
        if (nodes[at, 2] == at).all():
            break
    out = np.full((len(x), weights.shape[1]), start, weights.dtype)
    for leaf in nodes[at, 3].T:
        out = combined(out, weights[leaf])
    return out


declare(
    _NAME,
    "x nodes roots weights",
    {"aggregate": attrs.word("sum", *_AGGREGATES)},
    infer=_infer,
    lower=tree_scores,
    reference=_ref,
    doc="Weights of the leaves of decision trees that rows come to, together.",
)
