"""Elements chosen by data: as many as there are, known only at run time."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft


def session(nodes, inputs, output):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value(n, t, s) for n, t, s in inputs], [value(*output)])
    return weft.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_nonzero():
    found = session([helper.make_node("NonZero", ["x"], ["y"])], [("x", TensorProto.FLOAT, ["n", "m", 3])],
                    ("y", TensorProto.INT64, [3, "count"]))  # fmt: skip
    rng = np.random.default_rng(3)
    for shape in ((4, 7, 3), (1, 1, 3), (0, 5, 3)):
        x = (rng.standard_normal(shape) * (rng.random(shape) > 0.6)).astype(np.float32)
        for data in (x, x * 0):
            np.testing.assert_array_equal(found.run({"x": data})[0].numpy(), np.array(data.nonzero()))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_compress(axis):
    attrs = {} if axis is None else {"axis": axis}
    node = helper.make_node("Compress", ["x", "c"], ["y"], **attrs)
    types = [("x", TensorProto.FLOAT, ["n", "m"]), ("c", TensorProto.BOOL, ["k"])]
    found = session([node], types, ("y", TensorProto.FLOAT, ["p"] if axis is None else ["p", "q"]))
    x, c = np.arange(35, dtype=np.float32).reshape(5, 7), np.array([False, True, True, False])
    np.testing.assert_array_equal(found.run({"x": x, "c": c})[0].numpy(), np.compress(c, x, axis))
