"""Operators of ``ai.onnx.ml`` against ONNX Runtime on random inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import weft
from tests.refusals import refuses
from weft import error, runtime
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(3)
ML, MODES = "ai.onnx.ml", ("LEQ", "LT", "GTE", "GT")


def model(op: str, x: np.ndarray, outputs: int = 1, version: int = 1, **attrs: Any) -> onnx.ModelProto:
    """Make a model of one node, the rows of its input symbolic."""
    names = [f"y{i}" for i in range(outputs)]
    dtype = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain=ML, **attrs)],
        "g",
        [helper.make_tensor_value_info("x", dtype, ["n", *x.shape[1:]])],
        [helper.make_empty_tensor_value_info(n) for n in names],
    )
    imports = [helper.make_opsetid(ML, version), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(op: str, x: np.ndarray, outputs: int = 1, version: int = 1, **attrs: Any) -> onnx.ModelProto:
    """Compare with ONNX Runtime."""
    made = model(op, x, outputs, version, **attrs)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    for got, want in zip(evaluate(from_onnx(made), x), expected, strict=True):
        if isinstance(want, list):
            assert got == want
        elif want.dtype == object:
            assert got.tolist() == want.tolist()
        else:
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    return made


NODES = "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true".split()


def forest(trees: int, depth: int, features: int, targets: int, kind: str, one_class: int = -1) -> dict[str, Any]:
    """Draw trees of different depths, whose nodes are numbered level by level."""
    nodes, leaves = list[Any](), list[Any]()
    for tree in range(trees):
        levels = [0]
        for number, level in enumerate(levels):
            ends = level == depth or (level > 1 and RNG.random() < 0.2)
            below = [] if ends else [len(levels), len(levels) + 1]
            mode = "LEAF" if ends else f"BRANCH_{RNG.choice(MODES)}"
            split = int(RNG.integers(features)), float(RNG.standard_normal())
            nodes.append((tree, number, *split, mode, *(below or [0, 0]), int(RNG.integers(2))))
            for target in () if not ends else range(targets) if one_class < 0 else [one_class]:
                leaves.append((tree, number, target, float(RNG.standard_normal())))
            levels += [level + 1 for _ in below]
    columns = {f"nodes_{n}": [*column] for n, column in zip(NODES, zip(*nodes, strict=True), strict=True)}
    names = ("treeids", "nodeids", "ids", "weights")
    return columns | {f"{kind}_{n}": [*column] for n, column in zip(names, zip(*leaves, strict=True), strict=True)}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_tree_regressor(aggregate: str, targets: int) -> None:
    x = RNG.standard_normal((17, 5)).astype(np.float32)
    attrs = forest(7, 4, 5, targets, "target")
    attrs |= {"n_targets": targets, "aggregate_function": aggregate}
    check("TreeEnsembleRegressor", x, version=3, **attrs)
    more = {k: v * 2 for k, v in attrs.items() if k.startswith("target_")}  # leaves of two weights for one target
    more["target_weights"][len(attrs["target_weights"]) :] = RNG.standard_normal(len(attrs["target_weights"])).tolist()
    check("TreeEnsembleRegressor", x, version=3, **(attrs | more))


def test_trees_tell_what_is_missing() -> None:
    x = RNG.standard_normal((64, 4)).astype(np.float32)
    x[RNG.random(x.shape) < 0.3] = np.nan
    check("TreeEnsembleRegressor", x, version=3, n_targets=1, **forest(5, 3, 4, 1, "target"))


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
@pytest.mark.parametrize("missing", [0, 1])
def test_branches_at_the_ends_of_floats(mode: str, missing: int) -> None:
    """Zeros of both signs are equal, and infinities and what is not a number go the way that the comparison says."""
    inf, tiny = float("inf"), 1e-45
    values = [-inf, -1.5, -tiny, -0.0, 0.0, tiny, 1.5, 3.4028235e38, inf]
    x = np.array([*values, np.nan], np.float32)[:, None]
    functions = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    compare = dict(zip(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"), functions, strict=True))[mode[7:]]
    splits = [*values, np.nan]
    n = len(splits)  # of a tree and a target each
    trees, leaves = np.repeat(np.arange(n), 3).tolist(), np.repeat(np.arange(n), 2).tolist()
    compared = [v for split in splits for v in (split, 0.0, 0.0)]
    columns = trees, [0, 1, 2] * n, [0] * 3 * n, compared, [mode, "LEAF", "LEAF"] * n, [1, 0, 0] * n, [2, 0, 0] * n
    nodes = dict(zip(NODES, (*columns, [missing] * 3 * n), strict=True))
    target = {"treeids": leaves, "nodeids": [1, 2] * n, "ids": leaves, "weights": [1.0, 2.0] * n}
    attrs = {f"{p}_{k}": v for p, d in (("nodes", nodes), ("target", target)) for k, v in d.items()}
    made = model("TreeEnsembleRegressor", x, version=3, n_targets=n, **attrs)
    holds = np.where(np.isnan(x), bool(missing), compare(x, np.float32(splits)))
    np.testing.assert_array_equal(weft.Session(made).run({"x": x})[0].numpy(), np.where(holds, 1.0, 2.0))


def test_few_of_many_features() -> None:
    x = RNG.standard_normal((40, 5000)).astype(np.float32)
    check("TreeEnsembleRegressor", x, version=3, n_targets=1, **forest(3, 4, 5000, 1, "target"))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifier(transform: str) -> None:
    x = RNG.standard_normal((33, 6)).astype(np.float32)
    attrs = forest(9, 3, 6, 4, "class")
    for labels in ("int64s", [7, 3, 5, 1]), ("int64s", [0, 1, 2, 3]), ("strings", [*"abcd"]):
        named = {f"classlabels_{labels[0]}": labels[1]}
        check("TreeEnsembleClassifier", x, 2, 3, post_transform=transform, **named, **attrs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("weighted", [0, 1])
def test_two_classes_of_one_weight(transform: str, weighted: int) -> None:
    x = RNG.standard_normal((33, 6)).astype(np.float32)
    attrs = forest(5, 3, 6, 2, "class", one_class=weighted)
    check("TreeEnsembleClassifier", x, 2, 3, post_transform=transform, classlabels_int64s=[4, 9], **attrs)
    attrs["class_weights"] = [abs(w) / 8 for w in attrs["class_weights"]]
    check("TreeEnsembleClassifier", x, 2, 3, post_transform=transform, classlabels_int64s=[4, 9], **attrs)


def test_a_tree_without_end() -> None:
    attrs, x = forest(1, 2, 2, 1, "target"), np.zeros((1, 2), np.float32)
    for to, said in ((0, "cycle"), (99, "leads to no node")):
        attrs["nodes_truenodeids"][0] = to
        refuses(error.ModelImportError, said, from_onnx, model("TreeEnsembleRegressor", x, n_targets=1, **attrs))


def test_a_tree_of_many_levels() -> None:
    n, x = 5000, np.array([[0.0], [1.0], [4999.0], [9999.0]], np.float32)
    nodes = [(0, 2 * i, 0, float(i), "BRANCH_LEQ", 2 * i + 1, 2 * i + 2, 0) for i in range(n)]
    nodes += [(0, i, 0, 0.0, "LEAF", 0, 0, 0) for i in (*range(1, 2 * n, 2), 2 * n)]
    attrs = {f"nodes_{k}": [*column] for k, column in zip(NODES, zip(*nodes, strict=True), strict=True)}
    attrs |= {"target_treeids": [0] * 3, "target_nodeids": [1, 3, 2 * n], "target_ids": [0] * 3}
    check("TreeEnsembleRegressor", x, n_targets=1, target_weights=[1.0, 2.0, 3.0], **attrs)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear(transform: str) -> None:
    x = RNG.standard_normal((9, 4)).astype(np.float32)
    w, b = RNG.standard_normal(12).tolist(), RNG.standard_normal(3).tolist()
    check("LinearRegressor", x, coefficients=w, intercepts=b, targets=3, post_transform=transform)
    check("LinearClassifier", x, 2, coefficients=w, intercepts=b, classlabels_ints=[3, 1, 2], post_transform=transform)
    check("LinearClassifier", x, 2, coefficients=w, intercepts=b, classlabels_strings=list("abc"))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_with_one_score(transform: str) -> None:
    x = RNG.standard_normal((9, 4)).astype(np.float32)
    attrs = {"coefficients": x[0].tolist(), "intercepts": [0.3], "classlabels_ints": [5, 8]}
    check("LinearClassifier", x, 2, post_transform=transform, **attrs)


KERNELS = {"LINEAR": [], "POLY": [0.5, 1.0, 3.0], "RBF": [0.4, 0.0, 0.0], "SIGMOID": [0.3, 0.1, 0.0]}


def machine(per_class: Sequence[int], spread: float = 1.0, labels: str = "ints", **attrs: Any) -> dict[str, Any]:
    """Draw support vectors of classes, with the probabilities of pairs."""
    count, classes = sum(per_class), len(per_class)
    pairs = classes * (classes - 1) // 2
    names = {"ints": [10 + i for i in range(classes)], "strings": [f"class {i}" for i in range(classes)]}[labels]
    return {
        "kernel_type": "RBF",
        "kernel_params": KERNELS["RBF"],
        "vectors_per_class": per_class,
        f"classlabels_{labels}": names,
        "support_vectors": RNG.standard_normal(count * 3).tolist(),
        "coefficients": RNG.standard_normal(count * (classes - 1)).tolist(),
        "rho": RNG.standard_normal(pairs).tolist(),
        "prob_a": (spread * RNG.uniform(-2, -0.5, pairs)).tolist(),
        "prob_b": RNG.uniform(-0.5, 0.5, pairs).tolist(),
        **attrs,
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vectors(kernel: str) -> None:
    x = RNG.standard_normal((11, 3)).astype(np.float32)
    params = {"kernel_type": kernel, "kernel_params": KERNELS[kernel] or [0.0] * 3}
    vectors, weights = RNG.standard_normal(21).tolist(), RNG.standard_normal(7).tolist()
    check("SVMRegressor", x, coefficients=weights, support_vectors=vectors, n_supports=7, rho=[0.2], **params)
    for per_class in ([2, 3, 2], [3, 4]):
        attrs = machine(per_class, **params)
        del attrs["prob_a"], attrs["prob_b"]
        check("SVMClassifier", x, 2, **attrs)


@pytest.mark.parametrize("labels", ["ints", "strings"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("per_class", [(3, 4), (2, 3, 2), (1, 2, 1, 3, 2, 1, 4)])
def test_probabilities_of_support_vectors(per_class: tuple[int, ...], kernel: str, labels: str) -> None:
    x = RNG.standard_normal((11, 3)).astype(np.float32)
    attrs = machine(per_class, labels=labels, kernel_type=kernel, kernel_params=KERNELS[kernel] or [0.0] * 3)
    made = check("SVMClassifier", x, 2, **attrs)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    session = weft.Session(made)
    for rows in (11, 0, 1):
        found, shares = session.run({"x": x[:rows]})
        assert (found if labels == "strings" else found.numpy()).tolist() == expected[0][:rows].tolist()
        np.testing.assert_allclose(shares.numpy(), expected[1][:rows], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(shares.numpy().sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_transformed_probabilities(transform: str) -> None:
    x = RNG.standard_normal((9, 3))
    for per_class in ([3, 4], [2, 3, 2]):
        check("SVMClassifier", x, 2, post_transform=transform, **machine(per_class))


@pytest.mark.parametrize("spread", [0.0, 30.0, 1e6, -1e30])
@pytest.mark.parametrize("per_class", [(3, 4), (2, 3, 2), (1, 2, 1, 3, 2)])
def test_probabilities_that_are_certain(per_class: tuple[int, ...], spread: float) -> None:
    """What is not a number makes all classes as likely as each other."""
    x = RNG.standard_normal((9, 3)).astype(np.float32)
    x[1], x[2], x[3] = np.nan, 1e30, -1e30
    made = check("SVMClassifier", x, 2, **machine(per_class, spread))
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(weft.Session(made).run({"x": x})[1].numpy(), expected[1], rtol=2e-4, atol=2e-5)


def test_wrong_numbers_of_probabilities() -> None:
    wrong = (
        {"prob_a": [1.0]},
        {"prob_b": [1.0, 2.0]},
        {"rho": [0.5]},
        {"vectors_per_class": [2, 5]},
        {"vectors_per_class": [-1, 6, 2]},
        {"coefficients": [1.0] * 12},
    )
    for attrs in wrong:
        made = model("SVMClassifier", np.zeros((1, 3), np.float32), 2, **{**machine([2, 3, 2]), **attrs})
        refuses(error.ModelImportError, "", from_onnx, made)


def test_features() -> None:
    x = RNG.standard_normal((6, 3)).astype(np.float32)
    check("Scaler", x, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 4.0])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", np.abs(x) if norm == "MAX" else x, norm=norm)
    check("Binarizer", x, threshold=0.2)
    x[2, 1] = np.nan
    check("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    numbers = RNG.integers(0, 4, (5, 3))
    check("Imputer", numbers, imputed_value_int64s=[9], replaced_value_int64=2)
    check("OneHotEncoder", numbers[:, 0], cats_int64s=[3, 0, 1, 2], zeros=1)
    check("OneHotEncoder", numbers[:0], cats_int64s=[3, 0], zeros=0)


def test_labels() -> None:
    texts = np.array(["b", "a", "z", "b"], object)
    check("LabelEncoder", texts, version=2, keys_strings=["a", "b"], values_int64s=[4, 5], default_int64=-7)
    check("LabelEncoder", texts, version=2, keys_strings=["b", "a", "b", ""], values_strings=["", "z", "y", "b"])
    for far in (3, 1 << 40, -(1 << 63)):
        keys = {"keys_int64s": [1, far], "values_strings": ["one", "three"]}
        check("LabelEncoder", np.array([far, 1, 9, -(1 << 63)]), version=2, **keys)
    for version in (2, 4):  # what is not a number is a key from opset 4 on
        keys = {"keys_floats": [0.5, float("nan")], "values_floats": [1.25, 2.5], "default_float": 0.0}
        check("LabelEncoder", np.array([0.5, np.nan, 2], np.float32), version=version, **keys)
    check("LabelEncoder", np.array([0, 2, 1]), version=1, classes_strings=["x", "y"], default_string="none")
    check("CategoryMapper", texts, cats_strings=["a", "b"], cats_int64s=[10, 20], default_int64=3)
    check("CategoryMapper", np.array([10, 5]), cats_strings=["a", "b"], cats_int64s=[10, 20], default_string="?")
    check("OneHotEncoder", texts, cats_strings=["a", "b"], zeros=1)


def test_maps() -> None:
    for rows, labels in ((3, {"classlabels_strings": ["p", "q"]}), (130, {"classlabels_int64s": [4, 2]})):
        x = RNG.standard_normal((rows, 2)).astype(np.float32)
        made = model("ZipMap", x, **labels)
        (keys,) = labels.values()
        (got,) = weft.Session(made).run({"x": x})
        assert got == [dict(zip(keys, row.tolist(), strict=True)) for row in x]
        assert evaluate(from_onnx(made), x) == [got]
        rows = runtime.VirtualMachine(weft.compile(from_onnx(made)), weft.cpu())["main"](x)  # which needs no Python
        np.testing.assert_array_equal(rows.numpy(), x)
    refuses(error.ModelImportError, "as many columns as", from_onnx, model("ZipMap", x, classlabels_int64s=[1, 2, 3]))


def test_maps_of_one_row_and_of_branches() -> None:
    x = np.array([0.25, -1], np.float32)
    (got,) = weft.Session(model("ZipMap", x, classlabels_int64s=[4, 2])).run({"x": x})
    assert got == [{4: 0.25, 2: -1.0}]
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        g (float[n, 2] x, bool c) => (seq(map(int64, float)) y, float[n, 2] w) {
            w = Neg(x)
            y = If (c) <then_branch = t () => (seq(map(int64, float)) z) {
                            z = ai.onnx.ml.ZipMap <classlabels_int64s = [4, 2]>(x) },
                        else_branch = e () => (seq(map(int64, float)) u) {
                            u = ai.onnx.ml.ZipMap <classlabels_int64s = [7, 8]>(x) }> }""")
    session, x = weft.Session(made), x[None]
    for writeable in (True, False):  # one that is not is copied
        x.flags.writeable = writeable
        for c, keys in ((True, (4, 2)), (False, (7, 8))):
            maps, negative = session.run({"x": x, "c": np.array(c)})
            assert maps == [dict(zip(keys, x[0].tolist(), strict=True))]
            np.testing.assert_array_equal(negative.numpy(), -x)


