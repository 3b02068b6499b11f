"""The one key of compiled code: every ingredient counts, nothing else builds keys, and what has no name has no key."""

import ast
import importlib.metadata
import os
import sys
import threading
from pathlib import Path

import pytest

import weft
from weft import compile_key as module
from weft import ir, relax, runtime, te, tir, tune
from weft.compile_key import KERNEL_SOURCES, compile_key, ingredients
from weft.target import Target, compile_func

ROOT = Path(weft.__file__).parent
TARGET = Target("llvm")


def key(kind="internal", what=("f",), target=TARGET, answers=()):
    return compile_key(kind, what, target, answers)


def changed(name, value):
    return lambda m: (m.setattr(module, name, lambda *_: value), key())[1]


def within(**options):
    def made(_):
        with ir.PassContext(**options):
            return key()

    return made


def with_setting(name):
    return lambda m: (m.setenv(name, "1"), key())[1]


INGREDIENTS = {
    "kind": [lambda m: key(kind="hidden")],
    "what": [lambda m: key(what=("g",)), lambda m: key(what=("f", ""))],
    "target": [
        lambda m: key(target=Target("llvm -mattr=-avx2")),
        lambda m: key(target=Target("llvm -num-cores=3")),
        lambda m: key(target=Target("c")),
        lambda m: key(target=Target("llvm -vector-width=128")),
        lambda m: key(target=Target("llvm", host=Target("llvm -mcpu=haswell"))),
    ],
    "answers": [lambda m: key(answers=('{"tile": 3}',))],
    "context": [
        within(opt_level=3),
        within(required_pass=["Simplify"]),
        within(disabled_pass=["VectorizeLoop"]),
        within(config={"tir.disable_vectorize": True}),
        within(config={"tir.UnrollLoop": {"auto_max_step": 8}}),
    ],
    "datatypes": [lambda m: (m.setitem(tir.custom_datatype._CODES, "posit", 150), key())[1]],
    "sources": [changed("_sources", "other"), lambda m: key(kind="model")],
    "versions": [changed("_versions", ["llvmlite 0"])],
    "runtime": [changed("_runtime", "other")],
    "processor": [changed("_processor", "other")],
    "cores": [lambda m: (m.setattr(os, "sched_getaffinity", lambda _: set(range(99))), key())[1]],
    "environment": [with_setting("WEFT_MATRIX_TILES"), with_setting("WEFT_ANYTHING_NEW")],
}


def test_every_ingredient_is_listed():
    assert ingredients("internal", ["f"], TARGET).keys() == INGREDIENTS.keys()


@pytest.mark.parametrize("name", sorted(INGREDIENTS))
def test_another_ingredient_is_another_key(name, monkeypatch):
    for change in INGREDIENTS[name]:
        before = key()
        assert before is not None and before == key()
        with monkeypatch.context() as m:
            assert change(m) != before
        assert key() == before


@pytest.mark.parametrize(
    "bring",
    [
        lambda m: m.setitem(tir.custom_datatype._OPS, ("Add", "llvm", "posit", ""), lambda op: op),
        lambda m: m.setitem(ir.intrin_rules._RULES, ("llvm", "tir.sigmoid"), (10, lambda op: op)),
    ],
    ids=["lowering of a type", "rule of an intrinsic"],
)
def test_code_of_the_user_has_no_key(bring, monkeypatch):
    bring(monkeypatch)
    assert key() is None and not module.is_plain()


def test_passes_as_options_have_no_key():
    ir.register_config_option("test.opaque", object)
    for config in ({"tir.add_lower_pass": [(1, lambda f: f)]}, {"test.opaque": object()}):
        with ir.PassContext(config=config):
            assert key() is None


