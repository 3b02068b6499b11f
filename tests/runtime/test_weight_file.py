"""Constants in files while a model is compiled: same values, nothing held, and no file left."""

import mmap
import os

import ml_dtypes
import numpy as np
import pytest

import weft
from tests import onnx_models
from weft.runtime import map_file, weight_file, weights_in_files
from weft.runtime.stored_model import read_model, write_model

_DTYPES = (np.float32, np.int8, np.float64, ml_dtypes.bfloat16)


def resident_kb() -> int:
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith(("RssAnon", "RssFile", "RssShmem")))


@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_constant_keeps_its_values(tmp_path, dtype):
    values = np.random.default_rng(0).integers(-100, 100, (1033, 1029)).astype(dtype)
    with weights_in_files(tmp_path):
        made = weft.ir.constant(values)
        transposed = weft.ir.constant(values.T)
        weight_file.release()
        assert made.data.handle.__dlpack_device__()[0] == 1
        np.testing.assert_array_equal(made.data.numpy(), values)
        np.testing.assert_array_equal(transposed.data.numpy(), values.T)
        assert made.data.numpy().ctypes.data % mmap.PAGESIZE == 0
    np.testing.assert_array_equal(made.data.numpy(), values)  # it lives on
    assert list(tmp_path.iterdir()) == []


def test_what_is_mapped_is_not_held(tmp_path):
    with weights_in_files(tmp_path):
        made = [weft.ir.constant(np.full((4 << 20,), i, np.float32)) for i in range(8)]
        assert sum(float(c.data.numpy().sum()) for c in made) == 28 * (4 << 20)
        before = resident_kb()
        weight_file.release()
        assert resident_kb() < before - (100 << 10)  # of 128 MiB
        assert made[3].data.numpy()[12345] == 3


def test_small_ones_and_those_outside_stay_where_they_are(tmp_path):
    large, small = np.zeros(1 << 20, np.float32), np.zeros(10, np.float32)
    assert weight_file.stored(large) is large
    with weights_in_files(tmp_path):
        assert weight_file.stored(small) is small
        kept = weight_file.stored(large)
        assert kept is not large and weight_file.stored(kept) is kept
        off_the_line = kept.view(np.uint8)[4:-60].view(np.float32)
        assert weight_file.stored(off_the_line) is off_the_line
        assert weight_file.stored(off_the_line, 64) is not off_the_line
    assert map_file(tmp_path / "absent") is None


def test_a_full_disk_leaves_constants_in_memory(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    values = np.ones((1 << 20,), np.float32)
    with weights_in_files(tmp_path):
        assert weight_file.stored(values) is values
    with weights_in_files(tmp_path / "no such folder"):
        assert weight_file.stored(values) is values


def test_a_model_is_compiled_to_the_same_bytes(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((611, 517), np.float32), "t": rng.standard_normal((5000, 517), np.float32)}
    nodes = onnx_models.onnx_nodes("x = Gather(t, i); y = MatMul(x, wt); wt = Transpose <perm = [1, 0]> (w)")
    nodes = [nodes[0], nodes[2], nodes[1]]
    made = onnx_models.model(nodes, {"i": ("int64", (9,))}, {"y": ("float32", (9, 611))}, weights)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())

    def compiled(name: str) -> bytes:
        write_model(tmp_path / name, weft.relax.build(weft.frontend.onnx.from_onnx(path)), None)
        return (tmp_path / name).read_bytes()

    plain = compiled("plain")
    with weights_in_files(tmp_path):
        assert compiled("in_files") == plain
    found = read_model(tmp_path / "in_files")
    assert found is not None
    i = rng.integers(0, 5000, 9)
    result = weft.Session(found.executable).run({"i": i})[0].numpy()
    np.testing.assert_allclose(result, weights["t"][i] @ weights["w"].T, rtol=1e-4, atol=1e-3)
