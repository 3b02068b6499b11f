"""Views of some of a tensor's bytes, and the files that modules are written to and read from."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft.runtime import Executable, Module, load_module, tensor
from weft.script import tir as T


@T.prim_func
def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    T.func_attr({"global_symbol": "add"})
    for i in range(8):
        B[i] = A[i] + T.float32(1)


def check(function):
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    function(x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_views():
    whole = tensor(np.arange(32, dtype="int32").reshape(8, 4))
    np.testing.assert_array_equal(whole._create_view([4, 4]).numpy(), np.arange(16).reshape(4, 4))
    half = whole._create_view([16], relative_byte_offset=64)
    np.testing.assert_array_equal(half._create_view([2, 4], relative_byte_offset=32).numpy().ravel(), np.arange(24, 32))
    np.testing.assert_array_equal(half._create_view([2], "int64").numpy().view("int32"), [16, 17, 18, 19])
    half.copyfrom(np.zeros(16))
    assert whole.numpy()[4:].sum() == 0
    with pytest.raises(ValueError, match="only contains 64 bytes, .* would occupy bytes 64 <= i_byte < 128"):
        half._create_view([16], relative_byte_offset=64)
    refuses(ValueError, "would occupy bytes -4", half._create_view, [1], relative_byte_offset=-4)
    refuses(ValueError, "cannot view", whole.reshape, 4, 4)


def test_dimensions_are_whole():
    assert weft.runtime.empty((2.0, np.float64(3))).shape == (2, 3)
    refuses(weft.error.InvalidArgument, "whole number", weft.runtime.empty, (2.5,))


@pytest.mark.parametrize("name", ["f.o", "f.ll", "f.bc", "f.so", "f.tar"])
def test_files(name, tmp_path):
    module, path = weft.build(add), tmp_path / name
    module.write_to_file(path) if name != "f.tar" else module.export_library(path)
    again = load_module(path)
    check(again)
    check(again["add"])
    check(again.add)
    refuses(AttributeError, "nor is it a function", getattr, again, "subtract")


def test_no_llvm(tmp_path):
    (tmp_path / "f.ll").write_text("this is nothing")
    refuses(weft.error.CodegenError, "no LLVM IR", load_module, tmp_path / "f.ll")


def test_a_linker_of_ones_own(tmp_path):
    seen = []

    def link(path, files, options=()):
        seen.extend([path, *files, *options])
        weft.support.cc.create_shared(path, [f for f in files if f.endswith(".o")])

    path = tmp_path / "f.so"
    assert weft.build(add).export_library(path, fcompile=link, addons=["more.a"], options=["-g"]) == str(path)
    assert seen[0] == str(path) and seen[-2:] == ["more.a", "-g"]
    check(load_module(path))


def test_a_folder_for_the_files(tmp_path):
    folder = tmp_path / "files"
    weft.build(add).export_library(tmp_path / "f.so", workspace_dir=folder)
    assert [p.suffix for p in folder.iterdir()] == [".o"]
    check(load_module(tmp_path / "f.so"))


def test_executable():
    module = weft.build(add)
    executable = Executable(module)
    assert executable.mod is module and executable.jit() is module
    again = executable.jit(force_recompile=True)
    assert again is not module and again == module and isinstance(again, Module)
    check(executable)
    check(executable["add"])
    assert isinstance(weft.compile(add), Executable) and weft.compile(add).get_source("ll")
    refuses(AttributeError, "", getattr, executable, "no_such")


def test_properties():
    module = weft.build(add)
    assert module.is_runnable and module.is_runnable() is True
    assert module.is_compilation_exportable() and not module.is_device_module
    assert module.format == "o" and "ll" in module.get_write_formats()
