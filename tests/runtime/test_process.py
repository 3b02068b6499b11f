"""Processes of Weft's own: nothing that lies where they are started is run, and they end with who started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.clock import eventually, run
from tests.conftest import ROOT
from tests.frontend.models import model_of

SHADOWS = "base64.py json.py runpy.py select.py numpy.py llvmlite.py sitecustomize.py weft/__init__.py".split()
WORKERS = """
import sys, numpy as np, weft
session = weft.Session("m.onnx")
assert "weft.relax.vm_build" not in sys.modules, "it was compiled here"
x = np.ones((2, 64), "float32")
np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ np.ones((64, 64)) + 41, rtol=1e-5)
from weft.runtime.worker import Process, WorkerError
for program in ("weft.tune.worker", "weft.relax.kernel_builder"):
    process = Process(program)
    try:
        process.ask({"do": "compile"}, 60)
    except WorkerError as e:
        print(program, type(e).__name__, e.what)
    process.stop()
try:
    weft.target.Target("llvm -mcpu=nosuchmodel")
except weft.error.InvalidArgument as e:
    print(e.what)
"""


def write_model(folder: Path) -> None:
    """Enough operators for processes of the process that compiles."""
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["h0"])]
    nodes += [onnx.helper.make_node("Add", [f"h{i}", "one"], [f"h{i + 1}"]) for i in range(40)]
    nodes += [onnx.helper.make_node("Add", ["h40", "one"], ["y"])]
    weights = {"w": np.ones((64, 64), np.float32), "one": np.ones(1, np.float32)}
    model = model_of(nodes, {"x": np.ones((2, 64), np.float32)}, ["y"], weights=weights, dims={"x": ["n", 64]})
    (folder / "m.onnx").write_bytes(model.SerializeToString())


def environment(cache: Path) -> dict[str, str]:
    own = {"WEFT_CACHE_DIR": str(cache), "WEFT_MODEL_CACHE": "1", "WEFT_COMPILE_PROCESSES": "2"}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT)}


def test_nothing_in_the_current_folder_is_run(tmp_path: Path) -> None:
    write_model(tmp_path)
    for name in SHADOWS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    program = tmp_path / "elsewhere" / "program.py"
    program.parent.mkdir()
    program.write_text(WORKERS)
    done = run([sys.executable, program], cwd=tmp_path, env=environment(tmp_path / "cache"))
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("WorkerError TypeError") == 2, done.stdout
    assert "nosuchmodel" in done.stdout


def members(session: int) -> list[int]:
    """Processes of a session that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("seconds", [0.15, 0.6, 1.2, 2.0, 3.0])
def test_processes_end_quietly_when_their_parent_is_killed(tmp_path: Path, seconds: float) -> None:
    write_model(tmp_path)
    (tmp_path / "program.py").write_text("import weft, time; weft.Session('m.onnx'); time.sleep(60)")
    with (tmp_path / "said").open("wb") as said:
        parent = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment(tmp_path / "cache"),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    time.sleep(seconds)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    try:
        eventually(lambda: not members(parent.pid))
    finally:
        for pid in members(parent.pid):
            os.kill(pid, signal.SIGKILL)
    assert (tmp_path / "said").read_bytes() == b""
