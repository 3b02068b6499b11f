"""What ``weft run`` loads: nothing that compiles, and nothing that is installed beside Weft and not asked for."""

import os
import subprocess
import sys

import pytest

import weft
from tests import onnx_models

_ALLOWED = (
    "_absent _aliases _start baseline cli compile_key environment error ffi garbage later machine model_cache registry "
    "runtime session spelling"
).split()
"""The parts of Weft that a process may load which runs a library, or a model that another process compiles."""
_FOREIGN = ("torch", "onnx", "llvmlite", "onnxruntime", "matplotlib", "pandas")


@pytest.mark.parametrize("kind", ["library", "model"])
def test_running_loads_nothing_that_compiles(tmp_path, kind):
    path = tmp_path / ("m.so" if kind == "library" else "m.onnx")
    proto = onnx_models.linear()[0]
    if kind == "library":
        weft.Session(proto).executable.export_library(path)
    else:
        path.write_bytes(proto.SerializeToString())
    program = (
        "import sys\nfrom weft.cli.main import main\nassert main(['run', sys.argv[1]]) in (0, None)\n"
        "print(*(m for m in sys.modules), file=sys.stderr)"
    )
    env = {**os.environ, "WEFT_MODEL_CACHE": "1", "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "y\tfloat32" in done.stdout
    loaded = done.stderr.split("\n")[-2].split()
    parts = {m.split(".")[1] for m in loaded if m.startswith("weft.")}
    assert not parts.difference(_ALLOWED)
    assert not {m.split(".")[0] for m in loaded}.intersection(_FOREIGN)
    assert ("baseline" in parts) == (kind == "model")


def test_build_systems_get_their_answer_without_pytorch():
    program = "import sys\nfrom weft.cli.main import main\nmain(['config', '--libs'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "tvm_ffi" in done.stdout.split() and not set(done.stdout.split()).intersection(_FOREIGN)
