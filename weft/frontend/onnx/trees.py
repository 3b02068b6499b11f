"""Ensembles of decision trees, walked by one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.frontend.onnx.learned import TRANSFORMS, class_labels, classified, transformed
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.ir import constant

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
_EQUAL, _LEAF, _MEMBER = 4, 6, 6
_NOTHING = np.iinfo(np.int64).min
"""What leaves lead to."""

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass
class _Forest:
    """Nodes of all trees, a column each; of weights, the leaf and the target beside the weight."""

    features: Any
    splits: Any
    modes: Any
    missing: Any
    ways: Any
    """(nodes, 2): the node where the branch's condition holds, and the other one."""
    roots: Any
    weights: tuple[Any, Any, Any]


def _by_nodes(node: Node, prefix: str) -> _Forest:
    """Read the form of opsets 1 to 3, whose nodes are named by tree and number."""
    trees, numbers = _integers(node, "nodes_treeids"), _integers(node, "nodes_nodeids")
    count = len(trees)
    splits, modes = _floats(node, "nodes_values", count), node.attr("nodes_modes", [])
    columns = [_integers(node, f"nodes_{k}") for k in ("featureids", "truenodeids", "falsenodeids")]
    missing = _integers(node, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) else np.zeros(count, np.int64)
    if not count or {len(numbers), len(modes), len(missing), *map(len, columns)} != {count}:
        node.error("lists about its nodes have different lengths, or none", expected=str(count))
    unknown = set(modes).difference(_MODES)
    if unknown:
        node.error("an unknown kind of node", expected=", ".join(_MODES), found=min(unknown))
    find = _finder(trees, numbers)
    owners = [_integers(node, f"{prefix}_{k}") for k in ("treeids", "nodeids", "ids")]
    if len({*map(len, owners)}) > 1:
        node.error("lists about its weights have different lengths", expected=str(len(owners[2])))
    leaves = find(*owners[:2])
    if (leaves < 0).any():
        node.error("a weight is of a node that there is not")
    weights = (leaves, owners[2], _floats(node, f"{prefix}_weights", len(leaves)))
    kinds = np.array([*map({m: i for i, m in enumerate(_MODES)}.__getitem__, modes)])
    ways = np.stack([find(trees, way) for way in columns[1:]], 1)
    roots = np.sort(np.unique(trees, return_index=True)[1])
    return _Forest(columns[0], splits, kinds, missing, ways, roots, weights)


def _integers(node: Node, name: str) -> Any:
    return np.array(node.attr(name, []), np.int64)


def _finder(trees: Any, numbers: Any) -> Callable[[Any, Any], Any]:
    """Return the function that finds nodes by tree and number: their places, or -1."""
    known = [np.unique(part) for part in (trees, numbers)]

    def keys(*parts: Any) -> Any:
        places = [np.searchsorted(k[:-1], p) for k, p in zip(known, parts, strict=True)]
        there = [k[at] == p for k, at, p in zip(known, places, parts, strict=True)]
        return np.where(there[0] & there[1], places[0] * len(known[1]) + places[1], -1)

    own = keys(trees, numbers)
    order = np.argsort(own, kind="stable")

    def find(trees: Any, numbers: Any) -> Any:
        wanted = keys(trees, numbers)
        at = np.searchsorted(own[order], wanted, "right") - 1
        return np.where(wanted == own[order[at]], order[at], -1)

    return find


def _floats(node: Node, name: str, count: int) -> Any:
    tensor = node.attr(f"{name}_as_tensor")
    values = node.graph.reader.read(tensor).reshape(-1) if tensor is not None else np.array(node.attr(name, []), "f4")
    if len(values) != count:
        node.error(f"'{name}' has a wrong length", expected=str(count), found=str(len(values)))
    return values


def _scores(node: Node, forest: _Forest, targets: int, aggregate: str, base: Any) -> Any:
    """Compute (rows, targets) of all leaves' weights."""
    node.require_rank(0, 2)
    n, leads = len(forest.modes), np.append(forest.ways[forest.modes < _LEAF].reshape(-1), forest.roots)
    if len(outside := leads[(leads < 0) | (leads >= n)]):
        node.error("a branch leads to no node", expected=f"0..{n - 1}", found=str(outside[0]))
    leaf, target, weight = forest.weights
    if ((target < 0) | (target >= targets)).any():
        node.error("a weight is of a target that there is not", expected=f"0..{targets - 1}")
    x = node.x() if node.dtype() in ("float32", "float64") else node.astype(node.x(), "float32")
    dtype, width = x.ty.dtype, node.shape()[1]
    join, nothing = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}.get(aggregate, (np.add, 0.0))
    used = np.unique(forest.features[forest.modes < _LEAF])
    if len(used) and isinstance(width, int) and width <= 4 * len(used) and used[-1] < width:
        used = np.arange(width)
    else:
        x = node.op("take", x, constant(used if len(used) else np.zeros(1, np.int64)), axis=1)
    nodes, roots, leaves = _laid_out(node, forest, used, dtype)
    row = np.full(len(forest.modes), len(leaves))  # those that no way comes to share the last one
    row[leaves] = np.arange(len(leaves))
    table = np.full((len(leaves) + 1, targets), nothing, dtype)
    join.at(table, (row[leaf], target), np.asarray(weight, dtype))
    out = node.op(
        "tree_scores", x, *map(constant, (nodes, roots, table)), aggregate=aggregate.lower() if nothing else "sum"
    )
    if nothing:
        out = node.op("where", node.op("isinf", out), node.scalar(0.0, dtype), out)
    if aggregate == "AVERAGE":
        out = node.emit(out / float(len(forest.roots)))
    if base is None or not len(base):
        return out
    node.require_equal("base values: one for each target", len(base), targets)
    return node.op("add", out, constant(np.asarray(base).astype(dtype)))


