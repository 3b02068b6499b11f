"""Elements chosen by data: as many as there are, known only at run time."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import weft
from tests.onnx_models import model
from tests.refusals import refuses
from weft.frontend.onnx import from_onnx


def test_nonzero():
    node, out = helper.make_node("NonZero", ["x"], ["y"]), {"y": ("int64", [3, "count"])}
    found = weft.Session(model([node], {"x": ("float32", ["n", "m", 3])}, out))
    rng = np.random.default_rng(3)
    for shape in ((4, 7, 3), (1, 1, 3), (0, 5, 3)):
        x = (rng.standard_normal(shape) * (rng.random(shape) > 0.6)).astype(np.float32)
        for data in (x, x * 0):
            np.testing.assert_array_equal(found.run({"x": data})[0].numpy(), np.array(data.nonzero()))


@pytest.mark.parametrize("ones", ["ConstantOfShape <value = int64[1] {2}> (s)", "Expand(two, s)"])
@pytest.mark.parametrize("mask", ["Identity(f)", "Not(e)", "Unsqueeze(f, zero)", "Sub(f, two)", "And(e, e)"])
def test_places_in_a_tensor_of_one_number_have_a_known_length(ones, mask):
    """``arange(n)`` as TorchScript's exporter writes it: the indices of `n` ones."""
    made = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (int64[k] y)
        <int64[1] two = {{2}}, int64[1] zero = {{0}}, int64[1] minus = {{-1}}, bool[4] some = {{1, 0, 0, 1}}> {{
        s = Shape(x) f = {ones} e = Equal(f, zero) m = {mask} p = NonZero(m) q = NonZero(some)
        r = Reshape(p, minus) t = Reshape(q, minus) y = Concat <axis = 0> (r, t) }}""")
    assert "tensor_to_shape" not in str(from_onnx(made))
    session, oracle = weft.Session(made), onnxruntime.InferenceSession(made.SerializeToString())
    for n in (4, 7):
        x = np.zeros(n, np.float32)
        np.testing.assert_array_equal(session.run({"x": x})[0].numpy(), oracle.run(None, {"x": x})[0])


@pytest.mark.parametrize("axis", [0, 1, None])
def test_compress(axis):
    attrs = {} if axis is None else {"axis": axis}
    node = helper.make_node("Compress", ["x", "c"], ["y"], **attrs)
    types = {"x": ("float32", ["n", "m"]), "c": ("bool", ["k"])}
    found = weft.Session(model([node], types, {"y": ("float32", ["p"] if axis is None else ["p", "q"])}))
    x, c = np.arange(35, dtype=np.float32).reshape(5, 7), np.array([False, True, True, False])
    np.testing.assert_array_equal(found.run({"x": x, "c": c})[0].numpy(), np.compress(c, x, axis))


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center):
    """Two images, three classes, limits as inputs; how many are left is known only afterwards."""
    rng = np.random.default_rng(8)
    node = helper.make_node("NonMaxSuppression", ["b", "s", "k", "o", "l"], ["y"], center_point_box=center)
    types = {
        "b": ("float32", ["i", "n", 4]),
        "s": ("float32", ["i", 3, "n"]),
        "k": ("int64", [1]),
        "o": ("float32", [1]),
        "l": ("float32", [1]),
    }
    graph = model([node], types, {"y": ("int64", ["found", 3])})
    found, oracle = weft.Session(graph), onnxruntime.InferenceSession(graph.SerializeToString())
    for images, n, least in ((2, 60, 0.3), (1, 1, 0.0), (1, 20, 2.0)):
        boxes = np.concatenate([rng.uniform(0, 60, (images, n, 2)), rng.uniform(5, 60, (images, n, 2))], 2)
        feeds = {
            "b": boxes.astype(np.float32),
            "s": rng.random((images, 3, n), np.float32),
            "k": np.array([9]),
            "o": np.array([0.4], np.float32),
            "l": np.array([least], np.float32),
        }
        np.testing.assert_array_equal(found.run(feeds)[0].numpy(), oracle.run(None, feeds)[0])


@pytest.mark.parametrize("share", [-0.1, 1.5, np.nan])
def test_an_overlap_that_is_no_share_is_refused(share):
    """As a constant while it is imported, as an input before anything is chosen; the session stays usable."""
    types = {"b": ("float32", [1, "n", 4]), "s": ("float32", [1, 1, "n"]), "k": ("int64", [1])}
    node = helper.make_node("NonMaxSuppression", ["b", "s", "k", "o"], ["y"])
    out = {"y": ("int64", ["found", 3])}
    feeds = {
        "b": np.array([[[0, 0, 1, 1], [0, 0, 1, 2]]], np.float32),
        "s": np.array([[[0.5, 0.4]]], np.float32),
        "k": np.array([9]),
        "o": np.array([share], np.float32),
    }
    session = weft.Session(model([node], {**types, "o": ("float32", [1])}, out))
    refuses(weft.WeftError, "iou_threshold outside of 0 to 1", session.run, feeds)
    assert session.run({**feeds, "o": np.array([0.4], np.float32)})[0].shape == (1, 3)
    graph = model([node], types, out)
    graph.graph.initializer.append(numpy_helper.from_array(feeds["o"], "o"))
    refuses(weft.WeftError, "iou_threshold is no share", weft.Session, graph)
