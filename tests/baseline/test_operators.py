"""Baseline operators against the cases of ONNX's backend suite, and against NumPy in double precision.

What the suite has and a baseline program does not compute it must refuse; nothing may come out wrong.
"""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from benchmarks.node_cases import node_cases
from tests import onnx_models
from tests.refusals import refuses
from weft.baseline import BaselineProgram, NotInBaseline, onnx_file
from weft.baseline.operators import OPERATORS, erf

# No case of theirs in the suite has one type, one output and shapes; they are tested below.
_BELOW = {"Cast", "Einsum", "LayerNormalization", "ReduceLogSumExp", "SimplifiedLayerNormalization"}


def program(model, tmp_path) -> BaselineProgram:
    path = tmp_path / "m.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return BaselineProgram(path)


def one(tmp_path, op: str, *inputs: np.ndarray, outputs: int = 1, opset: int = 17, **attributes):
    """What a program of one operator computes; None where it refuses."""
    made = program(model_of(op, inputs, outputs, opset, attributes), tmp_path)
    found = made.try_run([x for x in inputs if x is not None])
    return None if found is None else found[0]


def model_of(op: str, inputs, outputs: int, opset: int, attributes) -> onnx.ModelProto:
    """A model of one operator; an input that is None is left out."""
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{n}" for n in range(outputs)], **attributes)
    spec = {n: (str(x.dtype), x.shape) for n, x in zip(names, inputs, strict=True) if x is not None}
    made = onnx_models.model([node], spec, {"o0": ("float32", ())}, opset=opset)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def expected_of(op: str, inputs, outputs: int, opset: int, attributes) -> np.ndarray:
    """What ONNX Runtime computes."""
    model = model_of(op, inputs, outputs, opset, attributes).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)})[0]


def test_no_case_of_the_suite_comes_out_wrong(tmp_path):
    computed: Counter[str] = Counter()
    for case in (c for c in node_cases() if c.model is not None):
        model = onnx.ModelProto.FromString(case.model.SerializeToString())  # the cases are those of all tests
        for imported in model.opset_import:  # newer ones only add types
            imported.version = 23 if imported.version > 23 else max(13, imported.version)
        try:
            made = program(model, tmp_path)
        except NotInBaseline:
            continue
        for inputs, outputs in case.data_sets:
            found = made.try_run([np.asarray(x) for x in inputs])
            if found is None:
                continue
            for got, expected in zip(found, map(np.asarray, outputs), strict=True):
                assert (got.dtype, got.shape) == (expected.dtype, expected.shape), case.name
                np.testing.assert_allclose(got, expected, rtol=case.rtol, atol=1e-6, err_msg=case.name)
            computed.update(n.op_type for n in case.model.graph.node)
    left = {n for n in OPERATORS if n not in computed and not n.startswith("com.microsoft.")}  # those: test_microsoft
    assert left <= _BELOW, left - _BELOW
    assert computed.total() > 500


@pytest.mark.parametrize("seed", range(40))
def test_boxes_that_better_ones_cover(tmp_path, seed):
    rng = np.random.default_rng(seed)
    batch, classes, n = (int(rng.integers(1, most)) for most in (3, 4, 60))
    boxes, scores = (rng.random(s, "float32") for s in ((batch, n, 4), (batch, classes, n)))
    boxes = boxes if seed % 3 else np.round(boxes * 8) / 8  # shares that equal the limit
    limits = np.array([rng.integers(20)]), np.array([rng.choice([0, 0.25, 0.5, 1])], "float32"), scores[0, 0, :1] / 2
    given = [boxes, scores, *limits[: rng.integers(4)]]
    model = model_of("NonMaxSuppression", given, 1, 17, {"center_point_box": seed % 2})
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)})
    np.testing.assert_array_equal(program(model, tmp_path).run(given), expected)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij, bkj -> bik", "ii->i", "ij->", "...nd,...ng->...gd"])
def test_einsum(tmp_path, equation):
    rng = np.random.default_rng(2)
    values = [rng.standard_normal((4,) * len(t.strip())).astype("float32") for t in equation.split("->")[0].split(",")]
    expected = np.einsum(equation.replace(" ", ""), *(v.astype("float64") for v in values))
    np.testing.assert_allclose(one(tmp_path, "Einsum", *values, equation=equation), expected, rtol=1e-5, atol=1e-5)


