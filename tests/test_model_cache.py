"""Compiled models in the disk cache: what finds them, what does not, and what happens to damaged ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.refusals import refuses
from weft import error, model_cache, relax, target


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_MODEL_CACHE", "1")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))


def write_model(path: Path, factor: float = 2.0, *, external: bool = False) -> Path:
    """x @ w + x * factor, with symbolic rows."""
    w = (np.arange(64 * 64, dtype="float32").reshape(64, 64) % 7) - 3
    nodes = onnx_models.onnx_nodes("p = MatMul(x, w); q = Mul(x, f); y = Add(p, q)")
    rows = ("float32", ("rows", 64))
    model = onnx_models.model(nodes, {"x": rows}, {"y": rows}, {"w": w, "f": np.float32(factor)})
    onnx.save(model, str(path), save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


def write_softmax(path: Path) -> Path:
    """A kernel of symbolic shape, which is worth compiling for a shape."""
    matrix = ("float32", ("rows", "columns"))
    onnx.save(onnx_models.model([helper.make_node("Softmax", ["x"], ["y"])], {"x": matrix}, {"y": matrix}), str(path))
    return path


def expected(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    w = (np.arange(64 * 64, dtype="float32").reshape(64, 64) % 7) - 3
    return x @ w + x * np.float32(factor)


def run(session: weft.Session, factor: float = 2.0) -> None:
    for rows in (1, 5, 18):
        x = np.random.default_rng(rows).standard_normal((rows, 64), np.float32)
        np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected(x, factor), rtol=1e-4, atol=1e-4)


def entries(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.read_bytes().startswith(b"WEFTM")]


class NoCompiler:
    """In its presence nothing may be imported from ONNX or compiled."""

    def __init__(self, monkeypatch):
        def fail(*_args, **_kwargs):
            raise AssertionError("the compiler was asked")

        monkeypatch.setattr("weft.frontend.onnx.from_onnx", fail)
        monkeypatch.setattr("weft.relax.build", fail)


def test_the_second_session_is_read(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.onnx")
    run(weft.Session(path))
    assert len(entries(tmp_path)) == 1
    NoCompiler(monkeypatch)
    session = weft.Session(path)
    run(session)
    assert [i.name for i in session.inputs] == ["x"] and session.inputs[0].shape == ("rows", 64)


def test_the_content_of_the_file_counts_not_its_name(tmp_path, monkeypatch):
    run(weft.Session(write_model(tmp_path / "m.onnx")))
    run(weft.Session(write_model(tmp_path / "m.onnx", 5.0)), 5.0)
    copy = write_model(tmp_path / "copy.onnx")
    NoCompiler(monkeypatch)
    run(weft.Session(copy))


@pytest.mark.parametrize(
    "options",
    [
        {"shape_dict": {"x": (5, 64)}},
        {"precision": "bf16"},
        {"opset": 16},
        {"target": {"kind": "llvm", "mcpu": "x86-64"}},
    ],
    ids=str,
)
def test_options_are_part_of_the_key(tmp_path, options):
    path = write_model(tmp_path / "m.onnx")
    defaults = dict.fromkeys(["target", "shape_dict", "dtype_dict", "opset", "tuned"]) | {"precision": "float32"}
    one, other = model_cache.request_of(path, defaults), model_cache.request_of(path, defaults | options)
    assert one is not None and other is not None and one.key != other.key
    assert model_cache.request_of(path, dict(defaults)).key == one.key


def test_what_another_process_cannot_know_is_not_kept(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.onnx")
    options = dict.fromkeys(["target", "shape_dict", "dtype_dict", "opset", "tuned"]) | {"precision": "float32"}
    assert model_cache.request_of(path, options) is not None
    assert model_cache.request_of(path, options | {"target": target.Target("llvm")}) is None
    assert model_cache.request_of(path.read_bytes(), options) is None
    with weft.ir.PassContext(instruments=[weft.ir.TimePasses()]):
        assert model_cache.request_of(path, options) is None
    with weft.ir.PassContext(config={"tir.disable_vectorize": True}):
        assert model_cache.request_of(path, options) is None
    with weft.ir.PassContext(disabled_pass=["FuseOps"]):
        assert model_cache.request_of(path, options) is None
    monkeypatch.setitem(weft.frontend.onnx.registry._CONVERTERS, ("mine", "Op"), lambda node: None)
    assert model_cache.request_of(path, options) is None
    monkeypatch.undo()
    monkeypatch.setenv("WEFT_MODEL_CACHE", "0")
    assert model_cache.request_of(path, options) is None


@pytest.mark.parametrize("found_sound", [False, True])
def test_a_damaged_entry_is_made_again(tmp_path, monkeypatch, found_sound):
    monkeypatch.setattr(model_cache, "_SETTLED_NS", 0)
    monkeypatch.setattr(model_cache, "_LARGE", 0 if found_sound else 1 << 40)
    path = write_model(tmp_path / "m.onnx")
    run(weft.Session(path))
    (entry,) = entries(tmp_path)
    good = entry.read_bytes()
    for bad in (good[:-100], good[:300], good[: len(good) // 2] + b"\x55" * 64 + good[len(good) // 2 + 64 :]):
        run(weft.Session(path))
        if found_sound:  # it is compared no more
            with monkeypatch.context() as m:
                m.setattr("weft.runtime.stored_model._digest", None)
                run(weft.Session(path))
        status = entry.stat()
        entry.write_bytes(bad)
        os.utime(entry, ns=(status.st_atime_ns, status.st_mtime_ns))
        run(weft.Session(path))
        assert entry.read_bytes() == good


def test_weights_in_another_file_are_watched(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.onnx", external=True)
    weights = tmp_path / "weights.bin"
    x = np.ones((1, 64), "float32")
    before = weft.Session(path).run({"x": x})[0].numpy()
    with monkeypatch.context() as m:
        NoCompiler(m)
        np.testing.assert_array_equal(weft.Session(path).run({"x": x})[0].numpy(), before)
    changed = np.frombuffer(weights.read_bytes(), "float32") * 2
    weights.write_bytes(changed.tobytes())
    after = weft.Session(path).run({"x": x})[0].numpy()
    np.testing.assert_allclose(after, 2 * before, rtol=1e-5)


def test_the_hash_of_a_large_file_is_kept_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(model_cache, "_LARGE", 0)
    monkeypatch.setattr(model_cache, "_SETTLED_NS", 0)
    path = write_model(tmp_path / "m.onnx")
    one = model_cache._content(path)
    with monkeypatch.context() as m:
        m.setattr("os.preadv", None)  # nothing is read
        assert model_cache._content(path) == one
    status = path.stat()
    changed = bytearray(path.read_bytes())
    changed[-200] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a tool would that keeps times
    assert model_cache._content(path) != one


def test_a_file_that_was_just_written_is_hashed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(model_cache, "_LARGE", 0)
    path = write_model(tmp_path / "m.onnx")
    model_cache._content(path)
    monkeypatch.setattr("os.preadv", None)
    refuses(TypeError, "", model_cache._content, path)


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    path = write_model(tmp_path / "m.onnx")
    with pytest.warns(UserWarning, match="cannot be written"):
        run(weft.Session(path))


def test_a_model_larger_than_the_cache_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "4096")
    run(weft.Session(write_model(tmp_path / "m.onnx")))
    assert entries(tmp_path) == []


FRESH = """
import json, re, sys
import numpy as np, weft
session = weft.Session(sys.argv[1])
x = np.load(sys.argv[2])
y = session.run({"x": x})[0].numpy()
print(json.dumps([y.tolist(), sorted(m for m in ("llvmlite", "onnx", "weft.relax", "weft.tir") if m in sys.modules)]))
"""


def fresh(path: Path, x: Path, code: int = 0):
    done = subprocess.run([sys.executable, "-c", FRESH, path, x], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


WARM = """
import sys, numpy as np, weft
weft.Session(sys.argv[1]).run({"x": np.zeros((1, 64), "float32")})
print(*(m for m in sys.modules if m.startswith("weft.")))
"""


def test_a_warm_process_loads_what_running_takes(tmp_path):
    """Each module is a millisecond that the first answer waits for."""
    path = write_model(tmp_path / "m.onnx")
    for _cold_then_warm in range(2):
        done = subprocess.run([sys.executable, "-c", WARM, path], capture_output=True, text=True, check=True)
    loaded = {m.removeprefix("weft.") for m in done.stdout.split()}
    assert not loaded & {f"runtime.{m}" for m in ("disassemble", "kv_cache", "link", "profiler", "relay_vm", "params")}
    assert "runtime.vm" in loaded and len(loaded) <= 42, sorted(loaded)


def test_a_fresh_process_never_loads_the_compiler(tmp_path):
    path = write_model(tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    for _cold_then_warm in range(2):
        y, loaded = fresh(path, tmp_path / "x.npy")
        assert loaded == []
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-4)
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize(
    "module", ["weft.session", "weft.compile_worker", "weft.relax.kernel_builder", "weft.cli", "weft.tune.worker"]
)
def test_processes_that_compile_do_not_load_what_they_do_not_need(module):
    """PyTorch is 200 MB and two seconds where it is installed, as tvm_ffi imports it when it is the first to be."""
    unneeded = ["torch", "scipy", "onnxruntime"]
    if module != "weft.tune.worker":  # tuning, its devices and what TVM's programs write: a tenth of a process's start
        unneeded += ["ssl", "weft.rpc", "weft.tune.task", "weft.meta_schedule", "weft.dlight", "weft.relax.training"]
    program = f"import sys, {module}; print([m for m in {unneeded} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def replace_whole(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


REWRITING = """
import sys, numpy as np, weft
def model(path, factor): open(path, "wb").write(open(f"{path}.{factor}", "rb").read())
x = np.ones((1, 64), "float32")
for factor in (2, 5, 2):
    model(sys.argv[1], factor)
    session = weft.Session(sys.argv[1])
    print(session.run({"x": x})[0].numpy()[0, 0])