def test_dictionaries_as_rows() -> None:
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
        g (map(string, float) x) => (float[] y) {
            y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b", "c"]> (x) }""")
    (got,) = weft.Session(made).run({"x": {"c": 2.5, "a": 1.0}})
    assert got.numpy().tolist() == [[1.0, 0.0, 2.5]]


def test_what_is_learned_may_be_longer_than_other_attributes() -> None:
    wide = 1 + (1 << 20)  # forests of a few dozen classes have more weights than this
    assert "main" in from_onnx(model("Scaler", np.zeros((1, wide), "f4"), offset=[0.5] * wide))


@pytest.mark.parametrize("rows", [0, 1, 47, 49, 95, 96, 97, 100, 383, 385, 1025])
def test_rows_in_parts_of_any_size_come_to_their_leaves(rows: int) -> None:
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, 5)).astype("f4")
    check("TreeEnsembleRegressor", x, n_targets=2, **forest(9, 4, 5, 2, "target"))


@pytest.mark.parametrize(("trees", "depth", "targets"), [(3, 10, 1), (2, 5, 40), (20, 5, 2)])
def test_forests_of_many_shapes(trees: int, depth: int, targets: int) -> None:
    x = RNG.uniform(-1, 1, (1000, 5)).astype("f4")
    made = model("TreeEnsembleRegressor", x, version=3, n_targets=targets, **forest(trees, depth, 5, targets, "target"))
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    session = weft.Session(made)
    for rows in (0, 1, 7, 33, 1000):
        np.testing.assert_allclose(session.run({"x": x[:rows]})[0].numpy(), expected[:rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_several_lead_to_and_sets_of_values(seed: int) -> None:
    rng, count, leaves = np.random.default_rng(seed), 40, 9
    modes, splits = rng.integers(0, 7, count).astype("u1"), rng.integers(-2, 3, count).astype("f4")
    members = [rng.integers(-2, 3, int(rng.integers(1, 4))).astype("f4") for _ in range(int((modes == 6).sum()))]
    features, missing = rng.integers(0, 3, count), rng.integers(0, 2, count)
    later = np.minimum(np.arange(count)[:, None] + rng.integers(1, 6, (count, 2)), count)
    leads = (later == count) | (rng.random((count, 2)) < 0.2)
    ways = np.where(leads, rng.integers(0, leaves, (count, 2)), later)
    roots, targets = np.array([0, 3, 3, 0]), rng.integers(0, 2, leaves)
    weights = rng.integers(1, 9, leaves).astype("f4")
    sets = np.concatenate([[*m, np.nan] for m in members]).astype("f4") if members else np.zeros(0, "f4")
    lists = {"nodes_featureids": features, "nodes_missing_value_tracks_true": missing, "tree_roots": roots}
    for i, side in enumerate(("true", "false")):
        lists |= {f"nodes_{side}nodeids": ways[:, i], f"nodes_{side}leafs": leads[:, i].astype(int)}
    tensors = {"nodes_splits": splits, "nodes_modes": modes, "leaf_weights": weights, "membership_values": sets}
    attrs = {k: v.tolist() for k, v in lists.items()} | {k: numpy_helper.from_array(v) for k, v in tensors.items()}
    x = rng.integers(-3, 4, (50, 3)).astype("f4")
    x[rng.random(x.shape) < 0.1] = np.nan
    asked = iter(members)
    of = [next(asked) if m == 6 else s for m, s in zip(modes, splits, strict=True)]
    compare = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal, np.isin]
    want = np.zeros((len(x), 2), "f4")
    for row, root in np.ndindex(len(x), len(roots)):
        at, is_leaf = roots[root], False
        while not is_leaf:
            value = x[row, features[at]]
            holds = missing[at] if np.isnan(value) else compare[modes[at]](value, of[at])
            at, is_leaf = ways[at, 0 if holds else 1], leads[at, 0 if holds else 1]
        want[row, targets[at]] += weights[at]
    made = model("TreeEnsemble", x, version=5, n_targets=2, leaf_targetids=targets.tolist(), **attrs)
    np.testing.assert_array_equal(weft.Session(made).run({"x": x})[0].numpy(), want)


def test_lists_of_different_lengths() -> None:
    attrs, x = forest(2, 3, 2, 1, "target"), np.zeros((1, 2), np.float32)
    few = model("TreeEnsembleRegressor", x, n_targets=2, base_values=[0.5], **attrs)
    refuses(error.ModelImportError, "one for each target", from_onnx, few)
    for name in ("nodes_modes", "nodes_nodeids", "nodes_truenodeids", "target_ids", "target_weights"):
        with pytest.raises(error.ModelImportError, match="length"):
            from_onnx(model("TreeEnsembleRegressor", x, n_targets=1, **{**attrs, name: attrs[name][:-1]}))