def test_log_of_sums_of_powers(tmp_path):
    x = np.random.default_rng(4).standard_normal((3, 5, 7)).astype("float32") * 50
    for keep in (0, 1):
        found = one(tmp_path, "ReduceLogSumExp", x, np.array([0, 2]), keepdims=keep, opset=18)
        expected = np.log(np.exp(x.astype("float64")).sum((0, 2), keepdims=bool(keep)))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(tmp_path, op, gates, direction):
    rng, n, batch, size, hidden = np.random.default_rng(6), 5, 3, 4, 7
    ways, rows = 2 if direction == "bidirectional" else 1, gates * hidden
    shapes = [(n, batch, size), (ways, rows, size), (ways, rows, hidden), (ways, 2 * rows)]
    values = [(rng.standard_normal(s) / 2).astype("float32") for s in shapes]
    values += [np.full(batch, n, "int32"), rng.standard_normal((ways, batch, hidden)).astype("float32")]
    own = [{}, {"linear_before_reset": 1}] if op == "GRU" else [{}]
    for more in own:
        form = {"direction": direction, "hidden_size": hidden, **({"input_forget": 0} if op == "LSTM" else {}), **more}
        found = one(tmp_path, op, *values, outputs=2, **form)
        np.testing.assert_allclose(found, expected_of(op, values, 2, 17, form), rtol=1e-5, atol=1e-6)
        values[4] = np.array([n, 1, n], "int32")  # sequences of several lengths
        assert one(tmp_path, op, *values, outputs=2, **form) is None
        values[4] = np.full(batch, n, "int32")


_CUT_OFF = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "pads": [1, 1]}
_OLD = [
    (7, "Softmax", [(2, 3, 4)], {}),
    (12, "LogSoftmax", [(2, 3, 4)], {"axis": -2}),
    (12, "Squeeze", [(2, 1, 4)], {"axes": [1]}),
    (11, "Unsqueeze", [(2, 4)], {"axes": [0]}),
    (9, "Slice", [(5, 6)], {"starts": [1, 2], "ends": [4, 6]}),
    (9, "Slice", [(5, 6)], {"starts": [1], "ends": [4], "axes": [1]}),
    (12, "Split", [(2, 6)], {"axis": 1, "split": [6]}),
    (10, "Clip", [(9,)], {"min": -0.5}),
    (8, "Clip", [(9,)], {"max": 0.5}),
    (10, "Pad", [(2, 3)], {"pads": [1, 0, 0, 2], "value": 2.0}),
    (9, "TopK", [(3, 7)], {"k": 2}),
    (7, "Dropout", [(3, 7)], {"ratio": 0.3}),
    (8, "Upsample", [(1, 2, 3, 3)], {"scales": [1.0, 1.0, 2.0, 3.0]}),
    (12, "ReduceSum", [(2, 3)], {"axes": [1], "keepdims": 0}),
    (8, "BatchNormalization", [(1, 3, 2)] + [(3,)] * 4, {}),
    (7, "LRN", [(1, 9, 2, 2)], {"size": 5}),
    (15, "BatchNormalization", [(4, 3, 2)] + [(3,)] * 4, {"training_mode": 1}),
    (17, "LayerNormalization", [(3, 5, 7), (7,), (7,)], {}),
    (17, "SimplifiedLayerNormalization", [(3, 5, 7), (7,)], {"axis": -1, "epsilon": 1e-6}),
    *(
        (20, "GridSample", [(2, 3, 5, 7), (2, 4, 6, 2)], {"padding_mode": pad, "align_corners": corners})
        for pad in ("zeros", "border")
        for corners in (0, 1)
    ),
    *((19, "MaxPool", [(1, 2, n)], _CUT_OFF | {"dilations": [2]}) for n in range(4, 9)),
    *((19, "AveragePool", [(1, 2, n)], _CUT_OFF | {"count_include_pad": n % 2}) for n in range(3, 9)),
]


@pytest.mark.parametrize(("opset", "op", "shapes", "attributes"), _OLD, ids=[f"{o}-{n}" for o, n, _, _ in _OLD])
def test_operators_of_several_opsets(tmp_path, opset, op, shapes, attributes):
    rng, outputs = np.random.default_rng(7), 2 if op == "TopK" else 1 + 2 * attributes.get("training_mode", 0)
    values = [rng.random(s).astype("float32") * 2 - (not i) for i, s in enumerate(shapes)]
    found = one(tmp_path, op, *values, outputs=outputs, opset=opset, **attributes)
    expected = expected_of(op, values, outputs, opset, attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_half_precision_is_computed_in_single_and_rounded(tmp_path):
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(s).astype("float16") for s in ((5, 300), (300, 7)))
    found = one(tmp_path, "MatMul", a, b)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, a.astype("float64") @ b.astype("float64"), rtol=1e-3, atol=1e-3)
    assert one(tmp_path, "MatMul", a, b.astype("float32")) is None
    for kind in ("float32", "float16", "int32"):
        assert one(tmp_path, "Cast", a, to=onnx_models.element(kind)).dtype == kind


