"""Damaged files, models that cannot be, a disk that is full: a clear error each, and a process that goes on."""

import errno
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.refusals import flipped, refusals, refuses
from weft.error import ExecutableError, ModelImportError, UnsupportedOperator

SPEC = {"x": ("float32", ("n", 8))}


@pytest.fixture
def healthy():
    """After each test, a model still compiles and runs."""
    yield
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(weft.Session(onnx_models.add()).run({"x": x, "y": x})[0].numpy(), x + x)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "model.so"
    weft.Session(onnx_models.linear()[0]).executable.export_library(path)
    return path


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_model_cut_short(tmp_path, healthy, kept):
    data = onnx_models.linear()[0].SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * kept)])
    assert str(refuses(ModelImportError, "", weft.Session, path))


def test_model_with_flipped_bytes(healthy):
    """Whatever a flipped byte makes of a model, the answer is an error of ours or a model."""
    damaged = flipped(onnx_models.linear()[0].SerializeToString(), 60)
    assert refusals(weft.WeftError, weft.frontend.onnx.from_onnx, damaged)


def test_model_that_is_something_else(tmp_path, healthy):
    path = tmp_path / "readme.onnx"
    path.write_text("# This is a text, not a network\n" * 20)
    refuses(ModelImportError, r"readme\.onnx", weft.Session, path)
    refuses(ModelImportError, r"nowhere\.onnx", weft.Session, tmp_path / "nowhere.onnx")
    refuses(ModelImportError, "expected an onnx.ModelProto, bytes or a path, found int", weft.Session, 17)


def test_missing_operators_are_listed_together(healthy):
    nodes = [helper.make_node(f"Missing{i}", ["x"], [f"t{i}"], name=f"/block/{i}") for i in range(3)]
    nodes.append(helper.make_node("Relu", ["t0"], ["y"]))
    caught = refuses(UnsupportedOperator, "", weft.Session, onnx_models.model(nodes, SPEC, {"y": SPEC["x"]}))
    for i in range(3):
        assert f"Missing{i}" in str(caught)
        assert f"/block/{i}" in str(caught)


@pytest.mark.parametrize("opset", [0, 9999])
def test_opset_that_is_not_there(healthy, opset):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    refuses(ModelImportError, str(opset), weft.Session, onnx_models.model(nodes, SPEC, {"y": SPEC["x"]}, opset=opset))


MALFORMED = {
    "undefined input": ([helper.make_node("Add", ["x", "ghost"], ["y"], name="/sum")], "ghost"),
    "two definitions": ([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])], "y"),
    "a cycle": ([helper.make_node("Add", ["x", "y"], ["t"]), helper.make_node("Relu", ["t"], ["y"])], "[yt]"),
    "wrong attribute": ([helper.make_node("Softmax", ["x"], ["y"], axis="last", name="/soft")], "/soft"),
    "unknown attribute": ([helper.make_node("Relu", ["x"], ["y"], sharpness=2, name="/relu")], "sharpness"),
    "too few inputs": ([helper.make_node("Add", ["x"], ["y"], name="/sum")], "/sum"),
    "shapes that cannot be": (
        [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 2]), helper.make_node("Relu", ["t"], ["y"])],
        "Transpose",
    ),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_graph(healthy, kind):
    nodes, name = MALFORMED[kind]
    refuses(weft.WeftError, name, weft.Session, onnx_models.model(nodes, SPEC, {"y": SPEC["x"]}))


def test_weight_without_its_data(healthy):
    proto = onnx_models.linear()[0]
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    refuses(ModelImportError, r"'w' has too little data", weft.Session, proto)


def test_external_data_outside_the_folder(tmp_path, healthy):
    proto = onnx_models.linear()[0]
    (tmp_path / "secret").write_bytes(bytes(1000))
    folder = tmp_path / "model"
    folder.mkdir()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../secret"
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    refuses(ModelImportError, "must lie in the model's folder", weft.Session, folder / "m.onnx")


@pytest.mark.parametrize("kept", [0, 3, 50, 0.1, 0.5, 0.9, 0.999])
def test_library_cut_short(tmp_path, library, kept):
    """In a process of its own, because the danger is a crash."""
    data = library.read_bytes()
    path = tmp_path / "cut.so"
    path.write_bytes(data[: kept if isinstance(kept, int) else int(len(data) * kept)])
    program = """
import sys, weft
try:
    weft.Session(sys.argv[1])
except weft.WeftError as e:
    print(type(e).__name__, e)
"""
    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("ExecutableError")
    assert "offset" in run.stdout or "cut.so" in run.stdout


def test_executable_cut_short(healthy):
    executable = weft.Session(onnx_models.linear()[0]).executable
    data = executable.bytes
    for kept in (0, 7, 20, len(data) // 3, len(data) - 1):
        caught = refuses(ExecutableError, "", weft.runtime.VMExecutable.from_bytes, data[:kept], executable.imports)
        assert "offset" in str(caught)


def test_disk_is_full(tmp_path, monkeypatch, healthy):
    """A cache that cannot be written is one warning; the model compiles and runs."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = weft.Session(onnx_models.linear(3)[0])
    messages = [str(w.message) for w in caught if "cache" in str(w.message)]
    assert len(messages) == 1
    assert "No space left" in messages[0]
    assert session.run({"x": np.ones((1, 8), np.float32)})[0].shape == (1, 5)


def test_cache_entries_of_every_damage(tmp_path, monkeypatch, healthy):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    proto, w, b = onnx_models.linear(4)
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    for damage in (lambda d: b"", lambda d: d[:10], lambda d: d[:-1], lambda d: d + b"x", lambda d: d[:-1] + b"\x00"):
        weft.Session(proto)
        for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
            path.write_bytes(damage(path.read_bytes()))
        y = weft.Session(proto).run({"x": x})[0].numpy()
        np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)


def test_export_into_nowhere(tmp_path, healthy):
    executable = weft.Session(onnx_models.linear()[0]).executable
    refuses((weft.WeftError, OSError), "", executable.export_library, tmp_path / "no" / "such" / "folder" / "m.so")
