import os
import subprocess
import sys

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from tests.runtime.programs import add_twice, kernel_module, kernel_object
from weft import error, runtime, te
from weft.runtime import link, load_module
from weft.support import cc


def rand(*shape):
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def check(module, factor=4):
    x = rand(5, 4)
    np.testing.assert_array_equal(module["main"](x).numpy(), x * factor)


def test_interface():
    mod = add_twice(2).mod
    assert mod.kind == mod.type_key == "weft.Executable"
    assert [m.kind for m in mod.imports] == ["weft.jit"]
    assert mod.implements_function("main")
    assert not mod.implements_function("add")
    assert mod.implements_function("add", query_imports=True)
    assert mod.function_names() == ["main"]
    assert isinstance(mod["main"], runtime.PackedFunc)
    assert isinstance(mod["main"], tvm_ffi.Function)
    x = rand(2, 4)
    np.testing.assert_array_equal(mod(x).numpy(), x * 4)
    assert mod.time_evaluator("main", runtime.cpu(), number=2, repeat=3)(x).min > 0
    refuses(AttributeError, "no function 'nope'", lambda: mod["nope"])
    refuses(error.InvalidArgument, "no function 'nope'", mod.get_function, "nope")


def test_entry_function_of_one_kernel():
    kernels = kernel_module()
    assert kernels.kind == "weft.jit"
    x, out = runtime.tensor(rand(3)), runtime.empty((3,))
    kernels(x, x, out)
    np.testing.assert_array_equal(out.numpy(), rand(3) * 2)


def test_jit_module_checks_lengths():
    refuses(ValueError, "as many names as addresses", runtime.jit_module, ["a", "b"], [1])


def test_export_and_load(tmp_path):
    path = add_twice(2).export_library(tmp_path / "model.so")
    mod = load_module(path)
    check(mod)
    check(runtime.VirtualMachine(mod, runtime.cpu()))
    assert [m.kind for m in mod.imports] == ["library"]
    del mod
    stock = tvm_ffi.load_module(path)
    x = rand(5, 4)
    np.testing.assert_array_equal(np.from_dlpack(stock["main"](x)), x * 4)
    again = load_module(path).export_library  # a loaded library has no object files
    refuses(error.ExecutableError, "cannot be put into a library", again, tmp_path / "again.so")


def test_export_kernels_only(tmp_path):
    path = kernel_module().export_library(str(tmp_path / "kernels.so"))
    mod = load_module(path)
    assert mod.kind == "library"
    x, out = runtime.tensor(rand(3)), runtime.empty((3,))
    mod["add"](x, x, out)
    np.testing.assert_array_equal(out.numpy(), rand(3) * 2)
    np.testing.assert_array_equal(x.numpy(), rand(3))
    tvm_ffi.load_module(path)["add"](x, x, out)


def test_host_tvm_writes_its_kind(tmp_path):
    path = add_twice(2).export_library(tmp_path / "model.so", host="tvm")
    assert b"relax.VMExecutable" in (tmp_path / "model.so").read_bytes()
    check(load_module(path))
    assert tvm_ffi.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable", allow_missing=True) is None
    refuses(error.InvalidArgument, "unknown host", add_twice(1).export_library, tmp_path / "m.so", host="other")


def test_function_outlives_module(tmp_path):
    f = load_module(add_twice(2).export_library(tmp_path / "model.so"))["main"]
    x = rand(5, 4)
    np.testing.assert_array_equal(f(x).numpy(), x * 4)


def test_container(tmp_path, monkeypatch):
    path = add_twice(2).export_library(tmp_path / "model.so", container=True)
    check(load_module(path))
    monkeypatch.setattr("weft.runtime.loading.placed_module", lambda objects, names: None)  # as on other platforms
    saved, link._object_loader[:] = list(link._object_loader), []
    try:
        refuses(error.ExecutableError, "just-in-time linker", load_module, path)
        objects = []

        def loader(found, names):
            assert names == ["add"]
            objects.extend(found)
            return kernel_module()

        runtime.register_object_loader(loader)
        check(load_module(path))
        assert objects == [kernel_object()]
        content = (tmp_path / "model.so").read_bytes()
        for n in [*range(8, len(content) - 96, 97), len(content) - 80, len(content) - 1]:
            (tmp_path / "cut.so").write_bytes(content[:n])
            refuses(error.ExecutableError, "cut short|damaged", load_module, tmp_path / "cut.so")
    finally:
        link._object_loader[:] = saved


