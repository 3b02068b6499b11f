"""Ensembles of decision trees, walked by one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.frontend.onnx.learned import class_labels, classified, transformed
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.ir import constant

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
_EQUAL, _LEAF, _MEMBER = 4, 6, 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class _Forest:
    """Nodes of all trees, by number; ``weights`` are (leaf, target, weight)."""

    features: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    weights: list[tuple[int, int, float]] = field(default_factory=list)

    def add(self, feature: int, split: float, mode: int, missing: int, yes: int, no: int) -> int:
        """Add a node and return its number."""
        columns: tuple[Any, ...]
        columns = (self.features, self.splits, self.modes, self.missing, self.yes, self.no)
        for column, value in zip(columns, (feature, split, mode, missing, yes, no), strict=True):
            column.append(value)
        return len(self.modes) - 1

    def check(self, node: Node) -> None:
        """Refuse branches to nodes that there are not, and ways that never end at a leaf."""
        n, state = len(self.modes), [0] * len(self.modes)
        waiting = [(r, False) for r in self.roots]
        while waiting:
            at, done = waiting.pop()
            if not 0 <= at < n:
                node.error(f"{node.op_type}: a branch leads to no node", expected=f"0..{n - 1}", found=str(at))
            if done:
                state[at] = 2
            elif state[at] == 1:
                node.error(f"{node.op_type}: a tree has a cycle", found=f"node {at}")
            elif state[at] == 0 and self.modes[at] < _LEAF:
                state[at] = 1
                waiting += [(at, True), (self.yes[at], False), (self.no[at], False)]


def _by_nodes(node: Node, prefix: str) -> _Forest:
    """Read the form of opsets 1 to 3, whose nodes are named by tree and number."""
    forest = _Forest()
    names = list(zip(node.attr("nodes_treeids", []), node.attr("nodes_nodeids", []), strict=True))
    place = {name: i for i, name in enumerate(names)}
    splits = _floats(node, "nodes_values", len(names))
    missing = node.attr("nodes_missing_value_tracks_true", []) or [0] * len(names)
    modes, features = node.attr("nodes_modes", []), node.attr("nodes_featureids", [])
    ways = [node.attr(k, []) for k in ("nodes_truenodeids", "nodes_falsenodeids")]
    if {len(modes), len(features), len(splits), len(missing), *map(len, ways)} != {len(names)}:
        node.error(f"{node.op_type}: lists about its nodes have different lengths", expected=str(len(names)))
    unknown = set(modes).difference(_MODES)
    if unknown:
        node.error(f"{node.op_type}: an unknown kind of node", expected=", ".join(_MODES), found=min(unknown))
    forest.features, forest.splits, forest.missing = list(features), splits.tolist(), list(missing)
    forest.modes = list(map(_MODES.index, modes))
    trees = [tree for tree, _ in names]
    forest.yes, forest.no = ([place.get(to, -1) for to in zip(trees, way, strict=True)] for way in ways)
    seen: set[int] = set()
    for i, tree in enumerate(trees):
        if tree not in seen:
            seen.add(tree)
            forest.roots.append(i)
    owners = zip(node.attr(f"{prefix}_treeids", []), node.attr(f"{prefix}_nodeids", []), strict=True)
    leaves = [place.get(o, -1) for o in owners]
    if -1 in leaves:
        node.error(f"{node.op_type}: a weight is of a node that there is not")
    weights = _floats(node, f"{prefix}_weights", len(leaves))
    forest.weights = list(zip(leaves, node.attr(f"{prefix}_ids", []), weights, strict=True))
    return forest


def _floats(node: Node, name: str, count: int) -> Any:
    tensor = node.attr(f"{name}_as_tensor")
    values = node.graph.reader.read(tensor).reshape(-1) if tensor is not None else np.array(node.attr(name, []), "f4")
    if len(values) != count:
        node.error(f"{node.op_type}: '{name}' has a wrong length", expected=str(count), found=str(len(values)))
    return values


def _scores(node: Node, forest: _Forest, targets: int, aggregate: str, base: Any) -> Any:
    """Compute (rows, targets) of all leaves' weights."""
    forest.check(node)
    if node.ndim() != 2:
        node.error(f"{node.op_type}: its input has a wrong rank", expected="(rows, features)", found=str(node.ndim()))
    if any(not 0 <= t < targets for _, t, _ in forest.weights):
        node.error(f"{node.op_type}: a weight is of a target that there is not", expected=f"0..{targets - 1}")
    x = node.x() if node.dtype() in ("float32", "float64") else node.astype(node.x(), "float32")
    dtype, width = x.ty.dtype, node.shape()[1]
    nothing = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = np.full((len(forest.modes), targets), nothing, dtype)
    for leaf, target, weight in forest.weights:
        table[leaf, target] = weight if nothing or not table[leaf, target] else table[leaf, target] + weight
    used = sorted({feature for feature, mode in zip(forest.features, forest.modes, strict=True) if mode < _LEAF})
    if isinstance(width, int) and width <= 4 * len(used) and used[-1] < width:
        used = list(range(width))
    else:
        x = node.op("take", x, constant(np.array(used or [0])), axis=1)
    nodes, roots, leaves = _laid_out(forest, used, dtype)
    out = node.op(
        "tree_scores",
        x,
        *map(constant, (nodes, roots, table[leaves])),
        aggregate=aggregate.lower() if nothing else "sum",
    )
    if nothing:
        out = node.op("where", node.op("isinf", out), node.scalar(0.0, dtype), out)
    if aggregate == "AVERAGE":
        out = node.emit(out / float(len(forest.roots)))
    return out if base is None or not len(base) else node.op("add", out, constant(np.asarray(base).astype(dtype)))


