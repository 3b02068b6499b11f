"""One test a promise of the README, all within seconds."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.refusals import refuses


@pytest.fixture(scope="module")
def model():
    return onnx_models.linear()


@pytest.fixture(scope="module")
def session(model):
    return weft.Session(model[0])


def expected(model, x):
    return np.maximum(x @ model[1] + model[2], 0)


def python(program: str, *arguments: str) -> str:
    """What a program prints in a new process."""
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_compiled_once_for_every_shape(session, model):
    for rows in (1, 7, 0, 64, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected(model, x), rtol=1e-4, atol=1e-5)


def test_importer_compiler_and_machine(model, tmp_path):
    ex = weft.compile(weft.relax.frontend.onnx.from_onnx(model[0]), target="llvm")
    vm = weft.relax.VirtualMachine(ex, weft.cpu())
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    np.testing.assert_allclose(vm["main"](x).numpy(), expected(model, x), rtol=1e-4, atol=1e-5)
    ex.export_library(tmp_path / "model.so")
    vm = weft.relax.VirtualMachine(weft.runtime.load_module(tmp_path / "model.so"), weft.cpu())
    np.testing.assert_allclose(vm["main"](x).numpy(), expected(model, x), rtol=1e-4, atol=1e-5)


def test_arrays_go_in_as_they_are_or_copied(session, model):
    x = np.random.default_rng(0).standard_normal((8, 6), np.float32).T
    assert not x.flags.c_contiguous
    np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected(model, x), rtol=1e-4, atol=1e-5)
    x.flags.writeable = False
    np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected(model, x), rtol=1e-4, atol=1e-5)


def test_outputs_are_fresh(session):
    x = np.ones((2, 8), np.float32)
    first = session.run({"x": x})[0]
    kept = first.numpy().copy()
    session.run({"x": -3 * x})
    np.testing.assert_array_equal(np.from_dlpack(first), kept)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing: x"),
        ({"x": np.ones((2, 8)), "z": 1}, "unknown: z"),
        ({"x": np.ones((2, 8))}, "expected float32, found float64"),
        ({"x": np.ones(8, np.float32)}, "expected 2 dimensions"),
        ({"x": np.ones((2, 9), np.float32)}, "expected 8"),
    ],
)
def test_wrong_inputs_are_refused_by_name(session, feeds, message):
    assert "x" in str(refuses(weft.WeftError, message, session.run, feeds))
    assert session.run({"x": np.ones((1, 8), np.float32)})[0].shape == (1, 5)


def test_inputs_that_disagree_are_refused():
    add = weft.Session(onnx_models.add())
    with pytest.raises(weft.WeftError, match="dimension 'n'"):
        add.run({"x": np.ones((2, 4), np.float32), "y": np.ones((3, 4), np.float32)})


def test_missing_operators_come_in_one_message():
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="/first", domain="ai.example"),
        helper.make_node("NoSuchOperator", ["a"], ["y"], name="/second"),
    ]
    proto = onnx_models.model(nodes, {"x": ("float32", (2,))}, {"y": ("float32", (2,))})
    proto.opset_import.append(helper.make_opsetid("ai.example", 1))
    caught = refuses(weft.WeftError, "", weft.Session, proto)
    for part in ("Frobnicate", "/first", "NoSuchOperator", "/second"):
        assert part in str(caught)


def test_exported_library_needs_no_compiler(session, model, tmp_path):
    library = tmp_path / "model.so"
    session.executable.export_library(library)
    x = np.random.default_rng(2).standard_normal((4, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    program = """
import sys, numpy as np, weft
y = weft.Session(sys.argv[1]).run({"x": np.load(sys.argv[2])})[0].numpy()
np.save(sys.argv[3], y)
print([m for m in ("llvmlite", "onnx", "weft.relax", "weft.tir") if m in sys.modules])
"""
    assert python(program, str(library), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")) == "[]"
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(model, x), rtol=1e-4, atol=1e-5)


def test_damaged_cache_entries_are_compiled_again(model, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(3).standard_normal((3, 8), np.float32)
    weft.Session(model[0])
    entries = [*tmp_path.glob("??/*")]
    assert entries
    for path in entries:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        path.write_bytes(data)
    y = weft.Session(model[0]).run({"x": x})[0].numpy()
    np.testing.assert_allclose(y, expected(model, x), rtol=1e-4, atol=1e-5)
    assert weft.runtime.cache.statistics().damaged == len(entries)


def test_import_loads_no_compiler():
    program = (
        "import weft, sys; print([m for m in ('llvmlite', 'numpy', 'onnx', 'torch', 'weft.ir') if m in sys.modules])"
    )
    assert python(program) == "[]"


def test_a_session_imports_what_it_needs():
    program = """
import sys
before = set(sys.modules)
import weft
weft.Session
late = {"tvm_ffi.cpp", "importlib.metadata", "importlib.resources", "concurrent.futures", "tempfile", "torch"}
print(sorted(late & (set(sys.modules) - before)))
import importlib.metadata, numpy, tvm_ffi
installed = importlib.metadata
print(installed.version("numpy") == numpy.__version__, installed.distribution("apache-tvm-ffi").files is not None)
print(callable(tvm_ffi.cpp.load_inline), tvm_ffi.cpp is sys.modules["tvm_ffi.cpp"])
print(tvm_ffi.libinfo.im.distribution("numpy").version == numpy.__version__)
"""
    assert python(program).split("\n") == ["[]", "True True", "True True", "True"]


def test_public_names_are_those_of_tvm():
    import weft as tvm

    a = tvm.te.placeholder((7,), name="a")
    b = tvm.te.compute((7,), lambda i: a[i] + 1.0, name="b")
    add_one = tvm.build(tvm.te.create_schedule(b.op), [a, b], target="llvm")
    x, y = tvm.runtime.tensor(np.arange(7, dtype="float32")), tvm.runtime.empty((7,))
    add_one(x, y)
    np.testing.assert_array_equal(y.numpy(), np.arange(7) + 1)