def _laid_out(node: Node, forest: _Forest, used: Any, dtype: str) -> tuple[Any, Any, Any]:
    """Return the nodes of `tree_scores`, its roots, and which leaves its rows of weights are of.

    The two that a node leads to lie side by side, those of the first of them right behind. A node that several lead
    to lies beside one of them; the others lead to it by way of a node that goes on to it in any case.
    """
    whole = np.dtype(f"i{np.dtype(dtype).itemsize}")
    limits, columns, ways = _asking(forest, used, dtype)
    count, trees = len(limits), len(forest.roots)
    ways = np.concatenate([ways, np.stack([forest.roots, np.full(trees, _NOTHING)], 1)])  # beside roots lies nothing
    order, place = _walked(node, ways, count)
    pair = np.zeros(count + trees, np.int64)
    pair[order] = np.arange(len(order))
    found = np.flatnonzero(place >= 0)
    row = 2 * pair[place // 2] + place % 2
    rows = np.zeros((2 * len(order) + 1, 4), whole)  # each node has one behind it
    rows[:, 0], rows[:-1, 2] = np.iinfo(whole).max - 1, np.arange(len(rows) - 1)
    asks = ways[found, 0] != _NOTHING
    asking, leaves = found[asks], found[~asks]
    rows[row[asking]] = np.stack([limits[asking], columns[asking], 2 * pair[asking], 0 * asking], 1)
    slots = np.setdiff1d((2 * order[:, None] + [0, 1])[ways[order] != _NOTHING], place[found], assume_unique=True)
    rows[2 * pair[slots // 2] + slots % 2, 2] = row[ways.reshape(-1)[slots]]
    leaves = leaves[np.argsort(row[leaves])]
    rows[row[leaves], 3] = np.arange(len(leaves))
    return rows, (2 * pair[count:]).astype("i4"), leaves


def _walked(node: Node, ways: np.ndarray, count: int) -> tuple[Any, Any]:
    """Return the nodes that lead on, in the order in which they are met, and the slot that each node lies at, or -1.

    Slots ``2 * node`` and the one behind it are what a node leads to; those from `count` on lead to the roots. Ways
    that never end at a leaf are refused.
    """
    leads, order = ways.reshape(-1).tolist(), list[int]()
    place, above = [-1] * count, bytearray(count)  # above: that the walk is below it
    for top in range(count, len(ways)):
        order.append(top)
        waiting = [2 * top]
        while waiting:
            slot = waiting.pop()
            if slot < 0:
                above[~slot] = 0
                continue
            at = leads[slot]
            if above[at]:
                node.error("a tree has a cycle", found=f"node {at}")
            if place[at] < 0:
                place[at] = slot
                if leads[2 * at] != _NOTHING:
                    order.append(at)
                    above[at] = 1
                    waiting += (~at, 2 * at + 1, 2 * at)
    return np.array(order), np.array(place)


def _asking(forest: _Forest, used: Any, dtype: str) -> tuple[Any, Any, Any]:
    """Return limits and columns of features, and the nodes where they are not and are exceeded.

    Leaves lead to nothing. A node that asks for a value is two: what is not less is asked for once more.
    """
    below, upto = _limits(forest, dtype)
    modes, leaf = forest.modes, forest.modes >= _LEAF
    turned = np.isin(modes, (2, 3, 5))  # what is not less is greater or equal
    missing, ways = (forest.missing != 0) ^ turned, np.where(turned[:, None], forest.ways[:, ::-1], forest.ways)
    column = np.searchsorted(used, forest.features)
    limits = np.where(np.isin(modes, (0, 3)), upto, below)
    twice = np.flatnonzero((modes >= _EQUAL) & ~leaf)
    columns = np.append(column + len(used) * (missing ^ (modes >= _EQUAL)), (column + len(used) * missing)[twice])
    second = ways[twice]
    ways = np.concatenate([np.where(leaf[:, None], _NOTHING, ways), second])
    ways[twice] = np.stack([second[:, 1], len(modes) + np.arange(len(twice))], 1)
    return np.append(limits, upto[twice]), columns, ways


def _limits(forest: _Forest, dtype: str) -> tuple[Any, Any]:
    """Return, as keys of features, the greatest below and up to each node's value; nothing compares with a NaN."""
    values = np.array(forest.splits).astype(dtype)
    bits = values.view(f"i{values.itemsize}")
    least = np.iinfo(bits.dtype).min
    keys = np.where(bits < 0, least - bits, bits)
    greater = np.isin(forest.modes, (2, 3))  # never greater: all that is a number is below
    nothing = np.where(greater, np.iinfo(bits.dtype).max - 2, least)
    nan = np.isnan(values)
    return np.where(nan, nothing, keys - 1), np.where(nan, nothing, keys)


@converter("TreeEnsembleRegressor", domain="ai.onnx.ml")
def _regressor(node: Node) -> Any:
    forest, targets = _by_nodes(node, "target"), node.attr("n_targets", 1)
    aggregate = node.attr("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        node.error("an unknown aggregate", expected=", ".join(_AGGREGATES), found=aggregate)
    if targets == 1:  # skl2onnx names the number of a leaf once for each class, and ONNX Runtime takes the first weight
        _, first = np.unique(forest.weights[0], return_index=True)
        forest.weights = tuple(part[first] for part in forest.weights)
    scores = _scores(node, forest, targets, aggregate, _base(node))
    return node.astype(transformed(node, scores, node.attr("post_transform", "NONE")), "float32")


def _base(node: Node) -> Any:
    tensor = node.attr("base_values_as_tensor")
    return node.attr("base_values", []) if tensor is None else node.graph.reader.read(tensor).reshape(-1)


@converter("TreeEnsembleClassifier", domain="ai.onnx.ml")
def _classifier(node: Node) -> Any:
    """Two classes with the weights of one are told apart by the sign of its score, or by whether it is over a half."""
    forest, labels = _by_nodes(node, "class"), class_labels(node)
    base, (leaves, targets, weights) = _base(node), forest.weights
    transform = node.attr("post_transform", "NONE")
    if labels.shape[0] == 2 and len(ids := set(targets.tolist())) <= 1:
        forest.weights = (leaves, 0 * targets, weights)
        scores = _scores(node, forest, 1, "SUM", base[-1:])
        other = 0.0 if ids == {1} else None
        return classified(node, scores, labels, transform, one_sided=bool((weights >= 0).all()), other=other)
    scores = _scores(node, forest, labels.shape[0], "SUM", base)
    return classified(node, scores, labels, transform)


@converter("TreeEnsemble", domain="ai.onnx.ml")
def _tree_ensemble(node: Node) -> Any:
    """The form of opset 5: leaves are apart from nodes, and a node may ask for one of several values."""
    read = node.graph.reader.read
    columns = ("nodes_splits", "nodes_modes", "leaf_weights")
    splits, modes, weights = (np.array(read(node.attr(k))).reshape(-1) for k in columns)
    if (modes > _MEMBER).any():
        node.error("an unknown kind of node", expected=f"0..{_MEMBER}", found=str(modes.max()))
    members, count, leaves = _members(node, modes.tolist()), len(modes), len(weights)
    features, targets = _integers(node, "nodes_featureids"), _integers(node, "leaf_targetids")
    missing = _integers(node, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) else 0 * features
    sides = [_integers(node, f"nodes_{side}{what}") for what in ("nodeids", "leafs") for side in ("true", "false")]
    if {len(splits), len(features), len(missing), *map(len, sides)} != {count} or len(targets) != leaves:
        node.error("lists about its nodes, or its leaves, have different lengths", expected=str(count))
    ways = np.stack([to + count * (leaf != 0) for to, leaf in zip(sides[:2], sides[2:], strict=True)], 1)
    owner = np.array([i for i, values in members.items() for _ in values[1:]], np.int64)
    after = np.array([v for values in members.values() for v in values[1:]], splits.dtype)
    chain = count + leaves + np.arange(len(owner))  # the further values of sets, each asked for where the last was not
    further = np.where(np.diff(owner, append=-1) != 0, ways[owner, 1], chain + 1)
    further = np.stack([ways[owner, 0], further], 1)
    for i, values in members.items():
        modes[i], splits[i] = _EQUAL, values[0]
    several, first = np.unique(owner, return_index=True)
    ways[several, 1] = chain[first]
    nothing = np.zeros(leaves, np.int64)
    forest = _Forest(
        np.concatenate([features, nothing, features[owner]]),
        np.concatenate([splits, nothing, after]),
        np.concatenate([modes, nothing + _LEAF, 0 * owner + _EQUAL]),
        np.concatenate([missing, nothing, missing[owner]]),
        np.concatenate([ways, np.stack([nothing, nothing], 1), further]),
        _integers(node, "tree_roots"),
        (count + np.arange(leaves), targets, weights),
    )
    out = _scores(node, forest, node.attr("n_targets", 1), _AGGREGATES[node.attr("aggregate_function", 1)], None)
    return node.astype(transformed(node, out, TRANSFORMS[node.attr("post_transform", 0)]), node.dtype())


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
            "its sets of values are not as many as the nodes that ask for them",
            expected=str(len(asking)),
            found=str(len(groups)),
        )
    return dict(zip(asking, groups, strict=False))
