"""A library compiled outside of the runtime adds functions, types of objects and a device, as Python sees them."""

import ctypes
import gc
import shutil
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.runtime.programs import HERE, include_flags
from weft import error, ffi, ir, runtime

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("extension") / "extension.so"
    subprocess.run(
        ["c++", "-std=c++17", "-O0", "-shared", "-fPIC", str(HERE / "extension.cc"), *include_flags(), "-o", str(path)],
        check=True,
    )
    ctypes.CDLL(str(path))
    return path


@pytest.fixture
def point():
    make = ffi.get_global_func("extension.point")
    inner = make(4, -0.5, "b", [])
    return make(3, 1.5, "a", [inner, "two", inner])


def test_objects_are_read_and_printed(point):
    assert (point.x, point.weight, point.name, len(point.children)) == (3, 1.5, "a", 3)
    assert point.children[0].name == "b"
    assert str(point).startswith('extension.Point(x=3, weight=1.5, name="a", children=(extension.Point(x=4,')
    refuses(AttributeError, "", setattr, point, "x", 4)
    refuses(AttributeError, "", getattr, point, "color")


def test_objects_are_saved(point, library):
    back = ir.load_json(ir.save_json({"point": point, "again": (point, ir.Var("n"))}))
    assert str(back["point"]) == str(point)
    assert back["again"][0].same_as(back["point"]), "sharing is kept"
    assert back["point"].children[0].same_as(back["point"].children[2])
    # A process that has not loaded the library says what it lacks.
    program = f"from weft.ir import load_json\nload_json({ir.save_json(point)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "load the library that has its type" in done.stderr


def test_objects_travel_inside_nodes(point):
    assert ir.load_json(ir.save_json(ir.Attrs.of(where=point)))["where"].children[1] == "two"


def test_a_field_that_cannot_be_saved_is_said(point):
    made = ffi.get_global_func("extension.point")(1, 2.0, "f", [ffi.get_global_func("extension.live")])
    refuses(error.InvalidArgument, "cannot be written as JSON", ir.save_json, made)


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7)])
def test_tensors_on_a_device(shape):
    before = ffi.get_global_func("extension.live")()
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    on_device = runtime.tensor(x, weft.device("ext_dev", 1))
    assert str(on_device.device) == "ext_dev:1" and on_device.device.exist
    ffi.get_global_func("extension.double_on_device")(on_device)
    on_device.device.sync()
    np.testing.assert_array_equal(on_device.numpy(), 2 * x)
    there = runtime.empty(shape, "float32", weft.device("ext_dev"))
    there.copyfrom(on_device)
    np.testing.assert_array_equal(there.copyto(weft.cpu()).numpy(), 2 * x)
    assert ffi.get_global_func("extension.live")() == before + 2
    del on_device, there
    gc.collect()
    assert ffi.get_global_func("extension.live")() == before


def test_errors_of_a_device():
    assert not weft.device("ext_dev", 2).exist and not weft.device("maia").exist
    refuses(MemoryError, "ext_dev:0 has 1 MiB", runtime.empty, (1 << 20,), "float32", weft.device("ext_dev"))
    refuses(ValueError, "cannot allocate on device type 17", runtime.empty, (1,), "float32", weft.device("maia"))
    with pytest.raises(ValueError, match="expected a tensor on ext_dev"):
        ffi.get_global_func("extension.double_on_device")(runtime.tensor(np.zeros(3, "float32")))