model(sys.argv[1], 5)
try:
    session.wait()
    print(session.run({"x": x})[0].numpy()[0, 0])
except weft.WeftError as e:
    print("changed" if "was changed" in str(e) else e)
"""


def test_a_file_that_is_written_while_it_is_compiled_is_no_entry(tmp_path, monkeypatch):
    """What compiles reads the file after its key was made."""
    path = write_model(tmp_path / "m.onnx")
    for factor in (2, 5):
        write_model(Path(f"{path}.{factor}"), factor)
    two, five = (float(expected(np.ones((1, 64), "float32"), f)[0, 0]) for f in (2, 5))
    done = subprocess.run([sys.executable, "-c", REWRITING, path], capture_output=True, text=True, check=True)
    *answers, last = done.stdout.split()
    np.testing.assert_allclose([float(a) for a in answers], [two, five, two])
    assert last == "changed" or float(last) == pytest.approx(two)  # it may have been read before
    run(weft.Session(f"{path}.2"))
    run(weft.Session(f"{path}.5"), 5.0)
    importer = weft.frontend.onnx.from_onnx
    write_model(path, 3.0)
    monkeypatch.setattr(
        "weft.frontend.onnx.from_onnx", lambda model, *a, **k: importer(write_model(path, 4.0), *a, **k)
    )
    before = entries(tmp_path)
    refuses(error.WeftError, "was changed", weft.Session, path)
    assert entries(tmp_path) == before


@pytest.mark.parametrize("then", ["import", "compile"])
@pytest.mark.parametrize("rewrite", [Path.write_bytes, replace_whole])
def test_weights_that_are_written_while_they_are_compiled_are_no_entry(tmp_path, monkeypatch, then, rewrite):
    """They are in a file beside the model, which the key does not know of before the model is read."""
    path = write_model(tmp_path / "m.onnx", external=True)
    weights = tmp_path / "weights.bin"
    place, name = (weft.frontend.onnx, "from_onnx") if then == "import" else (weft.relax, "build")
    whole = getattr(place, name)

    def rewritten(*arguments, **options):
        result = whole(*arguments, **options)
        rewrite(weights, (np.frombuffer(weights.read_bytes(), "float32") * 2).tobytes())
        return result

    with monkeypatch.context() as m:
        m.setattr(place, name, rewritten)
        refuses(error.WeftError, r"(?s)was changed.*weights\.bin", weft.Session, path)
    assert not entries(tmp_path)
    x = np.ones((1, 64), "float32")
    np.testing.assert_allclose(weft.Session(path).run({"x": x})[0].numpy(), 2 * expected(x), rtol=1e-5)


def test_a_broken_model_has_the_importers_error(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    np.save(tmp_path / "x.npy", np.ones((1, 64), "float32"))
    assert "ModelImportError" in fresh(path, tmp_path / "x.npy", 1)
    refuses(error.ModelImportError, "", weft.Session, tmp_path / "absent.onnx")
    assert entries(tmp_path) == []


def test_hot_kernels_of_a_stored_model_are_compiled_by_another_process(tmp_path):
    path = write_softmax(tmp_path / "m.onnx")
    made = weft.relax.build(weft.frontend.onnx.from_onnx(path))
    assert made.recompilable
    weft.Session(path)
    stored = weft.Session(path).executable
    assert {n: [tuple(p) for p in k.places] for n, k in stored.recompilable.items()} == {
        n: [tuple(p) for p in k.places] for n, k in made.recompilable.items()
    }
    name, kernel = next(iter(stored.recompilable.items()))
    x = np.random.default_rng(0).standard_normal((5, 5), np.float32)
    module, symbol = kernel.compile([5] * len(kernel.places))
    assert symbol == name
    y = np.zeros_like(x)
    module[name](x, y)
    np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(1, keepdims=True), rtol=1e-5)


def test_kernels_survive_json(tmp_path):
    made = weft.relax.build(weft.frontend.onnx.from_onnx(write_softmax(tmp_path / "m.onnx")))
    form = relax.kernels_to_json(made.recompilable)
    back = weft.relax.kernels_from_json(form["module"], lambda m: relax.compile_kernels(m, target.Target("llvm")))
    assert relax.kernels_to_json(back)["places"] == form["places"]
    assert weft.ir.structural_equal(
        weft.ir.load_json(relax.kernels_to_json(back)["module"]), weft.ir.load_json(form["module"])
    )
    assert relax.kernels_to_json({}) is None


def test_what_nobody_waits_for_takes_idle_time_only():
    worker = model_cache._HotKernels("", None)._worker
    try:
        assert os.sched_getscheduler(worker.start().pid) == os.SCHED_IDLE
    finally:
        worker.stop()


def test_hot_kernels_begin_no_process_at_the_end():
    kernels = model_cache._HotKernels("", None)
    assert kernels in model_cache._hot
    kernels.close()
    refuses(error.WeftError, "was not compiled", kernels.compiler_of("k"), [1])
    assert not kernels._worker.is_alive
