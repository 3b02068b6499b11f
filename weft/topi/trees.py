"""Decision trees: the weights of the leaves that each row of features comes to, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft import te, tir
from weft.ir import cast, const, floordiv, int64, logical_and, max_, min_, select
from weft.topi.typing import Buffers, IRBuilder
from weft.topi.written import written

_WALKS = 8
"""Ways that are walked together: one waits for its next node while the others go on."""

_TILE = 128
"""Rows that one tree, whose nodes stay in the cache, sees after each other, at most."""

_LEAST_TILE, _PARTS = 48, 8
"""Fewer rows than eight such tiles are as many even parts as there may be, so that threads have something to share."""


def tree_scores(x: te.Tensor, nodes: te.Tensor, roots: te.Tensor, weights: te.Tensor, aggregate: str) -> Any:
    """Walk down trees from their roots and put their leaves' weights together.

    Parameters
    ----------
    x : Tensor
        (rows, features) float32 or float64.
    nodes : Tensor
        (nodes, 4) integers as wide as `x`: a limit, a feature, a node and a row of `weights`. The way goes on to that
        node where the feature's key is at most the limit, else to the one behind it. A feature's key orders as the
        feature does; not-a-number's is the greatest integer but one, or, as a feature beyond the last, the least. A
        leaf is a node that leads to itself with a limit of the former.
    roots : Tensor
        (trees,) int32.
    weights : Tensor
        (leaves, targets).
    aggregate : str
        ``sum``, ``min`` or ``max``.

    A way that has seen as many nodes as there are goes round in a circle, and ends there.

    Returns
    -------
    Tensor
        (rows, targets) of `weights`' type.
    """
    rows, dtype, shape = x.shape[0], nodes.dtype, (x.shape[0], weights.shape[1])
    keys = te.compute((rows, int64(2), x.shape[1]), lambda r, side, f: _key(x[r, f], dtype, side), name="keys")

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        key, node, root, weight = (ib.buffer_ptr(b) for b in ins)
        out, width = ib.buffer_ptr(outs[0]), 2 * x.shape[1]
        forest = _Forest(ib, key, node, weight, out, width, nodes.shape[0], shape[1], aggregate)
        trees, side = cast("int64", roots.shape[0]), int64(_WALKS)
        parts = max_(int64(1), min_(int64(_PARTS), floordiv(cast("int64", rows), int64(_LEAST_TILE))))
        even = floordiv(rows + parts * side - 1, parts * side) * side
        tile = max_(side, min_(int64(_TILE), even))
        with ib.for_range(0, floordiv(rows + tile - 1, tile), name="part", kind="parallel") as part:
            first = part * tile
            count = min_(tile, cast("int64", rows) - first)
            with ib.for_range(0, count * shape[1]) as i:
                forest.out[first * shape[1] + i] = forest.nothing()
            groups = floordiv(count, side)
            with ib.for_range(0, trees, name="tree") as tree, ib.for_range(0, groups, name="group") as group:
                forest.walk(lambda w: (first + group * side + w, root[tree]))
            with ib.for_range(0, floordiv(trees + side - 1, side)) as some, ib.for_range(groups * side, count) as rest:
                at = some * side
                forest.walk(lambda w: (first + rest, root[min_(at + w, trees - 1)]), lambda w: at + w < trees)

    return written(shape, [keys, nodes, roots, weights], body, name="tree_scores", dtype=weights.dtype)


def _key(x: Any, dtype: str, side: Any) -> Any:
    """Return the integer that orders as a float does; both zeros are 0."""
    least, greatest = tir.min_value(dtype), tir.max_value(dtype) - 1
    bits = tir.reinterpret(dtype, x)
    ordered = select(bits < const(0, dtype), least - bits, bits)
    return select(x.equal(x), ordered, select(side.equal(int64(0)), greatest, least))


@dataclass
class _Forest:
    """Writes walks down the trees of given buffers."""

    ib: IRBuilder
    keys: Any
    nodes: Any
    weights: Any
    out: Any
    width: Any
    count: Any
    targets: Any
    aggregate: str

    def nothing(self) -> Any:
        """Return what an aggregate begins with."""
        start = {"sum": 0.0, "min": float("inf"), "max": float("-inf")}[self.aggregate]
        return const(start, self.weights.dtype)

    def walk(self, way: Callable[[Any], tuple[Any, Any]], counts: Callable[[Any], Any] | None = None) -> None:
        """Walk ways together, of a row and from a root each, and add the weights of leaves that count."""
        ib, nodes, ways = self.ib, self.nodes, [way(int64(w)) for w in range(_WALKS)]
        place = ib.allocate("int64", (_WALKS,), name="place", scope="local")
        left = ib.allocate("int64", (2,), name="left", scope="local")
        for w, (_, root) in enumerate(ways):
            place[w] = cast("int64", root)
        left[0], left[1] = cast("int64", self.count), int64(1)
        with ib.while_loop(logical_and(left[1] != int64(0), left[0] > int64(0))):
            left[0], left[1] = left[0] - int64(1), int64(0)
            for w, (row, _) in enumerate(ways):
                at = place[w] * int64(4)
                key = self.keys[row * self.width + cast("int64", nodes[at + int64(1)])]
                to = cast("int64", nodes[at + int64(2)]) + cast("int64", key > nodes[at])
                left[1] = tir.bitwise_or(left[1], tir.bitwise_xor(to, place[w]))
                place[w] = to
        for w, (row, _) in enumerate(ways):
            leaf = cast("int64", nodes[place[w] * int64(4) + int64(3)])
            with ib.if_scope(True if counts is None else counts(int64(w))), ib.for_range(0, self.targets) as t:
                where = row * self.targets + t
                new, old = self.weights[leaf * self.targets + t], self.out[where]
                self.out[where] = {"sum": old + new, "min": min_(old, new), "max": max_(old, new)}[self.aggregate]