def test_an_element_between_two_is_left_to_the_compiled_program(tmp_path):
    x = np.arange(40, dtype="float32").reshape(1, 1, 40)
    form = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    new = {"keep_aspect_ratio_policy": "stretch", "antialias": 0, "opset": 18}  # which say nothing
    assert one(tmp_path, "Resize", x, None, np.array([1, 1, 2], "float32"), **form, **new).shape == (1, 1, 80)
    assert one(tmp_path, "Resize", x, None, np.array([1, 1, 0.1], "float32"), **form) is None


def test_casts_that_lose_nothing_of_their_kind(tmp_path):
    x = np.array([-2.7, 0.0, 3.9], "float32")
    for kind, expected in (("int64", [-2, 0, 3]), ("bool", [True, False, True])):
        assert one(tmp_path, "Cast", x, to=onnx_models.element(kind)).tolist() == expected
    x = np.array([np.nan, -np.inf, -1e30, 1e30], "float32")  # as compiled kernels do it
    for kind in ("int8", "int32", "int64", "uint8"):
        found, ends = one(tmp_path, "Cast", x, to=onnx_models.element(kind)), np.iinfo(kind)
        assert found.tolist() == [0, ends.min, ends.min, ends.max]


def test_erf_is_that_of_double_precision():
    from math import erf as precise

    x = np.concatenate([np.linspace(-6, 6, 4001), [0.0, -0.0, np.inf, -np.inf]]).astype("float32")
    with np.errstate(all="ignore"):
        found, nan = erf(x), erf(np.array([np.nan], "float32"))
    np.testing.assert_allclose(found, [precise(v) for v in x.astype(float)], rtol=5e-7, atol=1e-12)
    assert np.isnan(nan[0])


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize(
    ("group", "strides", "dilations"), [(1, (1, 1), (1, 1)), (2, (2, 1), (1, 2)), (4, (2, 2), (1, 1))]
)
def test_convolutions(tmp_path, kernel, group, strides, dilations):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 4, 11, 13)).astype("float32")
    w = rng.standard_normal((8, 4 // group, *kernel)).astype("float32")
    form = {"group": group, "strides": strides, "dilations": dilations, "pads": (1, 0, 2, 1)}
    expected = expected_of("Conv", [x, w], 1, 17, form)
    np.testing.assert_allclose(one(tmp_path, "Conv", x, w, **form), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gather", [np.ones((3, 2), "float32"), np.array([5])], {}),
        ("Reshape", [np.ones((3, 2), "float32"), np.array([4, 4])], {}),
        ("Add", [np.ones(3, "float32"), np.ones(4, "float32")], {}),
        ("Add", [np.ones(3, "float32"), np.ones(3, "int64")], {}),
        ("Div", [np.array([7]), np.array([0])], {}),
        ("Div", [np.array([-7]), np.array([2])], {}),
        ("MatMul", [np.ones((2, 3), "float32"), np.ones((2, 3), "float32")], {}),
        ("ReduceMax", [np.ones((0, 3), "float32")], {}),
        ("LayerNormalization", [np.ones(3, "float32")] * 2, {"outputs": 2}),
        ("Conv", [np.ones((1, 3, 2, 2), "float32"), np.ones((1, 3, 3, 3), "float32")], {}),
        ("Slice", [np.ones(3, "float32"), *map(np.array, ([-9], [-10], [0], [-1]))], {}),
        ("LSTM", [np.ones(shape, "float32") for shape in ((3, 1, 2), (1, 1, 2), (1, 4, 3))], {"hidden_size": 3}),
        ("GridSample", [np.ones(shape, "float32") for shape in ((2, 1, 3, 3), (1, 2, 2, 2))], {}),
        ("RNN", [np.ones(shape, "float32") for shape in ((3, 1, 2), (1, 3, 2), (1, 3, 3), (1, 1))], {"hidden_size": 3}),
    ],
)
def test_what_is_not_plain_is_left_to_the_compiled_program(tmp_path, op, inputs, attributes):
    assert one(tmp_path, op, *inputs, **attributes) is None


def test_what_means_something_else_is_refused(tmp_path):
    refuses(NotInBaseline, "an input", one, tmp_path, "Unsqueeze", np.ones((2, 3), "float32"), axes=[0])
    old = next(c.model for c in node_cases() if c.name == "test_scan_sum")
    refuses(NotInBaseline, "Scan of opset 8", program, old, tmp_path)
    for op in ("Add", "Where", "MatMul", "Relu"):  # no input without a default may be left out
        inputs = [None, *[np.ones(3, "float32")] * {"Relu": 0, "Where": 2}.get(op, 1)]
        refuses(NotInBaseline, "left out", one, tmp_path, op, *inputs)
    assert one(tmp_path, "Concat", None, np.ones(3, "float32"), axis=0) is None
    assert one(tmp_path, "Loop", None, None, np.ones(3, "float32"), body=3) is None


def test_bodies_that_are_nested_beyond_all_bounds_are_refused(tmp_path):
    refuses(NotInBaseline, "", program, onnx_models.nested_choices(3000), tmp_path)


def linear(**changes):
    proto = onnx_models.linear()[0]
    for what, value in changes.items():
        match what:
            case "opset":
                proto.opset_import[0].version = value
            case "domain":
                proto.graph.node[0].domain = value
            case "order":
                nodes = list(proto.graph.node)[::-1]
                del proto.graph.node[:]
                proto.graph.node.extend(nodes)
            case "attribute":
                proto.graph.node[0].attribute.append(helper.make_attribute(value, 1))
            case "weight":
                proto.graph.initializer.append(numpy_helper.from_array(value, "other"))
            case "output":
                proto.graph.output[0].name = value
            case "cut":
                return proto.SerializeToString()[:value]
    return proto


@pytest.mark.parametrize(
    "changes",
    [
        {"opset": 6},
        {"opset": 99},
        {"domain": "com.other"},
        {"order": 1},
        {"attribute": "unknown"},
        {"weight": np.ones(2, "float64")},
        {"output": "nowhere"},
        {"cut": -3},
        {"cut": 40},
        {"cut": 0},
    ],
    ids=str,
)
def test_a_model_with_anything_unknown_is_refused(tmp_path, changes):
    refuses(NotInBaseline, "", program, linear(**changes), tmp_path)


def test_operators_of_domains_are_refused_before_their_attributes_are_read(tmp_path, monkeypatch):
    proto, read = linear(domain="ai.onnx.ml"), []
    proto.graph.node[0].attribute.append(helper.make_attribute("weights", [0.5] * 10_000))
    given = onnx_file.message_fields
    monkeypatch.setattr(onnx_file, "message_fields", lambda *a: (read.append(f) or f for f in given(*a)))
    refuses(NotInBaseline, "domain", program, proto, tmp_path)
    assert len(read) < 100


def test_weights_wherever_they_lie_in_the_file(tmp_path):
    rng, types = np.random.default_rng(8), ("float32", "int64", "float16", "uint8", "int32")
    proto, weights = onnx_models.linear()[0], {}
    for n in range(80):
        name = "w" * int(rng.integers(1, 9)) + str(n)
        weights[name] = rng.integers(0, 99, rng.integers(0, 70)).astype(types[n % len(types)])
        proto.graph.initializer.append(numpy_helper.from_array(weights[name], name))
    made = program(proto, tmp_path)
    for name, value in weights.items():
        found = made._graph.weights[name]
        assert found.dtype == value.dtype and found.flags.aligned, name
        np.testing.assert_array_equal(found, value)


def test_an_empty_cache_is_no_reason_to_wait(tmp_path):
    past, new = np.empty((1, 0, 4), "float32"), np.ones((1, 3, 4), "float32")
    assert one(tmp_path, "Concat", past, new, axis=1).tolist() == new.tolist()
    assert one(tmp_path, "Transpose", past, perm=[1, 0, 2]).shape == (0, 1, 4)
    assert all(one(tmp_path, op, past) is None for op in ("ReduceMax", "Softmax", "Relu"))


def test_weights_beside_the_model(tmp_path):
    proto, w, b = onnx_models.linear()
    path = tmp_path / "m.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    (found,) = BaselineProgram(path).run([x])
    np.testing.assert_allclose(found, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)
    (tmp_path / "weights.bin").write_bytes(b"short")
    refuses(NotInBaseline, "", BaselineProgram, path)
    proto = onnx.load(str(path), load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(proto.SerializeToString())
    refuses(NotInBaseline, "", BaselineProgram, path)


def test_damaged_files_are_refused_or_run(tmp_path):
    rng, path = np.random.default_rng(5), tmp_path / "m.onnx"
    sound = onnx_models.linear()[0].SerializeToString()
    refused = 0
    for _ in range(3000):
        damaged = bytearray(sound)
        for at in rng.integers(0, len(damaged), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            made = BaselineProgram(path)
        except NotInBaseline:
            refused += 1
            continue
        made.try_run([np.ones((3, 8), "float32")] * len(made.inputs))
    assert 100 < refused < 3000