def _laid_out(forest: _Forest, used: list[int], dtype: str) -> tuple[Any, Any, list[int]]:
    """Return the nodes of `tree_scores`, its roots, and which leaves its rows of weights are of.

    The two that a node leads to lie side by side, those of the first of them right behind. A node that several lead
    to lies beside one of them; the others lead to it by way of a node that goes on to it in any case.
    """
    limits, always = _limits(forest, dtype), int(np.iinfo(f"i{np.dtype(dtype).itemsize}").max) - 1
    column = {feature: i for i, feature in enumerate(used)}
    rows: list[tuple[int, int, int, int]] = []
    roots: list[int] = []
    leaves: list[int] = []
    done: dict[int, int] = {}

    def pair() -> int:
        rows.extend((always, 0, len(rows) + i, 0) for i in range(2))
        return len(rows) - 2

    for root in forest.roots:
        roots.append(pair())
        waiting = [(root, roots[-1])]
        while waiting:
            i, at = waiting.pop()
            if i in done:
                rows[at] = (always, 0, done[i], 0)
                continue
            done[i], mode = at, forest.modes[i]
            if mode >= _LEAF:
                rows[at] = (always, 0, at, len(leaves))
                leaves.append(i)
                continue
            feature, (below, upto) = column[forest.features[i]], limits[i]
            missing, ways = bool(forest.missing[i]), (forest.yes[i], forest.no[i])
            if mode in (2, 3, 5):  # what is not less is greater or equal
                missing, ways = not missing, ways[::-1]
            if mode >= _EQUAL:  # the least that is not less is asked for once more
                first, then = pair(), pair()
                rows[at] = (below, feature + (0 if missing else len(used)), first, 0)
                rows[first + 1] = (upto, feature + (len(used) if missing else 0), then, 0)
                waiting += [(ways[1], then + 1), (ways[0], then), (ways[1], first)]
            else:
                to = pair()
                limit = upto if mode in (0, 3) else below
                rows[at] = (limit, feature + (len(used) if missing else 0), to, 0)
                waiting += [(ways[1], to + 1), (ways[0], to)]
    rows.append((always, 0, 0, 0))  # each node has one behind it
    return np.array(rows, f"i{np.dtype(dtype).itemsize}").reshape(-1, 4), np.array(roots, "i4"), leaves or [0]


def _limits(forest: _Forest, dtype: str) -> list[tuple[int, int]]:
    """Return, as keys of features, the greatest below and up to each node's value; nothing compares with a NaN."""
    values = np.array(forest.splits).astype(dtype)
    bits = values.view(f"i{values.itemsize}")
    least = np.iinfo(bits.dtype).min
    keys = np.where(bits < 0, least - bits, bits)
    greater = np.isin(forest.modes, (2, 3))  # never greater: all that is a number is below
    nothing = np.where(greater, np.iinfo(bits.dtype).max - 2, least)
    nan = np.isnan(values)
    return list(zip(np.where(nan, nothing, keys - 1).tolist(), np.where(nan, nothing, keys).tolist(), strict=True))


