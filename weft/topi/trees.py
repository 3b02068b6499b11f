"""Decision trees: which leaf each row of features comes to."""

from __future__ import annotations

from typing import Any

from weft import te
from weft.ir import cast, const, logical_and, select
from weft.te import Tensor
from weft.tir import ir_builder


def tree_leaves(x: Tensor, features: Any, splits: Any, modes: Any, missing: Any, yes: Any, no: Any, roots: Any) -> Any:
    """Walk down trees from their roots, rows of features in parallel.

    Parameters
    ----------
    x : Tensor
        (rows, features).
    features, splits, modes, missing, yes, no : Tensor
        (nodes,) what a node compares with what and how: 0 to 5 are <=, <, >=, >, ==, !=; more are leaves. Where to go
        on when it holds and when not; `missing` is whether it holds for what is not a number.
    roots : Tensor
        (trees,) int32.

    A way that has seen as many nodes as there are goes round in a circle, and ends there.

    Returns
    -------
    Tensor
        (rows, trees) int32: the numbers of the leaves.
    """
    rows, trees = x.shape[0], roots.shape[0]

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        data, feature, split, mode, absent, then, other, root = (ib.buffer_ptr(b) for b in ins)
        leaf = ib.buffer_ptr(outs[0])
        with ib.for_range(0, rows, kind="parallel") as row, ib.for_range(0, trees) as tree:
            node = ib.allocate("int32", (1,), name="node", scope="local")  # inside: each thread has its own
            left = ib.allocate("int32", (1,), name="left", scope="local")
            node[0] = cast("int32", root[tree])
            left[0] = cast("int32", features.shape[0])
            split_ahead = cast("int32", mode[node[0]]) < const(6, "int32")
            with ib.while_loop(logical_and(split_ahead, left[0] > const(0, "int32"))):
                left[0] = left[0] - const(1, "int32")
                at = node[0]
                value, limit = data[row * x.shape[1] + cast("int64", feature[at])], split[at]
                kind = cast("int32", mode[at])
                holds = value <= limit
                for number, test in enumerate(
                    (value < limit, value >= limit, value > limit, value.equal(limit), value != limit), 1
                ):
                    holds = select(kind.equal(const(number, "int32")), test, holds)
                holds = select(value != value, cast("int32", absent[at]) != const(0, "int32"), holds)
                node[0] = cast("int32", select(holds, then[at], other[at]))
            leaf[row * cast("int64", trees) + tree] = node[0]
        return ib.get()

    given = [x, features, splits, modes, missing, yes, no, roots]
    return te.extern((rows, trees), given, body, name="tree_leaves", dtype="int32")
