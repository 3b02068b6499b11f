"""Where the system refuses matrix tiles, code that has them gives an error, and this machine's target has none."""

import os
import sys

import pytest

import weft
from tests import clock
from tests.target import amx_emulation as amx
from tests.tir.test_tiles import operands, product
from weft.target import cpu

_PROGRAM = """
import sys
import numpy as np
import weft
from weft.error import ExecutableError
from weft.target.cpu import host_features
from tests.target.amx_emulation import AMX
from tests.tir.test_tiles import operands, product

target = "llvm -mattr=" + ",".join("+" + f for f in sorted(host_features() | AMX))
module = weft.build(product("bf16", 16, 16, 16, 1), target)
a, b, c, _ = operands("bf16", 16, 16, 16, 1)
try:
    module(a, b, c)
except RuntimeError as e:
    print("call:", e)
module.export_library(sys.argv[1])
try:
    weft.runtime.load_module(sys.argv[1])
except ExecutableError as e:
    print("load:", e)
print("features:", sorted(f for f in host_features() if f.startswith("amx")))
"""


def test_refused_tiles_are_errors(tmp_path):
    environment = {**os.environ, "WEFT_MATRIX_TILES": "off"}
    done = clock.run([sys.executable, "-c", _PROGRAM, str(tmp_path / "tiles.so")], env=environment)
    assert done.returncode == 0, done.stderr
    call, load, features = done.stdout.splitlines()
    assert call.startswith("call: default_function: compiled for a processor with matrix tiles (amx-tile)")
    assert load.startswith("load: the library") and "tiles.so" in load and "amx-tile" in load
    assert features == "features: []"


def test_a_library_runs_where_tiles_are_granted(tmp_path):
    path = str(tmp_path / "tiles.so")
    weft.build(product("bf16", 16, 16, 16, 1), amx.target()).export_library(path)
    a, b, c, exact = operands("bf16", 16, 16, 16, 1)
    weft.runtime.load_module(path)["default_function"](a, b, c)
    assert abs(c - exact).max() <= 1e-5 * abs(exact).max()


@pytest.mark.parametrize("granted", [True, False])
def test_this_machine_has_tiles_where_they_are_granted(granted, monkeypatch):
    monkeypatch.setattr(cpu.llvm, "get_host_cpu_features", lambda: {"avx2": True, "amx-tile": True, "amx-bf16": True})
    monkeypatch.setattr(cpu.ffi, "get_global_func", lambda name: lambda: granted)
    assert ("amx-bf16" in cpu.host_features.__wrapped__()) == ("amx-tile" in cpu.host_features.__wrapped__()) == granted
    assert "avx2" in cpu.host_features.__wrapped__()
