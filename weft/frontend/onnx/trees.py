"""Ensembles of decision trees: walked by one kernel, their leaves' weights gathered and put together."""

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
    for i, (tree, _) in enumerate(names):
        if modes[i] not in _MODES:
            node.error(f"{node.op_type}: an unknown kind of node", expected=", ".join(_MODES), found=modes[i])
        yes, no = ((place.get((tree, way[i]), -1) if modes[i] != "LEAF" else i) for way in ways)
        forest.add(0 if modes[i] == "LEAF" else features[i], splits[i], _MODES.index(modes[i]), missing[i], yes, no)
    seen: set[int] = set()
    for i, (tree, _) in enumerate(names):
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
    x = node.x() if node.is_float() else node.astype(node.x(), "float32")
    dtype = x.ty.dtype
    tables = [np.array(forest.features, "i4"), np.array(forest.splits).astype(dtype), np.array(forest.modes, "i4"),
              np.array(forest.missing, "i4"), np.array(forest.yes, "i4"), np.array(forest.no, "i4"),
              np.array(forest.roots, "i4")]  # fmt: skip
    leaves = node.op("tree_leaves", x, *map(constant, tables))
    nothing = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = np.full((len(forest.modes), targets), nothing, np.float64)
    for leaf, target, weight in forest.weights:
        table[leaf, target] = weight if nothing or not table[leaf, target] else table[leaf, target] + weight
    wide = "float64" if dtype == "float64" else "float32"
    taken = node.op("take", constant(table.astype(wide)), leaves, axis=0, mode="clip")
    out = node.op({"MIN": "min", "MAX": "max"}.get(aggregate, "sum"), taken, axis=(1,), keepdims=False)
    if nothing:
        out = node.op("where", node.op("isinf", out), node.scalar(0.0, wide), out)
    if aggregate == "AVERAGE":
        out = node.emit(out / float(len(forest.roots)))
    return out if base is None or not len(base) else node.op("add", out, constant(np.asarray(base).astype(wide)))


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
        return classified(node, scores, labels, node.attr("post_transform", "NONE"), one_sided=positive,
                          other=0.0 if ids == {1} else None)  # fmt: skip
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
            first + node.attr(f"nodes_{side}nodeids")[i] if node.attr(f"nodes_{side}leafs")[i] else
            node.attr(f"nodes_{side}nodeids")[i] for side in ("true", "false")
        ]  # fmt: skip
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
        node.error("TreeEnsemble: its sets of values are not as many as the nodes that ask for them",
                   expected=str(len(asking)), found=str(len(groups)))  # fmt: skip
    return dict(zip(asking, groups, strict=False))