def test_no_linker_falls_back_to_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_drivers", lambda cc, target: [])
    assert open(add_twice(2).export_library(tmp_path / "model.so"), "rb").read(8) == link.CONTAINER_MAGIC
    with pytest.raises(error.ExecutableError, match="no linker for riscv64-linux"):
        add_twice(2).export_library(tmp_path / "other.so", target="riscv64-linux")


def test_failed_linkers_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_drivers", lambda cc, target: [["false"], ["no-such-linker"]])
    with pytest.raises(error.ExecutableError, match=r"false: exit status 1(.|\n)*no-such-linker"):
        add_twice(2).export_library(tmp_path / "model.so")


def test_cc_variable_is_tried_first(monkeypatch):
    monkeypatch.setenv("CC", "my-cc -m64")
    assert link._drivers(None, None)[0] == ["my-cc", "-m64"]
    assert link._drivers("their-cc", None) == [["their-cc"]]


def test_load_errors(tmp_path):
    refuses(error.ExecutableError, "no such library", load_module, tmp_path / "none.so")
    (tmp_path / "bad.so").write_bytes(b"junk" * 100)
    refuses(error.ExecutableError, "cannot open the library", load_module, tmp_path / "bad.so")
    no_text = add_twice(1).export_library(tmp_path / "bad\udcff.so")
    refuses(error.ExecutableError, "not UTF-8", load_module, no_text)
    for place, found in ((tmp_path / "none" / "m.so", "no such directory"), (tmp_path, "no regular file")):
        refuses(error.InvalidArgument, found, add_twice(1).export_library, place)


def test_runtime_loads_no_compiler(tmp_path):
    path = add_twice(2).export_library(tmp_path / "model.so")
    code = (
        "import sys, numpy as np\nfrom weft import runtime\n"
        f"vm = runtime.VirtualMachine(runtime.load_module({path!r}), runtime.cpu())\n"
        "print(vm['main'](np.ones((2, 4), 'float32')).numpy().sum())\n"
        "assert not {'llvmlite', 'weft.ir', 'weft.tir'} & set(sys.modules)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert out.stdout.strip() == "32.0", out.stderr


def two_functions():
    functions = []
    for name, factor in (("twice", 2.0), ("thrice", 3.0)):
        a = te.placeholder((4,), name="A")
        b = te.compute((4,), lambda i, a=a, factor=factor: a[i] * factor, name="B")
        functions.append(te.create_prim_func([a, b]).with_attr("global_symbol", name))
    return weft.build(weft.IRModule({str(f.attrs["global_symbol"]): f for f in functions}), target="llvm")


def test_source_of_a_built_module(tmp_path):
    module = two_functions()
    assert "define" in module.get_source("ll") and module.get_source() == module.get_source("ll")
    assert "twice" in module.inspect_source("asm")
    module.save(tmp_path / "m.ll")
    assert (tmp_path / "m.ll").read_text() == module.get_source("ll")
    library = tmp_path / "m.so"
    module.export_library(library)
    refuses(error.InvalidArgument, "no source", load_module(library).get_source)


def test_object_file_of_several_functions(tmp_path):
    two_functions().save(tmp_path / "m.o")
    cc.create_shared(tmp_path / "m.so", tmp_path / "m.o")
    loaded = load_module(tmp_path / "m.so")
    for name, factor in (("twice", 2), ("thrice", 3)):
        out = np.zeros(4, np.float32)
        loaded[name](np.ones(4, np.float32), out)
        assert out.tolist() == [factor] * 4
