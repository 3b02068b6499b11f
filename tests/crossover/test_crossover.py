"""Libraries of Apache TVM run in Weft's virtual machine, and Weft's in Apache TVM's, with equal results.

Each side has a process of its own. ``WEFT_TVM_PYTHON`` names an interpreter that has ``apache-tvm`` when ours has not.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.crossover import programs
from weft import te

ROOT = Path(__file__).resolve().parents[2]
TVM = os.environ.get("WEFT_TVM_PYTHON") or (sys.executable if importlib.util.find_spec("tvm") else None)
needs_tvm = pytest.mark.skipif(TVM is None, reason="apache-tvm is absent: pip install 'apache-tvm==0.27.*'")


def side(package, *words):
    python = TVM if package == "tvm" else sys.executable
    command = [python, str(ROOT / "tests/crossover/programs.py"), package, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_tvm
@pytest.mark.parametrize("name", programs.SOURCES)
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("builder", ["tvm", "weft"])
def test_both_machines_agree(builder, exec_mode, name, tmp_path):
    """What one side compiled gives in both machines the same."""
    library = tmp_path / "model.so"
    side(builder, "build", name, library, exec_mode)
    results = []
    for runner in ("tvm", "weft"):
        side(runner, "run", name, library, tmp_path / f"{runner}.npz")
        results.append(np.load(tmp_path / f"{runner}.npz")["arr_0"])
    assert results[0].size
    np.testing.assert_array_equal(*results)


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
