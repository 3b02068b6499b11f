"""Kernels come out the same in every process, whatever the addresses of objects and the seeds of hashes are."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import zoo
from tests.refusals import refuses
from tools.kernels_diff import generate
from weft import environment

DUMP = zoo.ROOT / "tools" / "dump_kernels.py"


def kernels(model: Path, folder: Path, seed: int) -> dict[str, str]:
    """LLVM IR of every kernel of a model, from a new process."""
    command = [sys.executable, str(DUMP), str(folder), "llvm -mattr=+avx2", str(model)]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": str(seed), "WEFT_VERIFY": "0"}, check=True)
    return {p.name: p.read_text() for p in folder.rglob("*.ll")}


def test_kernels_are_the_same_in_every_process(tmp_path):
    model = zoo.onnx_path("decoder_step")
    first = kernels(model, tmp_path / "0", 0)
    assert len(first) > 5
    for seed in (1, 2, 3) if environment.SWEEP.read() else (1,):
        again = kernels(model, tmp_path / str(seed), seed)
        assert first.keys() == again.keys()
        assert not [name for name in first if first[name] != again[name]]


def test_kernels_of_another_tree_are_that_trees(tmp_path):
    (tmp_path / "weft").mkdir()
    (tmp_path / "weft" / "__init__.py").write_text("raise SystemExit(7)")
    refuses(subprocess.CalledProcessError, "exit status 7", generate, tmp_path, [], tmp_path / "kernels", "llvm")
