import os
import subprocess
import sys
from pathlib import Path

from tests.runtime.programs import add_twice, libraries, linked


def test_model_runs_without_python(tmp_path):
    """A C++ program links the runtime and runs an exported model; no Python is in the process."""
    model = add_twice(2).export_library(tmp_path / "model.so")
    program = linked("deploy_main.cc", tmp_path / "deploy")
    out = subprocess.run([str(program), model], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    lines = out.stdout.splitlines()
    assert lines[0] == "3 x 4 sum 264"
    assert lines[1].startswith("InvalidArgument: main: argument 'x'")
    assert "expected dtype float32, found int8" in lines[1]
    bad = subprocess.run([str(program), str(tmp_path / "none.so")], capture_output=True, text=True)
    assert bad.returncode == 1
    assert "cannot open the library" in bad.stdout


def test_library_is_small_and_has_no_python():
    _, weft = libraries()
    assert os.path.getsize(weft) < 600 * 1000
    built = [os.fsencode(folder) for folder in (sys.prefix, os.getcwd())]
    assert not any(folder in Path(weft).read_bytes() for folder in built), "its size depends on where it was built"
    symbols = subprocess.run(["nm", "-D", weft], capture_output=True, text=True).stdout
    assert " Py" not in symbols
    exported = {line.split()[-1] for line in symbols.splitlines() if " T " in line}
    assert exported
    # Apache TVM's compiled functions find the machine's lists by these names.
    lists = {f"TVMBackendAnyList{what}" for what in ("SetPackedArg", "ResetItem", "MoveFromPackedReturn")}
    assert all(name.startswith("weft_") for name in exported - lists)
