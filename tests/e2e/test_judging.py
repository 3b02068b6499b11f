"""What the benchmarks take for the same output: a softmax that is near 1 somewhere hides a wrong network."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.models import _differences
from benchmarks.peer import largest_difference, logits, softmax_outputs
from tests.onnx_models import onnx_nodes


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def test_a_wrong_network_before_a_softmax_is_seen(tmp_path):
    before = np.random.default_rng(0).standard_normal((1, 1000)) * 2
    before[0, 7] = 40
    wrong = before.copy()
    wrong[0, 8:] *= 1.2
    assert largest_difference([softmax(wrong)], [softmax(before)]) < 1e-3
    for name, value in (("onnxruntime", before), ("weft", before + 1e-6), ("openvino", wrong)):
        np.savez(tmp_path / f"{name}.npz", softmax(value))
    found = _differences(tmp_path, ["onnxruntime", "weft", "openvino"], [True])
    assert found["weft"] < 1e-5 and found["openvino"] > 1e-2


def test_numbers_that_float32_has_no_room_for_are_alike():
    assert largest_difference([logits(np.float32([[1, 0, 1e-42]]))], [logits(np.float32([[1, 1e-40, 0]]))]) == 0
    assert np.isnan(logits(np.float32([np.nan]))).all()


def test_outputs_of_a_softmax_are_found_behind_reshapes(tmp_path):
    nodes = onnx_nodes("p = Softmax(x); flat = Flatten(p); r = Relu(x); sum = Add(p, r)")
    io = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "p", "flat", "r", "sum")}
    graph = helper.make_graph(nodes, "g", [io["x"]], [io[n] for n in ("flat", "r", "p", "sum")])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert softmax_outputs(tmp_path / "m.onnx") == [True, False, True, False]