@converter("TreeEnsembleRegressor", domain="ai.onnx.ml")
def _regressor(node: Node) -> Any:
    forest, targets = _by_nodes(node, "target"), node.attr("n_targets", 1)
    aggregate = node.attr("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        node.error("TreeEnsembleRegressor: an unknown aggregate", expected=", ".join(_AGGREGATES), found=aggregate)
    scores = _scores(node, forest, targets, aggregate, _base(node))
    return node.astype(transformed(node, scores, node.attr("post_transform", "NONE")), "float32")


def _base(node: Node) -> Any:
    tensor = node.attr("base_values_as_tensor")
    return node.attr("base_values", []) if tensor is None else node.graph.reader.read(tensor).reshape(-1)


@converter("TreeEnsembleClassifier", domain="ai.onnx.ml")
def _classifier(node: Node) -> Any:
    """Two classes with the weights of one are told apart by the sign of its score, or by whether it is over a half."""
    forest, labels = _by_nodes(node, "class"), class_labels(node)
    base, ids = _base(node), {t for _, t, _ in forest.weights}
    if labels.shape[0] == 2 and len(ids) <= 1:
        forest.weights = [(leaf, 0, weight) for leaf, _, weight in forest.weights]
        positive = all(w >= 0 for _, _, w in forest.weights)
        scores = _scores(node, forest, 1, "SUM", base[-1:])
        return classified(
            node,
            scores,
            labels,
            node.attr("post_transform", "NONE"),
            one_sided=positive,
            other=0.0 if ids == {1} else None,
        )
    scores = _scores(node, forest, labels.shape[0], "SUM", base)
    return classified(node, scores, labels, node.attr("post_transform", "NONE"))


@converter("TreeEnsemble", domain="ai.onnx.ml")
def _tree_ensemble(node: Node) -> Any:
    """The form of opset 5: leaves are apart from nodes, and a node may ask for one of several values."""
    forest = _Forest()
    read = node.graph.reader.read
    splits, modes = (read(node.attr(k)).reshape(-1) for k in ("nodes_splits", "nodes_modes"))
    count, weights = len(modes), read(node.attr("leaf_weights")).reshape(-1)
    members = _members(node, list(modes))
    missing = node.attr("nodes_missing_value_tracks_true", []) or [0] * count
    for i in range(count):
        forest.add(node.attr("nodes_featureids")[i], float(splits[i]), int(modes[i]), missing[i], i, i)
    first = count
    for target, weight in zip(node.attr("leaf_targetids"), weights, strict=True):
        leaf = forest.add(0, 0.0, _LEAF, 0, 0, 0)
        forest.weights.append((leaf, target, float(weight)))
    for i in range(count):
        ways = [
            first + node.attr(f"nodes_{side}nodeids")[i]
            if node.attr(f"nodes_{side}leafs")[i]
            else node.attr(f"nodes_{side}nodeids")[i]
            for side in ("true", "false")
        ]
        last = i
        for value in members.get(i, [])[1:]:
            last_no = forest.add(forest.features[i], value, _EQUAL, forest.missing[i], ways[0], ways[1])
            forest.yes[last], forest.no[last] = ways[0], last_no
            last = last_no
        forest.yes[last], forest.no[last] = ways
        if i in members:
            forest.modes[i], forest.splits[i] = _EQUAL, members[i][0]
    forest.roots = list(node.attr("tree_roots"))
    out = _scores(node, forest, node.attr("n_targets", 1), _AGGREGATES[node.attr("aggregate_function", 1)], None)
    return node.astype(transformed(node, out, _TRANSFORMS[node.attr("post_transform", 0)]), node.dtype())


def _members(node: Node, modes: list[Any]) -> dict[int, list[float]]:
    """Return the values of each node that asks for one of several; they end at a NaN each."""
    asking = [i for i, m in enumerate(modes) if int(m) == _MEMBER]
    tensor = node.attr("membership_values")
    values = node.graph.reader.read(tensor).reshape(-1).tolist() if tensor is not None else []
    groups: list[list[float]] = [[]]
    for v in values:
        if v != v:
            groups.append([])
        else:
            groups[-1].append(v)
    groups = groups[: len(asking)] if not groups[-1] else groups
    if len(groups) < len(asking) or not all(groups[: len(asking)]):
        node.error(
            "TreeEnsemble: its sets of values are not as many as the nodes that ask for them",
            expected=str(len(asking)),
            found=str(len(groups)),
        )
    return dict(zip(asking, groups, strict=False))