def calls(*names):
    """(file, name) of calls ``<x>.<name>(...)`` and ``<name>(...)`` in Weft's sources."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if not any(all(part in text for part in name.split(".")) for name in names):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                base = getattr(getattr(node.func, "value", None), "id", "")
                if name in names or f"{base}.{name}" in names:
                    yield str(path.relative_to(ROOT)), name


def test_nothing_else_uses_the_cache_or_builds_keys():
    uses = {file for file, _ in calls("cache.get", "cache.put", "default_cache", "new_entry", "store.open")}
    assert uses == {"relax/vm_build.py", "model_cache.py", "compile_key.py", "runtime/cache.py"}
    keyed = {"relax/vm_build.py", "model_cache.py", "compile_key.py"}
    assert {file for file, _ in calls("compile_key", "ingredients")} == keyed
    hashed = """compile_key.py ir/structural.py runtime/cache.py runtime/stored_model.py model_cache.py tune/database.py
        tune/hardware.py tune/tuned.py tir/schedule/rules/knobs.py relay/vm/constants.py runtime/seal.py
        runtime/tensor_cache.py auto_scheduler/compute_dag.py relax/vm/exec_builder.py rpc/websocket.py
        target/llvm/trial.py target/llvm/object.py"""  # the last: part of the names of functions that libraries share
    found = {file for file, _ in calls("blake2b", "sha256", "sha1", "md5", "sha512", "blake2s", "crc32")}
    assert found == {*hashed.split()}, "a new hash: is it a second key of compiled code?"


def add_one(n=64, name="x"):
    x = te.placeholder((n,), name=name)
    return te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1.0, name="y")])


def test_all_that_makes_a_kernel_is_hashed():
    """A kernel is made anew while each file of Weft's that runs is noted."""
    ran: set[str] = set()

    def note(frame, *_):
        ran.add(frame.f_code.co_filename)

    func, records = add_one(77), tune.Tuned(None, TARGET)
    sys.setprofile(note)
    try:
        compile_func(relax.schedule_kernel(func, "k", TARGET, records), TARGET)
    finally:
        sys.setprofile(None)
    files = {str(Path(f).relative_to(ROOT)) for f in ran if f.startswith(str(ROOT))}
    hashed = {str(Path(f).relative_to(ROOT)) for f in module._python_files([ROOT / p for p in KERNEL_SOURCES])}
    assert files - hashed <= {"error.py"} | {f for f in files if f.startswith(("ffi/", "runtime/"))}
    assert len(files & hashed) > 20


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "c"))
    return lambda: runtime.cache.statistics().writes


def test_the_hash_of_sources_is_kept_until_a_file_changes(own_cache, monkeypatch, tmp_path):
    source = tmp_path / "weft" / "a.py"
    source.parent.mkdir()
    monkeypatch.setattr(module, "__file__", str(source.parent / "compile_key.py"))
    seen = []
    for text, settled in (("x = 1", 0), ("x = 1", 0), ("x = 2", 0), ("x = 3", 10**18)):
        if not source.exists() or source.read_text() != text:
            times = source.stat() if source.exists() else None
            source.write_text(text)
            if times is not None:
                os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if it had not been written
        monkeypatch.setattr(module, "SETTLED_NS", settled)
        module._sources.cache_clear()
        seen.append((module._sources(()), own_cache()))
    module._sources.cache_clear()
    assert len({found for found, _ in seen}) == 3 and seen[0] == seen[1]
    assert [writes for _, writes in seen] == [1, 1, 2, 2]  # of a file that was just changed nothing is kept


def test_another_configuration_takes_other_code(own_cache):
    func = ir.IRModule({"f": add_one()})
    relax.compile_kernels(func, TARGET)
    assert own_cache() == 1
    with ir.PassContext(disabled_pass=["VectorizeLoop"]):
        relax.compile_kernels(func, TARGET)
        assert own_cache() == 2
        relax.compile_kernels(func, TARGET)
    relax.compile_kernels(func, TARGET)
    assert own_cache() == 2 and runtime.cache.statistics().hits == 2
    relax.compile_kernels(ir.IRModule({"f": add_one(name="another_name")}), TARGET)  # messages say it
    assert own_cache() == 3


def test_a_context_is_of_its_thread():
    seen = []
    with ir.PassContext(opt_level=3, disabled_pass=["A"]):
        thread = threading.Thread(target=lambda: seen.append(ir.PassContext.current().opt_level))
        thread.start()
        thread.join()
        with ir.DeepPool(2) as pool:
            seen += pool.map(lambda _: ir.PassContext.current().opt_level, range(2))
    assert seen == [2, 3, 3]


def test_hot_kernels_are_made_as_their_model_was(own_cache, monkeypatch):
    """They are made later, by a thread where the context of the model is not."""
    from tests import onnx_models

    with ir.PassContext(disabled_pass=["VectorizeLoop"]):
        made = weft.relax.build(weft.frontend.onnx.from_onnx(onnx_models.add()))
    seen = []
    monkeypatch.setattr(
        relax.vm_build, "_compile_objects", lambda *_: (seen.append(ir.PassContext.current()), ([], [], {}))[1]
    )
    kernel = next(iter(made.recompilable.values()))
    with pytest.raises(weft.error.InternalError):
        kernel.compile([5] * len(kernel.places))
    assert seen[0].disabled_pass == {"VectorizeLoop"}


@pytest.mark.parametrize("listed", [True, False])
def test_versions_are_of_what_is_installed(listed, monkeypatch):
    """Also of packages that no folder on the path tells of."""
    if not listed:
        monkeypatch.setattr(module.os, "listdir", lambda place: [])
    found = module._versions.__wrapped__()
    for name in ("llvmlite", "numpy", "ml_dtypes", "apache_tvm_ffi"):
        assert any(v.startswith(name) and importlib.metadata.version(name) in v for v in found), found
