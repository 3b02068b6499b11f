"""Weights that stay in the model's bytes: the same tensors come out, and damaged files give the same errors as ever."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models
from weft.error import ModelImportError
from weft.frontend.onnx.model import load_model
from weft.frontend.onnx.wire import OWN_FILE, without_weights

RNG = np.random.default_rng(0)
WEIGHTS = {
    "large": RNG.standard_normal((40, 30)).astype(np.float32),
    "small": RNG.standard_normal(3).astype(np.float32),
    "bytes": RNG.integers(-128, 128, (64, 64), np.int8),
    "empty": np.zeros((0, 4), np.float32),
}


def model() -> onnx.ModelProto:
    x, y = ("float32", [None, 40]), ("float32", [None, 30])
    return onnx_models.model([helper.make_node("MatMul", ["x", "large"], ["y"])], {"x": x}, {"y": y}, WEIGHTS)


def test_tensors_are_the_same():
    data = model().SerializeToString()
    assert len(without_weights(data)) < len(data) - WEIGHTS["large"].nbytes
    proto, reader = load_model(data)
    for tensor in proto.graph.initializer:
        found = reader.read(tensor)
        np.testing.assert_array_equal(found, WEIGHTS[tensor.name])
        assert found.dtype == WEIGHTS[tensor.name].dtype
    kept = {t.name for t in proto.graph.initializer if t.HasField("raw_data")}
    assert kept == {"small", "empty"}  # not worth leaving out


def test_the_rest_is_untouched():
    whole, cut = model(), onnx.ModelProto()
    cut.ParseFromString(without_weights(whole.SerializeToString()))
    for tensor in cut.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(WEIGHTS[tensor.name], tensor.name))
    assert cut == whole


@pytest.mark.parametrize("seed", range(60))
def test_damaged_bytes_never_crash(seed):
    rng = np.random.default_rng(seed)
    data = bytearray(model().SerializeToString())
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(min(200, len(data))))] = int(rng.integers(256))
    if seed % 3 == 0:
        del data[int(rng.integers(len(data))) :]
    try:
        proto, reader = load_model(bytes(data))
        for tensor in proto.graph.initializer:
            reader.read(tensor)
    except ModelImportError as e:
        assert str(e)


def test_places_past_the_end_are_refused():
    made = model()
    data = made.SerializeToString()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    place = (("location", OWN_FILE), ("offset", str(len(data) - 100)), ("length", str(WEIGHTS["large"].nbytes)))
    for key, value in place:
        tensor.external_data.add(key=key, value=value)
    proto, reader = load_model(made.SerializeToString())
    with pytest.raises(ModelImportError, match="not all inside of the file"):
        reader.read(proto.graph.initializer[0])
