"""Libraries of Apache TVM run in Weft's virtual machine, and Weft's in Apache TVM's, with equal results.

Each side has a process of its own. ``make crossover`` installs Apache TVM into an environment of its own and runs this;
``WEFT_TVM_PYTHON`` names another interpreter that has it.
"""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests import clock
from tests.crossover import programs
from weft import environment, te

ROOT = Path(__file__).resolve().parents[2]
TVM = str(environment.TVM_PYTHON.read() or "") or (sys.executable if importlib.util.find_spec("tvm") else None)
VERSION = "0.27."


def missing() -> str:
    """Why Apache TVM cannot take part, or nothing."""
    if TVM is None:
        return "apache-tvm is absent: `make crossover` installs it into .venv-crossover and runs these tests"
    command = [TVM, "-c", "from importlib.metadata import version; print(version('apache-tvm'))"]
    found = clock.run(command)
    if found.returncode:
        return f"{TVM} has no apache-tvm: `make crossover` makes an environment that has"
    if not found.stdout.startswith(VERSION):
        return f"{TVM} has apache-tvm {found.stdout.strip()}, the tests are for {VERSION}*: use `make crossover`"
    return ""


needs_tvm = pytest.mark.skipif(bool(MISSING := missing()), reason=MISSING)


def side(package, *words):
    python = TVM if package == "tvm" else sys.executable
    command = [python, str(ROOT / "tests/crossover/programs.py"), package, *map(str, words)]
    done = clock.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]


@needs_tvm
@pytest.mark.parametrize("name", programs.SOURCES)
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("builder", ["tvm", "weft"])
def test_both_machines_agree(builder, exec_mode, name, tmp_path):
    """What one side compiled gives in both machines the same: what NumPy gives. Its text is the same in both, too."""
    library = tmp_path / "model.so"
    side(builder, "build", name, library, exec_mode)
    results = []
    for runner in ("tvm", "weft"):
        side(runner, "run", name, library, tmp_path / f"{runner}.npz")
        results.append(dict(np.load(tmp_path / f"{runner}.npz")))
    assert results[0].keys() == results[1].keys()
    for key, value in results[0].items():
        np.testing.assert_array_equal(value, results[1][key], err_msg=key)
    for case in range(programs.CASES):
        expected = programs.REFERENCES[name](*programs.arguments(name, case))
        for i, array in enumerate(expected):
            found = results[1][f"{case}.{i}"]
            assert found.size
            np.testing.assert_allclose(found, array, rtol=2e-4, atol=2e-5, err_msg=f"{case}.{i}")


def test_kernels_in_stock_loader(tmp_path):
    """A library of kernels needs nothing of Weft but its file: a process with tvm-ffi alone calls it."""
    n = te.var("n")
    a = te.placeholder((n,), "float32", name="a")
    double = te.compute((n,), lambda i: a[i] + a[i], name="double")
    module = weft.build(te.create_prim_func([a, double]).with_attr("global_symbol", "twice"), target="llvm")
    library = str(module.export_library(tmp_path / "kernels.so"))
    script = (
        "import sys, numpy as np, tvm_ffi\n"
        f"f = tvm_ffi.load_module({library!r})['twice']\n"
        "a, out = np.arange(7, dtype='float32'), np.zeros(7, 'float32')\n"
        "f(a, out)\n"
        "assert (out == 2 * a).all() and 'weft' not in sys.modules, out\n"
    )
    done = clock.run([sys.executable, "-c", script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
