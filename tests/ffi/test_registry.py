import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import error, ffi, runtime


@pytest.fixture
def name():
    yield "weft.test.function"
    if tvm_ffi.get_global_func("weft.test.function", allow_missing=True) is not None:
        ffi.remove_global_func("weft.test.function")


def test_register_and_call(name):
    @ffi.register_func(name)
    def add(a, b):
        return a + b

    assert add(1, 2) == 3
    found = ffi.get_global_func(name)
    assert found(3, 4) == 7
    assert found("a", "b") == "ab"
    assert isinstance(found, ffi.PackedFunc)
    assert isinstance(found, tvm_ffi.Function)
    assert name in ffi.list_global_func_names()
    assert weft.get_global_func(name)(1, 1) == 2


def test_names_are_taken_once(name):
    ffi.register_global_func(name, lambda: 1)
    refuses(error.InvalidArgument, "already registered", ffi.register_global_func, name, lambda: 2)
    ffi.register_global_func(name, lambda: 2, override=True)
    assert ffi.get_global_func(name)() == 2
    ffi.remove_global_func(name)
    assert ffi.get_global_func(name, allow_missing=True) is None
    refuses(error.InvalidArgument, "no global function", ffi.get_global_func, name)


def test_tensors_cross_as_our_class(name):
    @ffi.register_func(name)
    def double(x, *rest):
        assert isinstance(x, runtime.Tensor)
        return x.numpy() * 2

    x = np.arange(4, dtype="float32")
    out = ffi.get_global_func(name)(x)
    assert isinstance(out, runtime.Tensor)
    np.testing.assert_array_equal(out.numpy(), x * 2)


def test_unknown_objects_come_back_themselves(name):
    thing = object()
    ffi.register_func(name, lambda x: x)
    assert ffi.get_global_func(name)(thing) is thing


def test_python_errors_keep_their_class(name):
    def fail(i):
        raise kinds[i]("gone")

    ffi.register_func(name, fail)
    for i, kind in enumerate(kinds := (KeyError, FileNotFoundError, StopIteration, KeyboardInterrupt, SystemExit)):
        refuses(kind, "gone", ffi.get_global_func(name), i)


def test_callbacks_as_arguments(name):
    ffi.register_func(name, lambda f, x: f(x) + 1)
    assert ffi.get_global_func(name)(lambda x: x * 10, 4) == 41


def test_convert():
    assert ffi.convert(10) == 10
    assert type(ffi.convert(10)) is int
    assert ffi.convert("x") == "x"
    f = ffi.convert(lambda a: a * 2)
    assert isinstance(f, ffi.PackedFunc)
    assert f(4) == 8
    assert ffi.convert(f) is f
    assert list(ffi.convert([1, 2])) == [1, 2]


def test_builtins():
    assert tuple(ffi.builtin("shape_of")(np.zeros((2, 3)))) == (2, 3)
    assert ffi.builtin("vm.builtin.copy")(5) == 5
    assert tvm_ffi.get_global_func("vm.builtin.copy", allow_missing=True) is None
    refuses(error.InvalidArgument, r"no builtin 'nope'(.|\n)*alloc_storage", ffi.builtin, "nope")


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_RUNTIME_LIBRARY", str(tmp_path / "none.so"))
    refuses(error.InternalError, r"was not found(.|\n)*cmake", ffi.find_library)


def test_import_is_light():
    import subprocess
    import sys

    code = "import sys, weft; print([m for m in ('tvm_ffi', 'llvmlite', 'numpy') if m in sys.modules])"
    import os

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout.strip() == "[]"
