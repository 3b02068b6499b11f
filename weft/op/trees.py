"""Decision trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import DataType, Expr, TensorType
from weft.op.infer import index_arg, same_dtype, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_indices, demand_same_shape
from weft.topi.trees import tree_leaves

_NAME = "tree_leaves"
_TESTS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


def _infer(x: Expr, features: Expr, splits: Expr, modes: Expr, missing: Expr, yes: Expr, no: Expr, roots: Expr) -> Any:
    ty, first = tensor_arg(_NAME, "x", x, ndim=2, kind="float"), index_arg(_NAME, features, "features")
    starts = index_arg(_NAME, roots, "roots")
    for name, e in (("splits", splits), ("modes", modes), ("missing", missing), ("yes", yes), ("no", no)):
        t = tensor_arg(_NAME, name, e, ndim=1)
        demand_same_shape(f"{_NAME}: '{name}'", t.shape, first.shape, x.span)
    if ty.shape is not None and first.shape is not None:
        demand_indices(f"{_NAME}: 'features'", features, 0, ty.shape[1], x.span)
        for name, e in (("yes", yes), ("no", no), ("roots", roots)):
            demand_indices(f"{_NAME}: '{name}'", e, 0, first.shape[0], x.span)
    same_dtype(_NAME, x, splits)
    known = ty.shape is not None and starts.shape is not None
    return TensorType((ty.shape[0], starts.shape[0]) if known else None, DataType("int32"), 2)  # type: ignore[index]


def _ref(x: Any, features: Any, splits: Any, modes: Any, missing: Any, yes: Any, no: Any, roots: Any) -> Any:
    out = np.empty((len(x), len(roots)), np.int32)
    for row, tree in np.ndindex(*out.shape):
        at, left = roots[tree], len(modes)
        while modes[at] < len(_TESTS) and left:
            left -= 1
            value = x[row, features[at]]
            holds = bool(missing[at]) if np.isnan(value) else _TESTS[modes[at]](value, splits[at])
            at = yes[at] if holds else no[at]
        out[row, tree] = at
    return out


declare(
    _NAME, "x features splits modes missing yes no roots", infer=_infer, lower=tree_leaves, reference=_ref,
    fusion=Fusion.OPAQUE, doc="The leaf of each decision tree that each row of features comes to.",
)  # fmt: skip
